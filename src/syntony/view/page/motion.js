// Messages at the cursor: a disc per message on its way, the link under it lit; and who holds what then.

const followed = (motion, message) => (state.chunk < 0 || motion.chunk[message] === state.chunk) && (state.rank < 0 || motion.src[message] === state.rank || motion.dst[message] === state.rank);

// When message m begins and ends on the cursor's axis.
const begins = (motion, message) => state.mode === "steps" ? motion.step[message] : motion.start[message];
const ends = (motion, message) => state.mode === "steps" ? motion.step[message] + 1 : motion.arrival[message];

function motionLayer(panel, geometry) {
  const motion = panel.motion;
  // `between` draws what lies over the links, and under the discs.
  return (context, pixel, between) => {
    const now = cursorOf(motion), shown = [];
    for (let message = 0; message < motion.chunk.length; message++) {
      if (begins(motion, message) <= now && ends(motion, message) > now && followed(motion, message)) shown.push(message);
    }
    // What is followed leaves its trace: the links that it has taken until now.
    if (state.chunk >= 0) {
      context.beginPath();
      for (let message = 0; message < motion.chunk.length; message++) {
        if (motion.chunk[message] !== state.chunk || begins(motion, message) > now) continue;
        for (let at = motion.path_offset[message]; at < motion.path_offset[message + 1]; at++) geometry.trace(context, motion.path[at]);
      }
      context.strokeStyle = palette.chunk[state.chunk % 8];
      context.lineWidth = 4 * pixel;
      context.globalAlpha = 0.55;
      context.stroke();
      context.globalAlpha = 1;
    }
    const many = shown.length > 600, size = many ? Math.max(2.5 * pixel, 4) : Math.max(9, 5 * pixel);
    panel.shown = shown.length;
    if (!many) {
      context.lineWidth = 2.5 * pixel;
      context.globalAlpha = 0.5;
      for (const message of shown) {
        context.beginPath();
        for (let at = motion.path_offset[message]; at < motion.path_offset[message + 1]; at++) geometry.trace(context, motion.path[at]);
        context.strokeStyle = palette.chunk[motion.chunk[message] % 8];
        context.stroke();
      }
      context.globalAlpha = 1;
    }
    if (shown.length || state.chunk >= 0) between();
    context.font = "10px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    const every = Math.ceil(shown.length / 6000);
    for (let place = 0; place < shown.length; place += every) {
      const message = shown[place], first = motion.path_offset[message], hops = motion.path_offset[message + 1] - first;
      if (!hops) continue;
      const begin = begins(motion, message), share = Math.min(0.9999, (now - begin) / (ends(motion, message) - begin || 1));
      const hop = Math.floor(share * hops), spot = geometry.at(motion.path[first + hop], share * hops - hop);
      context.beginPath();
      if (motion.adds[message]) context.rect(spot.x - size, spot.y - size, 2 * size, 2 * size); else context.arc(spot.x, spot.y, size, 0, 7);
      context.fillStyle = palette.chunk[motion.chunk[message] % 8];
      context.fill();
      if (many) continue;
      context.strokeStyle = palette.panel;
      context.lineWidth = 1.5 * pixel;
      context.stroke();
      context.fillStyle = palette.panel;
      context.fillText(motion.chunks[motion.chunk[message]].match(/\d+/)?.[0] ?? "", spot.x, spot.y + 0.5);
    }
  };
}

// The share of each chunk, or of its sum, that each agent has at the cursor: Float32 (agents, chunks).
function heldAt(panel) {
  const motion = panel.motion, chunks = motion.chunks.length, now = cursorOf(motion);
  const row = panel.agentRow ??= Object.fromEntries([...motion.agents].map((node, at) => [node, at]));
  const key = `${state.mode} ${now}`;
  if (panel.held?.key === key) return panel.held.share;
  const share = new Float32Array(motion.agents.length * chunks);
  for (let at = 0; at < motion.holders.length; at++) share[row[motion.holders[at]] * chunks + motion.held[at]] = motion.initial[at];
  for (let message = 0; message < motion.chunk.length; message++) {
    const begin = begins(motion, message), end = ends(motion, message);
    if (begin >= now) continue;
    const at = row[motion.dst[message]] * chunks + motion.chunk[message];
    // What is on its way comes slice by slice.
    const there = end <= now + 1e-12 * motion.seconds ? 1 : 0.99 * (now - begin) / (end - begin);
    share[at] = Math.max(share[at], there * motion.share[message]);
  }
  panel.held = { key, share };
  return share;
}
function heldWords(panel, node) {
  const chunks = panel.motion.chunks.length, row = (heldAt(panel), panel.agentRow[node]);
  if (row === undefined) return "";
  const own = panel.held.share.subarray(row * chunks, (row + 1) * chunks);
  return `at the cursor it has ${own.filter((share) => share >= 0.999).length} of ${chunks} chunks whole${own.some((share) => share > 0 && share < 0.999) ? ", and partial sums of others" : ""}`;
}
