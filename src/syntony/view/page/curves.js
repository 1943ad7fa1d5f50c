// Curves, drawn by uPlot: zoom by drag, double click for all of it, values at the cursor in the legend.

function curves(panel, section) {
  const holder = element("div", { role: "img", "aria-label": `${panel.title}: ${panel.series.map((one) => one.name).join(", ")}` });
  section.append(holder);
  const axis = [...new Set(panel.series.flatMap((one) => [...one.x]))].sort((one, other) => one - other);
  const place = new Map(axis.map((value, at) => [value, at]));
  const column = (x, y) => { const full = Array(axis.length).fill(panel.stepped ? undefined : null); x.forEach((value, at) => { full[place.get(value)] = y[at] > 0 || !panel.log_y ? y[at] : null; }); return full; };
  const [xName, xUnit] = panel.x, [yName, yUnit] = panel.y;
  let plot = null;
  const dashes = [[], [9, 4], [3, 3], [12, 3, 3, 3]];
  function make() {
    plot?.destroy();
    const data = [axis], series = [{ label: xName, value: (_, value) => value == null ? "" : WORDING[xUnit](value) }], bands = [];
    panel.series.forEach((one, number) => {
      const colour = one.limit ? palette.cut : palette.chunk[number % 8];
      data.push(column(one.x, one.y));
      series.push({ label: one.limit ? `${one.name} (nobody can beat it)` : one.name, stroke: colour, width: one.limit ? 2 : 2, dash: one.limit ? [6, 5] : dashes[Math.floor(number / 2) % 4], spanGaps: true,
        points: { show: !one.limit && !panel.stepped && axis.length < 60, size: 6 + number % 2 * 2 }, value: (_, value) => value == null ? "" : WORDING[yUnit](value),
        ...(panel.stepped ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}) });
      if (one.low && one.high) {
        data.push(column(one.x, one.high), column(one.x, one.low));
        const quiet = { class: "quiet", stroke: "transparent", points: { show: false }, spanGaps: true, value: (_, value) => value == null ? "" : WORDING[yUnit](value) };
        series.push({ ...quiet, label: `${one.name}, most` }, { ...quiet, label: `${one.name}, least` });
        bands.push({ series: [series.length - 2, series.length - 1], fill: `color-mix(in srgb, ${colour} 16%, transparent)` });
      }
    });
    const lines = { stroke: palette.soft, grid: { stroke: palette.line, width: 1 }, ticks: { stroke: palette.line, width: 1 }, font: "12px system-ui, sans-serif" };
    plot = new uPlot({
      width: Math.max(300, holder.clientWidth), height: 330, bands,
      scales: { x: { time: false, distr: panel.log_x ? 3 : 1, log: panel.log_x && xUnit === "bytes" ? 2 : 10 }, y: { distr: panel.log_y ? 3 : 1, ...(panel.log_y ? {} : { range: (_, low, high) => [Math.min(0, low), (high || 1) * 1.06] }) } },
      axes: [{ ...lines, label: xName, labelSize: 20, values: (_, found) => found.map((value, at) => value == null || (panel.log_x && xUnit === "bytes" && Math.round(Math.log2(value)) % 2) ? "" : WORDING[xUnit](value)) },
        { ...lines, label: yName, size: 80, values: (_, found) => found.map((value) => value == null ? "" : WORDING[yUnit](value)) }],
      legend: { live: true }, cursor: { focus: { prox: 24 } }, series,
    }, data, holder);
  }
  new ResizeObserver(() => { if (!holder.clientWidth) return; if (!plot) make(); else if (Math.abs(plot.width - holder.clientWidth) > 1) plot.setSize({ width: holder.clientWidth, height: 330 }); }).observe(holder);
  document.addEventListener("theme", () => { if (plot) make(); });
}
