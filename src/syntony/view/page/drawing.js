// The network: cables and nodes on the lower canvas, what is highlighted and what moves on the upper one.
//
// Level of detail: names only where nodes are far enough apart on the screen; of many moving messages no numbers.

function drawing(panel, section, tools) {
  const split = element("div", { class: panel.motion ? "split" : "" });
  const holder = element("div", { tabindex: 0, role: "img", "aria-label": `${panel.name}: ${panel.names.length} nodes, ${panel.link_src.length} links` });
  split.append(holder);
  section.append(split);
  const nodes = panel.names.length;
  const box = bounds(panel);
  holder.style.height = `${Math.max(300, Math.min(620, 60 + 820 * (box.high.y - box.low.y) / (box.high.x - box.low.x)))}px`;
  const view = { scale: 1, x: 0, y: 0, fitted: false };
  const geometry = paths(panel);
  const near = { from: -1, hops: null };
  const out = panel.motion ? motionLayer(panel, geometry) : null;

  const surface = new Surface(holder, [(context, width, height) => {
    fit(width, height);
    place(context);
    cables(context);
    dots(context);
  }, (context, width, height) => {
    fit(width, height);
    place(context);
    marks(context);
    out?.(context, pixel(), () => { if (nodes < 600) dots(context); });
  }]);

  function fit(width, height) {
    if (view.fitted === `${width} ${height}`) return;
    const margin = 34, wide = box.high.x - box.low.x || 1, tall = box.high.y - box.low.y || 1;
    view.scale = Math.min((width - 2 * margin) / wide, (height - 2 * margin) / tall, 2.2);
    view.x = width / 2 - view.scale * (box.low.x + box.high.x) / 2;
    view.y = height / 2 - view.scale * (box.low.y + box.high.y) / 2;
    view.fitted = `${width} ${height}`;
  }
  const place = (context) => { context.translate(view.x, view.y); context.scale(view.scale, view.scale); };
  const pixel = () => 1 / view.scale;

  const widest = Math.max(...panel.speeds.map(([width]) => width), 1);
  function cables(context) {
    const many = panel.line_link.length > 3000;
    panel.speeds.forEach(([width], speed) => {
      context.beginPath();
      for (let line = 0; line < panel.line_link.length; line++) {
        const link = panel.line_link[line];
        if (panel.speed[link] === speed) geometry.trace(context, link);
      }
      context.strokeStyle = palette.chunk[speed % 8];
      context.globalAlpha = many ? 0.25 : 0.75;
      context.lineWidth = pixel() * (many ? 0.7 : 1 + (panel.speeds.length > 1 ? 2.6 * Math.sqrt(width / widest) : 1));
      if (speed % 3 === 1) context.setLineDash([7 * pixel(), 3 * pixel()]);
      context.stroke();
      context.setLineDash([]);
    });
    context.globalAlpha = 1;
    if (many) return;
    for (let line = 0; line < panel.line_link.length; line++) {
      if (panel.line_back[line] < 0) arrow(context, geometry.at(panel.line_link[line], 0.9), geometry.at(panel.line_link[line], 0.95), palette.soft, 5 * pixel());
    }
  }
  const radius = () => Math.max(14, 4 * pixel());
  function dots(context) {
    const named = view.scale > 0.42, dot = view.scale < 0.2;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let node = 0; node < nodes; node++) {
      const x = panel.x[node], y = panel.y[node], size = dot ? 2.2 * pixel() : 14;
      context.beginPath();
      if (panel.kind[node] === 0) context.arc(x, y, size, 0, 7);
      else context.rect(x - size * (panel.kind[node] === 1 ? 1.7 : 1.5), y - size * 0.75, size * (panel.kind[node] === 1 ? 3.4 : 3), size * 1.5);
      const distance = near.hops ? near.hops[node] : -1;
      context.fillStyle = dot ? palette.soft : distance >= 0 ? mix(palette.node, palette.accent, Math.max(0, 0.85 - 0.25 * distance)) : panel.kind[node] === 0 ? palette.node : palette.faint;
      context.fill();
      context.lineWidth = 1.5 * Math.max(1, 0.6 * pixel());
      context.strokeStyle = palette.ink;
      if (!dot) context.stroke();
      if (named) {
        context.fillStyle = palette.ink;
        context.font = `${panel.kind[node] ? 11 : 13}px system-ui, sans-serif`;
        context.fillText(panel.kind[node] ? panel.names[node].slice(0, 10) : shortName(panel.names[node]), x, y + 0.5);
      }
    }
  }
  function marks(context) {
    const chosen = panel.highlights[state.highlight];
    if (chosen) {
      context.strokeStyle = palette.cut;
      context.lineWidth = 4.5 * pixel();
      context.beginPath();
      for (const link of chosen.links) geometry.trace(context, link);
      context.globalAlpha = 0.75;
      context.stroke();
      context.setLineDash([5 * pixel(), 3 * pixel()]);
      context.lineWidth = 2.5 * pixel();
      for (const node of chosen.nodes) { context.beginPath(); context.arc(panel.x[node], panel.y[node], radius() + 5, 0, 7); context.stroke(); }
      context.setLineDash([]);
      context.globalAlpha = 1;
      if (nodes < 600) dots(context);
    }
    if (state.link >= 0 && state.link < panel.link_src.length) {
      context.beginPath();
      geometry.trace(context, state.link);
      context.strokeStyle = palette.accent;
      context.lineWidth = 6 * pixel();
      context.stroke();
      arrow(context, geometry.at(state.link, 0.7), geometry.at(state.link, 0.8), palette.accent, 11 * pixel());
    }
    if (state.rank >= 0 && state.rank < nodes) {
      context.beginPath();
      context.arc(panel.x[state.rank], panel.y[state.rank], radius() + 4, 0, 7);
      context.strokeStyle = palette.accent;
      context.lineWidth = 3 * pixel();
      context.stroke();
    }
  }

  // Who is near whom: hops from a node, by any link.
  function measure(from) {
    near.from = from;
    near.hops = null;
    if (from < 0) return;
    const leaving = geometry.leaving(), hops = new Int32Array(nodes).fill(-1);
    hops[from] = 0;
    for (let queue = [from]; queue.length;) {
      const next = [];
      for (const node of queue) for (const link of leaving[node]) if (hops[panel.link_dst[link]] < 0) { hops[panel.link_dst[link]] = hops[node] + 1; next.push(panel.link_dst[link]); }
      queue = next;
    }
    near.hops = hops;
  }
  const at = (event) => {
    const frame = holder.getBoundingClientRect();
    return { x: (event.clientX - frame.left - view.x) / view.scale, y: (event.clientY - frame.top - view.y) / view.scale };
  };
  function nodeAt(point) {
    let best = -1, least = (16 + 4 * pixel()) ** 2;
    for (let node = 0; node < nodes; node++) {
      const far = (panel.x[node] - point.x) ** 2 + (panel.y[node] - point.y) ** 2;
      if (far < least) { least = far; best = node; }
    }
    return best;
  }
  function lineAt(point) {
    if (panel.line_link.length > 30000) return -1;
    let best = -1, least = (6 * pixel()) ** 2;
    for (let line = 0; line < panel.line_link.length; line++) {
      const far = geometry.distance(panel.line_link[line], point);
      if (far < least) { least = far; best = line; }
    }
    return best;
  }
  function describe(node) {
    const leaving = geometry.leaving()[node], kinds = new Map();
    for (const link of leaving) { const text = panel.speeds[panel.speed[link]][2]; kinds.set(text, (kinds.get(text) ?? 0) + 1); }
    const held = panel.motion ? `\n${heldWords(panel, node)}` : "";
    return `${rankName(panel.names[node])}${panel.host[node] >= 0 ? `, host ${panel.host[node]}` : ""}\n${[...kinds].map(([text, count]) => `${count} × ${text}`).join("\n") || "no link leaves it"}${held}`;
  }
  const link = (number) => `link ${number}: ${rankName(panel.names[panel.link_src[number]])} → ${rankName(panel.names[panel.link_dst[number]])}, ${panel.speeds[panel.speed[number]][2]}`;
  let drag = null;
  holder.addEventListener("pointermove", (event) => {
    if (drag) {
      view.x = drag.x + event.clientX - drag.from.x;
      view.y = drag.y + event.clientY - drag.from.y;
      drag.moved ||= Math.hypot(event.clientX - drag.from.x, event.clientY - drag.from.y) > 4;
      surface.redraw();
      return;
    }
    const point = at(event), node = nodeAt(point);
    const line = node < 0 ? lineAt(point) : -1;
    tip(event, node >= 0 ? describe(node) : line >= 0 ? [panel.line_link[line], panel.line_back[line]].filter((one) => one >= 0).map(link).join("\n") : "");
  });
  holder.addEventListener("pointerleave", (event) => tip(event, ""));
  holder.addEventListener("pointerdown", (event) => { drag = { from: { x: event.clientX, y: event.clientY }, x: view.x, y: view.y, moved: false }; holder.setPointerCapture(event.pointerId); });
  holder.addEventListener("pointerup", (event) => {
    const moved = drag?.moved;
    drag = null;
    if (moved) return;
    const point = at(event), node = nodeAt(point), line = node < 0 ? lineAt(point) : -1;
    if (node >= 0) set({ rank: state.rank === node ? -1 : node });
    else if (line >= 0) set({ link: state.link === panel.line_link[line] && panel.line_back[line] >= 0 ? panel.line_back[line] : panel.line_link[line] });
    else set({ rank: -1, link: -1 });
  });
  function zoom(factor, x = surface.width / 2, y = surface.height / 2) {
    const bounded = Math.max(0.02, Math.min(12, view.scale * factor)) / view.scale;
    view.x = x - bounded * (x - view.x);
    view.y = y - bounded * (y - view.y);
    view.scale *= bounded;
    surface.redraw();
  }
  holder.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const frame = holder.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 300), event.clientX - frame.left, event.clientY - frame.top);
  }, { passive: false });
  const whole = () => { view.fitted = false; surface.redraw(); };
  holder.addEventListener("dblclick", whole);
  const move = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
  holder.addEventListener("keydown", (event) => {
    if (event.key === "+" || event.key === "=") zoom(1.3);
    else if (event.key === "-") zoom(1 / 1.3);
    else if (move[event.key]) { view.x += move[event.key][0]; view.y += move[event.key][1]; surface.redraw(); } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  if (panel.highlights.length) {
    const choice = element("select", { "aria-label": "highlight", onchange: () => set({ highlight: +choice.value }) },
      element("option", { value: -1 }, "highlight .."), panel.highlights.map((one, number) => element("option", { value: number }, one.name)));
    const told = element("p", { class: "words", role: "status" });
    tools.append(choice);
    section.append(told);
    const show = () => { choice.value = panel.highlights[state.highlight] ? state.highlight : -1; told.textContent = panel.highlights[state.highlight]?.words ?? ""; };
    watch(["highlight"], show);
    show();
  }
  tools.append(element("button", { "aria-label": "closer", onclick: () => zoom(1.3) }, "+"), element("button", { "aria-label": "farther", onclick: () => zoom(1 / 1.3) }, "−"), element("button", { onclick: whole }, "all"));
  section.append(element("div", { class: "legend" }, panel.speeds.slice(0, 8).map(([, , text], speed) => {
    const one = element("span", { class: speed % 3 === 1 ? "dashed" : "" }, text);
    one.style.setProperty("--of", `var(--c${speed % 8})`);
    return one;
  })));
  watch(["rank"], () => { measure(panel.motion ? -1 : state.rank); surface.redraw(); });
  watch(["highlight", "link", "t", "mode", "chunk"], () => surface.redraw(1));
  if (panel.motion) {
    const side = element("div");
    split.append(side);
    holdings(panel, side);
    if (panel.motion.representative) section.append(element("p", { class: "words" }, panel.motion.representative));
    lineage(panel, panel.motion.agents.length <= 16 ? side : section);
  }
}

function bounds(panel) {
  const low = { x: Infinity, y: Infinity }, high = { x: -Infinity, y: -Infinity };
  for (let node = 0; node < panel.x.length; node++) {
    low.x = Math.min(low.x, panel.x[node]); high.x = Math.max(high.x, panel.x[node]);
    low.y = Math.min(low.y, panel.y[node]); high.y = Math.max(high.y, panel.y[node]);
  }
  return { low, high };
}

// The way of every link as `topo draw` draws it: straight, or a curve that bends around nodes.
function paths(panel) {
  const bend = new Float32Array(panel.link_src.length);
  for (let line = 0; line < panel.line_link.length; line++) {
    bend[panel.line_link[line]] = panel.bend[line];
    if (panel.line_back[line] >= 0) bend[panel.line_back[line]] = -panel.bend[line];
  }
  const ends = (link) => {
    const a = panel.link_src[link], b = panel.link_dst[link];
    const x0 = panel.x[a], y0 = panel.y[a], dx = panel.x[b] - x0, dy = panel.y[b] - y0, length = Math.hypot(dx, dy) || 1;
    return { x0, y0, dx, dy, lx: bend[link] * dy / length, ly: -bend[link] * dx / length };
  };
  let out = null;
  return {
    trace(context, link) {
      const { x0, y0, dx, dy, lx, ly } = ends(link);
      context.moveTo(x0, y0);
      if (bend[link]) context.bezierCurveTo(x0 + 0.15 * dx + lx, y0 + 0.15 * dy + ly, x0 + 0.85 * dx + lx, y0 + 0.85 * dy + ly, x0 + dx, y0 + dy);
      else context.lineTo(x0 + dx, y0 + dy);
    },
    at(link, share) {
      const { x0, y0, dx, dy, lx, ly } = ends(link);
      if (!bend[link]) return { x: x0 + share * dx, y: y0 + share * dy };
      const left = 1 - share, one = 3 * left * left * share, two = 3 * left * share * share;
      const along = one * 0.15 + two * 0.85 + share ** 3, aside = one + two;
      return { x: x0 + along * dx + aside * lx, y: y0 + along * dy + aside * ly };
    },
    distance(link, point) {
      if (!bend[link]) {
        const { x0, y0, dx, dy } = ends(link);
        const share = Math.max(0, Math.min(1, ((point.x - x0) * dx + (point.y - y0) * dy) / (dx * dx + dy * dy || 1)));
        return (x0 + share * dx - point.x) ** 2 + (y0 + share * dy - point.y) ** 2;
      }
      let least = Infinity;
      for (let share = 0; share <= 1; share += 0.05) { const spot = this.at(link, share); least = Math.min(least, (spot.x - point.x) ** 2 + (spot.y - point.y) ** 2); }
      return least;
    },
    leaving() {
      if (!out) {
        out = panel.names.map(() => []);
        for (let link = 0; link < panel.link_src.length; link++) out[panel.link_src[link]].push(link);
      }
      return out;
    },
  };
}

function arrow(context, from, to, colour, size) {
  const angle = Math.atan2(to.y - from.y, to.x - from.x);
  context.beginPath();
  for (const turn of [0, 2.5, -2.5]) context.lineTo(to.x + size * Math.cos(angle + turn), to.y + size * Math.sin(angle + turn));
  context.fillStyle = colour;
  context.fill();
}
const mix = (one, other, share) => `color-mix(in srgb, ${other} ${Math.round(100 * share)}%, ${one})`;
