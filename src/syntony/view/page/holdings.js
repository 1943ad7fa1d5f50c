// What every rank's buffer holds at the cursor: a row per rank, a column per chunk. Full: all of it; partly filled: some
// of its bytes, or a sum of some contributions; a corner: it must be there in the end.

function holdings(panel, side) {
  const motion = panel.motion, agents = motion.agents.length, chunks = motion.chunks.length;
  const gutter = 46, top = 18;
  const told = element("p", { class: "words" });
  const holder = element("div", { tabindex: 0, role: "img", "aria-label": "what every rank holds at the cursor" });
  side.append(element("h3", { style: "font-size:14px;margin:0 0 4px" }, "who holds what at the cursor"), holder, told);
  holder.style.height = `${Math.max(120, Math.min(520, top + agents * 24))}px`;
  const wanted = new Uint8Array(agents * chunks);
  heldAt(panel);
  for (let at = 0; at < motion.wanted.length; at++) wanted[panel.agentRow[motion.wanted_by[at]] * chunks + motion.wanted[at]] = 1;
  const surface = new Surface(holder, [(context, width, height) => {
    const share = heldAt(panel), w = (width - gutter) / chunks, h = (height - top) / agents;
    const across = Math.max(1, Math.ceil(1 / w)), down = Math.max(1, Math.ceil(1 / h));
    let whole = 0, due = 0;
    for (let row = 0; row < agents; row++) for (let chunk = 0; chunk < chunks; chunk++) {
      const at = row * chunks + chunk;
      if (wanted[at]) { due++; if (share[at] >= 0.999) whole++; }
      if (row % down || chunk % across) continue;
      const x = gutter + chunk * w, y = top + row * h, wide = w * across, tall = h * down, gap = wide > 6 && tall > 6 ? 1 : 0;
      context.fillStyle = palette.faint;
      if (gap) context.fillRect(x + gap, y + gap, wide - 2 * gap, tall - 2 * gap);
      if (share[at] > 0) {
        context.fillStyle = palette.chunk[chunk % 8];
        context.globalAlpha = state.chunk < 0 || state.chunk === chunk ? 1 : 0.25;
        const full = (tall - 2 * gap) * Math.min(1, share[at]);
        context.fillRect(x + gap, y + tall - gap - full, Math.max(1, wide - 2 * gap), full);
        context.globalAlpha = 1;
      }
      if (wanted[at] && gap) { context.fillStyle = share[at] >= 0.999 ? palette.panel : palette.soft; context.fillRect(x + wide - gap - 5, y + gap, 4, 4); }
    }
    context.fillStyle = palette.soft;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    context.textBaseline = "middle";
    const every = Math.ceil(14 / h);
    for (let row = 0; row < agents; row += every) {
      context.fillStyle = state.rank === motion.agents[row] ? palette.accent : palette.soft;
      context.fillText(shortName(panel.names[motion.agents[row]]).slice(0, 7), gutter - 6, top + (row + 0.5) * h);
    }
    context.textAlign = "center";
    context.fillStyle = palette.soft;
    for (let chunk = 0; chunk < chunks; chunk += Math.ceil(24 / w)) context.fillText(motion.chunks[chunk].match(/\d+/)?.[0] ?? "", gutter + (chunk + 0.5) * w, 9);
    context.textAlign = "left";
    context.fillText("rank", 2, 9);
    told.textContent = `${whole} of ${due} chunks are where they must be in the end${due ? ` (${percent(whole / due)})` : ""}.`;
    told.dataset.whole = whole;
    told.dataset.share = share.reduce((sum, one) => sum + one, 0);
  }]);
  const spot = (event) => {
    const frame = holder.getBoundingClientRect();
    const chunk = Math.floor((event.clientX - frame.left - gutter) / ((frame.width - gutter) / chunks)), row = Math.floor((event.clientY - frame.top - top) / ((frame.height - top) / agents));
    return { chunk: chunk >= 0 && chunk < chunks ? chunk : -1, row: row >= 0 && row < agents ? row : -1 };
  };
  holder.addEventListener("pointermove", (event) => {
    const { chunk, row } = spot(event);
    if (chunk < 0 || row < 0) return tip(event, "");
    const share = heldAt(panel)[row * chunks + chunk];
    const what = share >= 0.999 ? "has all of" : share > 0 ? `has ${percent(share)} of` : "does not have";
    return tip(event, `${rankName(panel.names[motion.agents[row]])} ${what} ${motion.chunks[chunk]}${wanted[row * chunks + chunk] ? "\nmust have it in the end" : ""}`);
  });
  holder.addEventListener("pointerleave", (event) => tip(event, ""));
  holder.addEventListener("click", (event) => {
    const { chunk, row } = spot(event);
    if (chunk >= 0) set({ chunk: state.chunk === chunk ? -1 : chunk });
    else if (row >= 0) set({ rank: motion.agents[row] });
  });
  watch(["t", "mode", "chunk", "rank"], () => surface.redraw());
}
