// The clock: play, scrub, steps or time, and what is followed. Keys.

let playing = 0, speed = 1;

const shownClocks = () => views.filter((view, number) => clockOf(view) && (state.view < 0 || state.view === number)).map(clockOf);

function stepsOf(motion) {
  return motion.stepCount ??= 1 + motion.step.reduce((most, step) => Math.max(most, step), -1);
}
// The cursor of one motion: in seconds, or in steps.
function cursorOf(motion) {
  if (state.mode === "steps") return state.t * Math.max(...shownClocks().map(stepsOf), 1);
  return state.t * longest;
}

function controls() {
  const clocks = shownClocks(), bar = document.getElementById("controls");
  bar.hidden = !clocks.length;
  if (!clocks.length) return;
  const play = element("button", { id: "play", title: "play or stop (space)", onclick: togglePlay }, "");
  const scrub = element("input", { type: "range", id: "scrub", min: 0, max: 1, step: 0.0005, "aria-label": "time", oninput: () => set({ t: +scrub.value }) });
  const told = element("output", { for: "scrub" });
  const mode = element("button", { title: "steps or time (s)", onclick: () => set({ mode: state.mode === "time" ? "steps" : "time" }) });
  const pace = element("select", { "aria-label": "speed", onchange: () => { speed = +pace.value; } },
    [[0.25, "¼×"], [1, "1×"], [4, "4×"]].map(([value, text]) => element("option", { value, selected: value === speed }, text)));
  const names = clocks[0].chunks;
  const chunk = element("select", { id: "chunk", "aria-label": "follow a chunk", onchange: () => set({ chunk: +chunk.value }) },
    element("option", { value: -1 }, "all chunks"), names.slice(0, 2000).map((name, number) => element("option", { value: number }, name)));
  const drawn = views.find((view) => clockOf(view) === clocks[0]).panels.find((panel) => panel.motion);
  const rank = element("select", { id: "rank", "aria-label": "follow a rank", onchange: () => set({ rank: +rank.value }) },
    element("option", { value: -1 }, "all ranks"), [...clocks[0].agents].slice(0, 4096).map((node) => element("option", { value: node }, rankName(drawn.names[node]))));
  bar.replaceChildren(play, element("button", { title: "a step back (,)", "aria-label": "back", onclick: () => nudge(-1) }, "‹"),
    element("button", { title: "a step on (.)", "aria-label": "on", onclick: () => nudge(1) }, "›"), scrub, told, mode, pace, chunk, rank);
  controls.show = () => {
    play.textContent = playing ? "❚❚ stop" : "▶ play";
    scrub.value = state.t;
    mode.textContent = state.mode === "time" ? "by time" : "by steps";
    chunk.value = state.chunk;
    rank.value = state.rank;
    const now = cursorOf(clocks[0]);
    told.textContent = state.mode === "time" ? `${seconds(now)} of ${seconds(longest)}` : `step ${Math.min(Math.floor(now), Math.max(...clocks.map(stepsOf)) - 1)} of ${Math.max(...clocks.map(stepsOf))}`;
  };
  controls.show();
}
watch(["t", "mode", "chunk", "rank"], () => controls.show?.());

function togglePlay() {
  if (playing) { cancelAnimationFrame(playing); playing = 0; controls.show?.(); return; }
  if (state.t >= 1) set({ t: 0 });
  let last = performance.now();
  const frame = (now) => {
    const next = state.t + speed * (now - last) / 8000;
    last = now;
    set({ t: Math.min(1, next) });
    playing = next < 1 ? requestAnimationFrame(frame) : 0;
    if (!playing) controls.show?.();
  };
  playing = requestAnimationFrame(frame);
  controls.show?.();
}

// To the next or the last moment at which something begins.
function nudge(direction) {
  const clocks = shownClocks();
  if (!clocks.length) return;
  if (state.mode === "steps") {
    const most = Math.max(...clocks.map(stepsOf), 1), now = state.t * most;
    set({ t: Math.max(0, Math.min(1, (direction > 0 ? Math.floor(now + 1e-6) + 1 : Math.ceil(now - 1e-6) - 1) / most)) });
    return;
  }
  const moments = clocks[0].moments ??= Float64Array.from(new Set([...clocks[0].start, clocks[0].seconds])).sort();
  const now = state.t * longest, gap = 1e-6 * longest;
  const at = direction > 0 ? above(moments, now + gap, 0, moments.length) : above(moments, now - gap, 0, moments.length) - 1;
  set({ t: Math.max(0, Math.min(1, (moments[Math.max(0, Math.min(at, moments.length - 1))] ?? 0) / longest)) });
}

function keys() {
  const actions = {
    " ": togglePlay, ",": () => nudge(-1), ".": () => nudge(1), "[": () => nudge(-1), "]": () => nudge(1),
    Home: () => set({ t: 0 }), End: () => set({ t: 1 }), d: toggleTheme, s: () => set({ mode: state.mode === "time" ? "steps" : "time" }),
    Escape: () => set({ chunk: -1, rank: -1, link: -1, highlight: -1 }), "?": help,
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("select, input:not([type=range]), dialog")) return;
    if (event.key === " " && event.target.closest("button, a")) return;
    if (/^[1-9]$/.test(event.key)) { if (views.length > 1) set({ view: Math.min(+event.key, views.length) - 1 }); return; }
    if (event.key === "0" && views.length > 1) return set({ view: -1 });
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function help() {
  const box = document.getElementById("help");
  const rows = [["space", "play or stop"], [", .", "go to the previous or next event"], ["Home End", "go to the beginning or end"],
    ["s", "switch between time and steps"], ["d", "switch between light and dark"], ["1 2 .. 0", "show one file; show all side by side"], ["Esc", "end the selection"],
    ["+ - ← →", "zoom and pan in a chart or drawing (also: Ctrl with the wheel, dragging; double click: show all)"]];
  box.replaceChildren(element("h2", {}, "keys"), element("table", {}, rows.map(([key, what]) => element("tr", {}, element("td", {}, element("kbd", {}, key)), element("td", {}, what)))),
    element("form", { method: "dialog" }, element("p", {}, element("button", {}, "close"))));
  box.showModal();
}
