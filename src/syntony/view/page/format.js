// Numbers as people read them, and elements of the page.

function scaled(value, steps, digits = 4) {
  for (const [unit, size] of steps) if (Math.abs(value) >= size) return `${+(value / size).toPrecision(digits)} ${unit}`;
  const [unit, size] = steps[steps.length - 1];
  return `${+(value / size).toPrecision(digits)} ${unit}`;
}
const seconds = (value, digits) => value === 0 ? "0" : scaled(value, [["s", 1], ["ms", 1e-3], ["us", 1e-6], ["ns", 1e-9]], digits);
const rate = (value) => scaled(value, [["TB/s", 1e12], ["GB/s", 1e9], ["MB/s", 1e6], ["kB/s", 1e3], ["B/s", 1]]);
const bytes = (value) => scaled(value, [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 1024], ["B", 1]]);
const number = (value) => String(+value.toPrecision(5));
const percent = (value) => `${(100 * value).toFixed(1)} %`;
const ratio = (value) => number(value);
const WORDING = { seconds, rate, bytes, number, ratio };

// An element with attributes (`on..` are listeners) and children.
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child != null));
  return made;
}
const rankName = (name) => /^\d+$/.test(name) ? `rank ${name}` : name.replace(/^rank(\d+)$/, "rank $1");
const shortName = (name) => name.replace(/^rank\s?(?=\d)/, "");

// The first index in [low, high) at which column[index] > value; columns ascend.
function above(column, value, low, high) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] > value) high = middle; else low = middle + 1;
  }
  return low;
}

function tip(event, text) {
  const box = document.getElementById("tip");
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  const { innerWidth, innerHeight } = window;
  box.style.left = `${Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8)}px`;
  box.style.top = `${event.clientY + 18 + box.offsetHeight > innerHeight ? event.clientY - box.offsetHeight - 10 : event.clientY + 18}px`;
}
