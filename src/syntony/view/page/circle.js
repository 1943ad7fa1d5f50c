// A deadlock: who waits for whom, in a circle, clockwise; how far each has come, and for what it waits.

function circle(panel, section) {
  const count = panel.waiters.length, shown = panel.waiters.slice(0, 24), many = shown.length;
  const width = 1180, height = Math.max(300, Math.min(760, 150 + 74 * many)), rx = 215, ry = height / 2 - 88;
  const svg = (name, attributes, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const at = (number) => { const angle = 2 * Math.PI * number / many - Math.PI / 2 + (many === 2 ? Math.PI / 2 : 0); return [width / 2 + rx * Math.cos(angle), height / 2 + ry * Math.sin(angle)]; };
  const parts = [svg("defs", {}, svg("marker", { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" }, svg("path", { d: "M0,0 L8,4 L0,8 z", fill: "var(--bad)" })))];
  shown.forEach((_, number) => {
    const [x0, y0] = at(number), [x1, y1] = at((number + 1) % many);
    const bow = many <= 2 ? 0.5 : 0.12, cx = (x0 + x1) / 2 - bow * (y0 - y1), cy = (y0 + y1) / 2 + bow * (x0 - x1);
    const cut = (fx, fy, tx, ty) => { const far = Math.hypot(tx - fx, ty - fy) || 1, back = Math.min(0.45, 66 / far); return [tx - (tx - fx) * back, ty - (ty - fy) * back]; };
    const [ax, ay] = cut(cx, cy, x0, y0), [bx, by] = cut(cx, cy, x1, y1);
    parts.push(svg("path", { d: many === 1 ? `M${x0 + 40},${y0 + 18} C${x0 + 200},${y0 + 160} ${x0 - 200},${y0 + 160} ${x0 - 40},${y0 + 20}` : `M${ax},${ay} Q${cx},${cy} ${bx},${by}`, fill: "none", stroke: "var(--bad)", "stroke-width": 2.5, "marker-end": "url(#head)" }));
  });
  shown.forEach((one, number) => {
    const [x, y] = at(number), full = 120 * one.done / (one.total || 1), right = x > width / 2 + 10, middle = Math.abs(x - width / 2) <= 10;
    parts.push(svg("rect", { x: x - 64, y: y - 22, width: 128, height: 40, rx: 8, fill: "var(--panel)", stroke: "var(--ink)", "stroke-width": 1.5 }),
      svg("text", { x, y: y - 5, "text-anchor": "middle", "font-size": 13, "font-weight": 600, fill: "var(--ink)" }, one.name),
      svg("rect", { x: x - 60, y: y + 5, width: 120, height: 8, fill: "var(--faint)" }), svg("rect", { x: x - 60, y: y + 5, width: full, height: 8, fill: "var(--c0)" }), svg("rect", { x: x - 60 + full - 1.5, y: y + 3, width: 3, height: 12, fill: "var(--bad)" }));
    const lines = [`stands at ${one.at} (${one.done} of ${one.total} done)`, ...wrap(one.why, 46)];
    const below = middle && y > height / 2 ? 36 : middle ? -36 - 15 * (lines.length - 1) : -6;
    lines.forEach((text, line) => parts.push(svg("text", { x: middle ? x : x + (right ? 72 : -72), y: y + below + 15 * line, "text-anchor": middle ? "middle" : right ? "start" : "end", "font-size": 12, fill: line ? "var(--bad)" : "var(--soft)" }, text)));
  });
  section.append(svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "circle", role: "img", "aria-label": shown.map((one) => `${one.name} ${one.why}`).join("; ") }, ...parts));
  if (count > many) section.append(element("p", { class: "words" }, `and ${count - many} more in this circle`));
}
function wrap(text, most) {
  const lines = [""];
  for (const word of text.split(" ")) { if (lines.at(-1) && lines.at(-1).length + word.length > most) lines.push(""); lines[lines.length - 1] += (lines.at(-1) ? " " : "") + word; }
  return lines;
}
