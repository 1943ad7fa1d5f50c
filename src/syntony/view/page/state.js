// What the page shows, shared by all panels and both sides of a comparison; it is the #hash, so that a link leads here.
//
//   view    the tab                        t      the cursor, a share of the longest clock (0..1)
//   chunk, rank, link, highlight   what is followed, -1: nothing
//   mode    "time" or "steps"              theme  "light", "dark" or "" (the system's)

const state = { view: 0, t: 0, chunk: -1, rank: -1, link: -1, highlight: -1, mode: "time", theme: "", asked: "" };
const initial = { ...state };
const listeners = new Set();
let changed = new Set(), scheduled = false;

function set(changes) {
  for (const [key, value] of Object.entries(changes)) {
    if (!(key in state) || state[key] === value) continue;
    state[key] = value;
    changed.add(key);
  }
  if (!changed.size || scheduled) return;
  scheduled = true;
  requestAnimationFrame(flush);
}
function flush() {
  scheduled = false;
  const keys = changed;
  changed = new Set();
  for (const listener of listeners) listener(keys);
}
function watch(keys, action) {
  listeners.add((found) => { if (keys.some((key) => found.has(key))) action(found); });
}

function readHash() {
  const found = { ...initial };
  for (const [key, text] of new URLSearchParams(location.hash.slice(1))) {
    if (key in initial) found[key] = typeof initial[key] === "number" && Number.isFinite(+text) ? +text : text;
  }
  return found;
}
let pending = 0;
function writeHash() {
  clearTimeout(pending);
  pending = setTimeout(() => {
    const kept = Object.entries(state).filter(([key, value]) => value !== initial[key]);
    const text = new URLSearchParams(kept.map(([key, value]) => [key, key === "t" ? value.toFixed(5) : value])).toString();
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  }, 200);
}
