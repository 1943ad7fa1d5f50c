// The tree of a chunk: ranks in the order of the tree, time to the right, an arrow per message from who sent it to who
// got it. Square heads add.

function lineage(panel, section) {
  const motion = panel.motion, gutter = 74;
  const holder = element("div", { role: "img", "aria-label": "tree of the chunk" });
  const box = element("div", { class: "lineage" }, element("h3", { style: "font-size:14px;margin:12px 0 4px" }, ""), holder);
  section.append(box);
  let rows = null;
  function arrange() {
    const chunk = state.chunk >= 0 && state.chunk < motion.chunks.length ? state.chunk : 0;
    const messages = [];
    for (let message = 0; message < motion.chunk.length; message++) if (motion.chunk[message] === chunk) messages.push(message);
    // Children in the order of their arrival; reductions hang their source under their sum.
    const children = new Map(), inner = new Set();
    for (const message of messages) {
      const [parent, child] = motion.adds[message] ? [motion.dst[message], motion.src[message]] : [motion.src[message], motion.dst[message]];
      if (inner.has(child) || parent === child) continue;
      children.set(parent, [...(children.get(parent) ?? []), child]);
      inner.add(child);
    }
    const order = [], seen = new Set();
    const walk = (root) => {
      for (let stack = [root]; stack.length;) {
        const node = stack.pop();
        if (seen.has(node)) continue;
        seen.add(node);
        order.push(node);
        stack.push(...(children.get(node) ?? []).slice().reverse());
      }
    };
    const all = new Set(messages.flatMap((message) => [motion.src[message], motion.dst[message]]));
    for (const node of all) if (!inner.has(node)) walk(node);
    for (const node of all) walk(node);
    rows = { chunk, messages, place: new Map(order.map((node, at) => [node, at])), order };
    box.querySelector("h3").textContent = `the tree of ${motion.chunks[chunk]}${state.chunk < 0 ? " (choose another below, or click one above)" : ""}`;
    holder.style.height = `${Math.max(90, Math.min(460, 26 + order.length * 18))}px`;
    surface.resize();
    surface.redraw();
  }
  const surface = new Surface(holder, [(context, width, height) => {
    if (!rows) return;
    const end = state.mode === "steps" ? stepsOf(motion) : motion.seconds, h = (height - 22) / Math.max(1, rows.order.length);
    const x = (value) => gutter + (width - gutter - 12) * value / (end || 1), y = (node) => 20 + (rows.place.get(node) + 0.5) * h;
    const first = new Map();
    for (const message of rows.messages) {
      const begin = begins(motion, message), arrival = ends(motion, message);
      first.set(motion.dst[message], Math.min(first.get(motion.dst[message]) ?? Infinity, arrival));
      if (!first.has(motion.src[message])) first.set(motion.src[message], begin === 0 || !motion.adds[message] ? 0 : begin);
    }
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    rows.order.forEach((node, at) => {
      context.strokeStyle = palette.line;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x(first.get(node) ?? 0), y(node));
      context.lineTo(width - 12, y(node));
      context.stroke();
      if (at % Math.ceil(13 / h)) return;
      context.fillStyle = state.rank === node ? palette.accent : palette.ink;
      context.textAlign = "right";
      context.fillText(rankName(panel.names[node]).slice(0, 11), gutter - 8, y(node));
    });
    const thin = rows.messages.length > 400;
    for (const message of rows.messages) {
      const faded = state.rank >= 0 && !followed(motion, message);
      const from = { x: x(begins(motion, message)), y: y(motion.src[message]) }, to = { x: x(ends(motion, message)), y: y(motion.dst[message]) };
      context.strokeStyle = palette.chunk[rows.chunk % 8];
      context.globalAlpha = faded ? 0.15 : thin ? 0.4 : 0.9;
      context.lineWidth = thin ? 0.7 : 1.6;
      context.beginPath();
      context.moveTo(from.x, from.y);
      context.lineTo(to.x, to.y);
      context.stroke();
      if (!thin) {
        context.fillStyle = palette.chunk[rows.chunk % 8];
        if (motion.adds[message]) context.fillRect(to.x - 4, to.y - 4, 8, 8);
        else arrow(context, from, to, palette.chunk[rows.chunk % 8], 7);
      }
    }
    context.globalAlpha = 1;
    context.fillStyle = palette.soft;
    context.textAlign = "left";
    context.fillText("0", gutter, 8);
    context.textAlign = "right";
    context.fillText(state.mode === "steps" ? `${end} steps` : seconds(end), width - 12, 8);
    const now = x(Math.min(end, cursorOf(motion)));
    context.fillStyle = palette.cursor;
    context.fillRect(now, 16, 1.5, height - 16);
  }]);
  holder.addEventListener("click", (event) => {
    const frame = holder.getBoundingClientRect();
    const share = Math.max(0, Math.min(1, (event.clientX - frame.left - gutter) / (frame.width - gutter - 12)));
    const most = Math.max(...shownClocks().map(stepsOf), 1);
    set({ t: state.mode === "steps" ? share * stepsOf(motion) / most : share * motion.seconds / longest });
  });
  watch(["chunk", "mode"], arrange);
  watch(["t", "rank"], () => surface.redraw());
  arrange();
}
