// A canvas that is as sharp as the screen, redraws when its size or the theme changes, and knows the theme's colours.

const surfaces = new Set();
let palette = {};

function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const packed = (text) => {
    probe.fillStyle = text;
    probe.fillRect(0, 0, 1, 1);
    const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data;
    return (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
  };
  palette = { packed: {} };
  for (const name of ["paper", "panel", "ink", "soft", "line", "faint", "accent", "good", "bad", "cut", "cursor", "node", "proof"]) {
    palette[name] = style.getPropertyValue(`--${name}`).trim();
    palette.packed[name] = packed(palette[name]);
  }
  palette.chunk = [...Array(8).keys()].map((number) => style.getPropertyValue(`--c${number}`).trim());
  palette.packed.chunk = Uint32Array.from(palette.chunk, packed);
}

class Surface {
  // `draw(context, width, height)` in CSS pixels; `layers` canvases lie over one another.
  constructor(holder, draws) {
    this.holder = holder;
    holder.classList.add("surface");
    this.layers = draws.map((draw) => ({ canvas: element("canvas", { "aria-hidden": "true" }), draw }));
    holder.append(...this.layers.map((layer) => layer.canvas));
    this.width = this.height = 0;
    new ResizeObserver(() => this.resize()).observe(holder);
    surfaces.add(this);
  }
  resize() {
    const { clientWidth, clientHeight } = this.holder;
    if (!clientWidth || (clientWidth === this.width && clientHeight === this.height)) return;
    this.width = clientWidth;
    this.height = clientHeight;
    this.ratio = window.devicePixelRatio || 1;
    for (const { canvas } of this.layers) {
      canvas.width = Math.round(clientWidth * this.ratio);
      canvas.height = Math.round(clientHeight * this.ratio);
    }
    this.redraw();
  }
  redraw(which = -1) {
    if (!this.width) return;
    this.layers.forEach(({ canvas, draw }, number) => {
      if (which >= 0 && number !== which) return;
      const context = canvas.getContext("2d");
      context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      context.clearRect(0, 0, this.width, this.height);
      draw(context, this.width, this.height, this.ratio);
    });
  }
}
