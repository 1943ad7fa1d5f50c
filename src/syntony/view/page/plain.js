// Tables, sorted by a click on a heading, and sentences.

function grid(panel, section) {
  const numeric = panel.columns.map((_, at) => panel.rows.length > 0 && panel.rows.every((row) => /^[-–]?$|^[-+]?[\d.,]+(e[-+]?\d+)?\s?(%|x|[KMGT]?i?B(\/s)?|[kMGT]?B\/s|n?s|us|ms|bytes)?$/.test(row[at])));
  const value = (text) => {
    const found = /^([-+]?[\d.,]+(?:e[-+]?\d+)?)\s?(.*)$/.exec(text);
    if (!found) return NaN;
    const unit = { ns: 1e-9, us: 1e-6, ms: 1e-3, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, KiB: 1024, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 }[found[2]] ?? 1;
    return parseFloat(found[1].replaceAll(",", "")) * unit;
  };
  const order = panel.rows.map((_, at) => at);
  const body = element("tbody");
  const fill = () => body.replaceChildren(...order.slice(0, 2000).map((at) => element("tr", { class: panel.best.includes(at) ? "best" : panel.bad.includes(at) ? "bad" : null },
    panel.rows[at].map((cell, column) => element("td", { class: numeric[column] ? "number" : null }, cell)))));
  let last = -1, way = 1;
  const head = element("tr", {}, panel.columns.map((name, column) => element("th", { scope: "col", class: numeric[column] ? "number" : null }, element("button", { title: "sort", onclick: () => {
    way = last === column ? -way : 1;
    last = column;
    order.sort((one, other) => way * (numeric[column] ? value(panel.rows[one][column]) - value(panel.rows[other][column]) : panel.rows[one][column].localeCompare(panel.rows[other][column])));
    fill();
  } }, name))));
  fill();
  section.append(element("div", { class: "table", tabindex: 0, role: "region", "aria-label": panel.title }, element("table", {}, element("thead", {}, head), body)));
  if (panel.rows.length > 2000) section.append(element("p", { class: "words" }, `${panel.rows.length - 2000} more rows are in the file`));
}

function words(panel, section) {
  if (panel.preformatted) section.append(element("pre", { tabindex: 0 }, panel.lines.map(([tone, text]) => element("div", { class: `tone-${tone}` }, text || " "))));
  else section.append(element("ul", { class: "sentences" }, panel.lines.map(([tone, text]) => element("li", { class: `tone-${tone}` }, text))));
}
