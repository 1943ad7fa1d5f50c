// How busy links are, busiest first, with what the bound says that the links of its witness must be.

function use(panel, section, tools) {
  const links = panel.link.length, row = 20, left = 180;
  const scroll = element("div", { class: "scroll", tabindex: 0, role: "img", "aria-label": `${panel.title}; the busiest: ${panel.names[0]}, ${percent(panel.busy[0] ?? 0)}` });
  const stick = element("div", { class: "stick" }), holder = element("div"), tall = element("div");
  stick.append(holder);
  scroll.append(stick, tall);
  section.append(scroll);
  const height = Math.min(360, links * row + 6);
  scroll.style.height = `${height + 2}px`;
  holder.style.height = `${height}px`;
  tall.style.height = `${links * row + 6}px`;
  let shown = [...Array(links).keys()];
  const surface = new Surface(holder, [(context, width, tallness) => {
    const wide = width - left - 150, top = scroll.scrollTop;
    context.textBaseline = "middle";
    for (let place = Math.floor(top / row); place < Math.min(shown.length, Math.ceil((top + tallness) / row)); place++) {
      const at = shown[place], y = 3 + place * row - top, chosen = panel.link[at] === state.link;
      context.font = `${chosen ? "bold " : ""}12px system-ui, sans-serif`;
      context.textAlign = "right";
      context.fillStyle = chosen ? palette.accent : palette.ink;
      context.fillText(panel.names[at].replace(/rank(?=\d)/g, "rank "), left - 10, y + 9, left - 14);
      context.fillStyle = palette.faint;
      context.fillRect(left, y + 2, wide, row - 5);
      context.fillStyle = chosen ? palette.accent : palette.chunk[0];
      context.fillRect(left, y + 2, wide * panel.busy[at], row - 5);
      context.textAlign = "left";
      context.fillStyle = palette.ink;
      context.fillText(percent(panel.busy[at]) + (panel.cut[at] ? "  ✂ bound" : ""), left + wide + 8, y + 9);
      if (panel.cut[at]) { context.strokeStyle = palette.cut; context.lineWidth = 1.5; context.strokeRect(left, y + 2, wide, row - 5); }
    }
    if (panel.bound > 0) {
      const x = left + wide * Math.min(1, panel.bound);
      context.strokeStyle = palette.cut;
      context.setLineDash([5, 3]);
      context.lineWidth = 2;
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, tallness);
      context.stroke();
      context.setLineDash([]);
    }
  }]);
  scroll.addEventListener("scroll", () => surface.redraw());
  holder.addEventListener("click", (event) => {
    const at = shown[Math.floor((event.clientY - holder.getBoundingClientRect().top + scroll.scrollTop - 3) / row)];
    if (at !== undefined) set({ link: panel.link[at] });
  });
  if (panel.cut.some((one) => one)) {
    const only = element("button", { "aria-pressed": "false", onclick: () => {
      const on = only.getAttribute("aria-pressed") === "false";
      only.setAttribute("aria-pressed", String(on));
      shown = [...Array(links).keys()].filter((at) => !on || panel.cut[at]);
      tall.style.height = `${shown.length * row + 6}px`;
      surface.redraw();
    } }, "only links of the bound");
    tools.append(only);
    section.append(element("div", { class: "legend" }, Object.assign(element("span", { class: "dashed" }, "what the bound's links (✂) are busy at least, on average"), { style: "--of: var(--cut)" })));
  }
  watch(["link"], () => surface.redraw());
}
