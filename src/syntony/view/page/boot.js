// Unpacks the data, builds every view's panels and keeps them in step.

const RENDERERS = { Drawing: drawing, Timeline: timeline, Use: use, Curves: curves, Grid: grid, Words: words, Circle: circle };
const COLUMNS = { f8: Float64Array, f4: Float32Array, i8: BigInt64Array, i4: Int32Array, u4: Uint32Array, u1: Uint8Array };

async function unpacked() {
  const told = JSON.parse(document.getElementById("views").textContent);
  const text = document.getElementById("columns").textContent.trim();
  const packed = Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  const revived = (value) => {
    if (Array.isArray(value)) return value.map(revived);
    if (value === null || typeof value !== "object") return value;
    if ("$" in value) return new COLUMNS[value.$](buffer, value.at, value.n);
    for (const key of Object.keys(value)) value[key] = revived(value[key]);
    return value;
  };
  return revived(told);
}

const clockOf = (view) => view.panels.find((panel) => panel.motion)?.motion;

function article(view, number) {
  const body = element("article", { id: `view-${number}`, "aria-label": view.title });
  const panels = element("div", { class: "panels" });
  const answer = element("p", { class: "answer", role: "status", hidden: true });
  const asked = view.questions.map((question) => {
    const button = element("button", { "aria-pressed": "false", onclick: () => {
      for (const other of asked) other.setAttribute("aria-pressed", String(other === button));
      answer.textContent = question.answer;
      answer.hidden = false;
      const change = { ...question.state };
      if (typeof change.t === "number") change.t = change.t / (longest || 1);
      set(change);
      const panel = question.panel && panels.querySelector(`[data-title="${CSS.escape(question.panel)}"]`);
      if (panel) { panel.open?.(); panel.scrollIntoView({ block: "nearest" }); }
    } }, question.question);
    return button;
  });
  body.append(
    element("h1", {}, view.title),
    element("div", { class: "file" }, view.file),
    element("p", { class: `headline tone-${view.tone}` }, view.headline),
    element("dl", { class: "facts" }, view.facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))),
  );
  if (asked.length) body.append(element("div", { class: "questions", role: "group", "aria-label": "questions" }, asked), answer);
  body.append(panels);
  for (const panel of view.panels) {
    const tools = element("div", { class: "bar" }, element("h2", {}, panel.title));
    const section = element("section", { class: "panel", "data-title": panel.title, "aria-label": panel.title }, tools);
    panels.append(section);
    RENDERERS[panel.model](panel, section, tools, view);
    if (panel.words) section.append(element("p", { class: "words" }, panel.words));
  }
  return body;
}

let longest = 0, views = [];

function applyTheme() {
  const dark = state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  readPalette();
  for (const surface of surfaces) surface.redraw();
  document.dispatchEvent(new Event("theme"));
}

function header(told) {
  const top = document.getElementById("top");
  const tabs = element("nav", { role: "tablist", "aria-label": "files" });
  const names = views.map((view, number) => element("button", {
    role: "tab", "aria-selected": "false", onclick: () => set({ view: number }),
  }, view.title + (views.filter((other) => other.title === view.title).length > 1 ? `: ${view.file.split("/").pop()}` : "")));
  const beside = views.length > 1 ? element("button", { role: "tab", "aria-selected": "false", onclick: () => set({ view: -1 }) }, "side by side") : null;
  tabs.append(...(views.length > 1 ? [...names, beside] : []));
  const theme = element("button", { title: "light or dark (d)", "aria-label": "light or dark", onclick: toggleTheme }, "◐");
  top.append(element("strong", {}, views.length > 1 ? "" : views[0].kind), tabs, theme, element("button", { title: "keys (?)", "aria-label": "keys", onclick: help }, "?"));
  const show = () => {
    views.forEach((view, number) => {
      document.getElementById(`view-${number}`).hidden = state.view >= 0 && state.view !== number;
      names[number].setAttribute("aria-selected", String(state.view === number));
    });
    beside?.setAttribute("aria-selected", String(state.view < 0));
    document.querySelector(".views").classList.toggle("beside", state.view < 0);
    controls();
  };
  watch(["view"], show);
  return show;
}
const toggleTheme = () => set({ theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark" });

async function boot() {
  const began = performance.now();
  const told = await unpacked();
  views = told.views;
  longest = Math.max(0, ...views.map((view) => clockOf(view)?.seconds ?? 0));
  Object.assign(state, readHash());
  if (!location.hash && views.length > 1 && views.filter(clockOf).length === views.length && views.length === 2) state.view = -1;
  state.view = Math.min(state.view, views.length - 1);
  applyTheme();
  const main = document.getElementById("main");
  const show = header(told);
  main.replaceChildren(element("div", { class: "views" }, views.map(article)));
  show();
  watch(["theme"], applyTheme);
  watch(Object.keys(initial), writeHash);
  window.addEventListener("hashchange", () => set(readHash()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
  window.addEventListener("beforeprint", () => { document.documentElement.dataset.theme = "light"; readPalette(); surfaces.forEach((one) => one.redraw()); });
  window.addEventListener("afterprint", applyTheme);
  keys();
  if (told.watched) follow(told.watched);
  window.syntony = { state, set, flush, views, surfaces, timelines, ready: performance.now() - began };
  document.documentElement.dataset.ready = "yes";
}

// `syntony view --serve`: the page asks who serves it whether the files have changed.
async function follow(address) {
  let last = null;
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 1000));
    try {
      const now = await (await fetch(address)).text();
      if (last !== null && now !== last) location.reload();
      last = now;
    } catch { /* the server is gone or busy; the page stays as it is, and asks again */ }
  }
}

boot().catch((error) => {
  document.getElementById("main").replaceChildren(element("p", { class: "tone-bad" }, `The page could not be drawn: ${error.message}`));
  throw error;
});
