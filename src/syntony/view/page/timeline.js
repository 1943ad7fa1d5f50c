// Lanes of spans, a million of them if need be.
//
// The spans are painted into an image, row by row of pixels: of every track a binary search finds the first span in sight,
// and from a span that is narrower than a pixel the next search leads to the first one that ends beyond that pixel. So a
// frame costs pixels, not spans. Names, hatches and outlines are drawn over it where there is room for them. The cursor has
// a canvas of its own.

const timelines = [];
const GUTTER = 170, AXIS = 22;

function timeline(panel, section, tools, view) {
  const lanes = panel.lanes.length, spans = panel.begin.length;
  const end = panel.end.reduce((most, value) => Math.max(most, value), panel.until) || 1;
  const begin = Math.min(0, panel.begin.reduce((least, value) => Math.min(least, value), 0));
  const tracks = panel.track_lane.length, first = new Int32Array(tracks + 1);
  for (let track = 0, at = 0; track <= tracks; track++) { while (at < spans && panel.track[at] < track) at++; first[track] = at; }
  const trackOf = new Int32Array(lanes + 1);
  for (let lane = 0, at = 0; lane <= lanes; lane++) { while (at < tracks && panel.track_lane[at] < lane) at++; trackOf[lane] = at; }
  const scroll = element("div", { class: "scroll", tabindex: 0, role: "img", "aria-label": `${panel.title}: ${lanes} lanes, ${spans} spans` });
  const stick = element("div", { class: "stick" }), holder = element("div"), tall = element("div");
  stick.append(holder);
  scroll.append(stick, tall);
  section.append(scroll);
  let row = lanes <= 24 ? 22 : lanes <= 64 ? 15 : 11, chosen = -1;
  const size = () => {
    const height = Math.min(560, AXIS + lanes * row + 2);
    scroll.style.height = `${height + 2}px`;
    holder.style.height = `${height}px`;
    tall.style.height = `${Math.max(height, AXIS + lanes * row)}px`;
  };
  size();
  const span = new Span(begin, end, () => surface.redraw());
  let image = null;
  const motion = clockOf(view);

  function paint(context, width, height, ratio) {
    const wide = Math.max(1, Math.round((width - GUTTER) * ratio)), high = Math.max(1, Math.round((height - AXIS) * ratio));
    if (!image || image.width !== wide || image.height !== high) image = new ImageData(wide, high);
    const pixels = new Uint32Array(image.data.buffer), empty = palette.packed.panel, edge = palette.packed.line;
    pixels.fill(empty);
    const scale = wide / (span.high - span.low), line = new Uint32Array(wide), top = scroll.scrollTop, found = [];
    const dim = state.chunk >= 0 && motion;
    const step = row * ratio;
    const low = Math.max(0, Math.floor(top / row)), most = Math.min(lanes, Math.ceil((top + height - AXIS) / row));
    let lastPixel = -1;
    for (let lane = low; lane < most; lane++) {
      const y0 = Math.round((lane * row - top) * ratio), y1 = Math.min(high, Math.round((lane * row - top) * ratio + step));
      if (y1 <= Math.max(0, lastPixel)) continue;  // this lane has no pixel of its own
      lastPixel = y1;
      const count = trackOf[lane + 1] - trackOf[lane], gap = step > 6 * ratio ? Math.ceil(ratio) : 0;
      for (let track = trackOf[lane]; track < trackOf[lane + 1]; track++) {
        line.fill(empty);
        const last = first[track + 1];
        let at = above(panel.end, span.low, first[track], last), any = false;
        while (at < last && panel.begin[at] < span.high) {
          const left = Math.max(0, Math.floor((panel.begin[at] - span.low) * scale)), right = Math.min(wide, Math.max(left + 1, Math.round((panel.end[at] - span.low) * scale)));
          let colour = palette.packed.chunk[panel.colour[at] & 7];
          if (dim && panel.label[at] !== state.chunk) colour = edge;
          line.fill(colour, left, right);
          any = true;
          if (right - left > 3 * ratio && right < wide) line[right - 1] = empty;
          if (right - left > 26 * ratio && found.length < 900) found.push([at, lane, track - trackOf[lane], count]);
          else if (panel.mark[at] && right - left > 2 && found.length < 3000) found.push([at, lane, track - trackOf[lane], count]);
          if (right - left <= 1) {
            const beyond = span.low + (left + 1) / scale;
            at = panel.end[at + 1] > beyond ? at + 1 : above(panel.end, beyond, at + 1, last);
          } else at++;
        }
        if (!any) continue;
        const share = (y1 - y0 - gap) / count, from = Math.max(0, Math.round(y0 + gap + (track - trackOf[lane]) * share)), to = Math.min(high, Math.round(y0 + gap + (track - trackOf[lane] + 1) * share));
        for (let y = from; y < Math.max(to, from + 1) && y < high; y++) pixels.set(line, y * wide);
      }
      if (y0 >= 0 && y0 < high && step > 8 * ratio) for (let x = 0; x < wide; x++) if (pixels[y0 * wide + x] === empty) pixels[y0 * wide + x] = edge;
    }
    context.putImageData(image, Math.round(GUTTER * ratio), Math.round(AXIS * ratio));
    names(context, width, height, found, low, most, top);
  }
  const x = (time, width) => GUTTER + (width - GUTTER) * (time - span.low) / (span.high - span.low);
  function names(context, width, height, found, low, most, top) {
    context.save();
    context.beginPath();
    context.rect(GUTTER, AXIS, width - GUTTER, height - AXIS);
    context.clip();
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (const [at, lane, track, count] of found) {
      const left = Math.max(GUTTER, x(panel.begin[at], width)), right = Math.min(width, x(panel.end[at], width)), tall = (row - 1) / count;
      const y = AXIS + lane * row - top + 1 + track * tall;
      if (panel.mark[at] & 1) hatch(context, left, y, right - left, tall);
      if (panel.mark[at] & 2) { context.strokeStyle = palette.ink; context.lineWidth = 2; context.strokeRect(left + 1, y + 1, right - left - 3, tall - 2); }
      if (panel.mark[at] & 4) { context.strokeStyle = palette.bad; context.lineWidth = 3; context.strokeRect(left + 1, y + 1, right - left - 2, tall - 2); }
      if (tall < 10) continue;
      const text = panel.labels[panel.label[at]], short = context.measureText(text).width > right - left - 6 ? text.match(/\d+$/)?.[0] ?? "" : text;
      if (!short || context.measureText(short).width > right - left - 4) continue;
      if (panel.mark[at] & 1) { context.fillStyle = palette.panel; context.fillRect((left + right) / 2 - context.measureText(short).width / 2 - 3, y + 2, context.measureText(short).width + 6, tall - 4); }
      context.fillStyle = panel.mark[at] & 1 ? palette.ink : palette.panel;
      context.textAlign = "center";
      context.fillText(short, (left + right) / 2, y + tall / 2 + 0.5);
    }
    context.restore();
    context.textAlign = "right";
    const every = Math.max(1, Math.ceil(12 / row));
    for (let lane = low - low % every; lane < most; lane += every) {
      if (lane < 0) continue;
      const late = panel.late.includes(lane);
      const y = AXIS + (lane + 0.5) * row - top;
      if (y < AXIS + 4) continue;
      context.font = `${late ? "bold " : ""}11.5px system-ui, sans-serif`;
      context.fillStyle = late ? palette.bad : thingOf(lane) >= 0 && thingOf(lane) === state[panel.what] ? palette.accent : palette.ink;
      context.fillText(`${late ? "▸ " : ""}${rankName(panel.lanes[lane])}`.slice(0, 27), GUTTER - 8, y, GUTTER - 12);
    }
    axis(context, width);
  }
  const thingOf = (lane) => panel.thing.length ? panel.thing[lane] : -1;
  function axis(context, width) {
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillStyle = palette.soft;
    for (const time of ticks(span.low, span.high, (width - GUTTER) / 110)) {
      const at = x(time, width);
      context.fillRect(at, AXIS - 5, 1, 5);
      context.fillText(seconds(time), at + 3, AXIS / 2 - 1);
    }
    context.fillRect(GUTTER, AXIS - 1, width - GUTTER, 1);
  }
  function overlay(context, width, height) {
    if (motion && panel.clock && state.mode === "time") {
      const at = x(state.t * longest, width);
      if (at >= GUTTER && at <= width) { context.fillStyle = palette.cursor; context.fillRect(at - 0.75, AXIS - 4, 1.5, height); }
    }
    if (chosen >= 0) {
      const track = panel.track[chosen], lane = panel.track_lane[track];
      context.strokeStyle = palette.cursor;
      context.lineWidth = 2;
      const left = Math.max(GUTTER, x(panel.begin[chosen], width)), right = Math.min(width, x(panel.end[chosen], width)), count = trackOf[lane + 1] - trackOf[lane];
      if (right > left) context.strokeRect(left, AXIS + lane * row - scroll.scrollTop + (track - trackOf[lane]) * row / count, Math.max(2, right - left), row / count);
    }
  }
  const surface = new Surface(holder, [paint, overlay]);
  scroll.addEventListener("scroll", () => surface.redraw());
  const spotOf = (event) => {
    const frame = holder.getBoundingClientRect(), px = event.clientX - frame.left, py = event.clientY - frame.top;
    const time = span.low + (px - GUTTER) / (frame.width - GUTTER) * (span.high - span.low);
    const lane = Math.floor((py - AXIS + scroll.scrollTop) / row);
    const inside = lane >= 0 && lane < lanes && py > AXIS;
    let at = -1;
    if (inside && px > GUTTER) {
      const within = (py - AXIS + scroll.scrollTop - lane * row) / row, count = trackOf[lane + 1] - trackOf[lane];
      const track = trackOf[lane] + Math.min(count - 1, Math.floor(within * count));
      at = above(panel.end, time, first[track], first[track + 1]);
      if (at >= first[track + 1] || panel.begin[at] > time) at = -1;
    }
    return { px, time, lane: inside ? lane : -1, at };
  };
  const describe = (at) => {
    const told = panel.detail.length ? panel.details[panel.detail[at]] : "";
    const marks = [panel.mark[at] & 1 ? "exposed: its device computes nothing meanwhile" : "", panel.mark[at] & 2 ? "on the critical path" : ""].filter(Boolean).join(", ");
    return [told || panel.labels[panel.label[at]], `${seconds(panel.begin[at])} to ${seconds(panel.end[at])}: ${seconds(panel.end[at] - panel.begin[at])}`, marks].filter(Boolean).join("\n");
  };
  let drag = null;
  holder.addEventListener("pointermove", (event) => {
    if (drag) {
      const by = (drag.x - event.clientX) / (surface.width - GUTTER) * (span.high - span.low);
      if (Math.abs(event.clientX - drag.x) > 3) drag.moved = true;
      if (drag.moved) span.to(drag.low + by, span.high - span.low);
      return;
    }
    const { at, lane, px } = spotOf(event);
    tip(event, at >= 0 ? describe(at) : px < GUTTER && lane >= 0 ? [panel.groups[lane], rankName(panel.lanes[lane])].filter(Boolean).join("\n") : "");
  });
  holder.addEventListener("pointerleave", (event) => tip(event, ""));
  holder.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, low: span.low, moved: false }; holder.setPointerCapture(event.pointerId); });
  holder.addEventListener("pointerup", (event) => {
    const moved = drag?.moved;
    drag = null;
    if (moved) return;
    const { time, at, lane, px } = spotOf(event);
    chosen = at;
    told.textContent = at >= 0 ? describe(at).replaceAll("\n", "; ") : "";
    const change = {};
    if (motion && panel.clock && px > GUTTER) change.t = Math.max(0, Math.min(1, time / longest));
    if (motion && at >= 0) change.chunk = panel.label[at];
    if (panel.what && lane >= 0 && thingOf(lane) >= 0) change[panel.what] = thingOf(lane);
    set(change);
    surface.redraw();
  });
  holder.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    span.zoom(Math.exp(event.deltaY / 300), spotOf(event).time);
  }, { passive: false });
  holder.addEventListener("dblclick", () => span.reset());
  scroll.addEventListener("keydown", (event) => {
    const width = span.high - span.low;
    if (event.key === "+" || event.key === "=") span.zoom(1 / 1.4);
    else if (event.key === "-") span.zoom(1.4);
    else if (event.key === "ArrowLeft") span.pan(-0.15 * width);
    else if (event.key === "ArrowRight") span.pan(0.15 * width);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  const fit = element("button", { "aria-pressed": "false", title: "all lanes at once, or tall ones", onclick: () => {
    const all = fit.getAttribute("aria-pressed") === "false";
    fit.setAttribute("aria-pressed", String(all));
    row = all ? Math.max(0.4, (560 - AXIS) / lanes) : 11;
    size();
    surface.resize();
    surface.redraw();
  } }, "all lanes");
  if (AXIS + lanes * row > 560) tools.append(fit);
  tools.append(element("button", { "aria-label": "zoom in", onclick: () => span.zoom(1 / 1.6) }, "+"), element("button", { "aria-label": "zoom out", onclick: () => span.zoom(1.6) }, "−"), element("button", { onclick: () => span.reset() }, "all"));
  const marked = panel.mark.reduce((bits, mark) => bits | mark, 0);
  const legend = element("div", { class: "legend" }, panel.colours.slice(0, 8).filter((text) => text).map((text) => {
    const colour = panel.colours.indexOf(text), one = element("span", {}, text);
    one.style.setProperty("--of", `var(--c${colour})`);
    return one;
  }));
  if (marked & 1) legend.append(element("span", { class: "hatch" }, "exposed: nothing is computed meanwhile"));
  if (marked & 2) legend.append(element("span", { class: "outline" }, "on the critical path"));
  const told = element("p", { class: "words", role: "status" });
  section.append(legend, told);
  watch(["t", "mode"], () => surface.redraw(1));
  watch(["chunk", "link", "rank"], () => {
    surface.redraw();
    const lane = panel.what ? panel.thing.indexOf(state[panel.what]) : -1;
    if (lane >= 0 && (lane * row < scroll.scrollTop || (lane + 1) * row > scroll.scrollTop + 540)) scroll.scrollTop = lane * row - 200;
  });
  timelines.push({ panel, span, surface });
}

let hatching = null;
function hatch(context, left, top, width, height) {
  if (!hatching || hatching.ink !== palette.panel) {
    const tile = element("canvas", { width: 8, height: 8 }), pen = tile.getContext("2d");
    pen.strokeStyle = palette.panel;
    pen.lineWidth = 2.4;
    for (const shift of [-8, 0, 8]) { pen.beginPath(); pen.moveTo(shift, 8); pen.lineTo(shift + 8, 0); pen.stroke(); }
    hatching = { ink: palette.panel, tile };
  }
  context.fillStyle = context.createPattern(hatching.tile, "repeat");
  context.fillRect(left, top, width, height);
}

function ticks(low, high, count) {
  const raw = (high - low) / Math.max(2, count), power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].find((one) => one * power >= raw) * power;
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high; at++) found.push(at * step);
  return found;
}
