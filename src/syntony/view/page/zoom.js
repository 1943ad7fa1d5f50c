// Zoom and pan of one axis (`low`..`high`) or two; by buttons, keys, drag, and the wheel with Ctrl.

class Span {
  constructor(low, high, redraw) {
    Object.assign(this, { least: low, most: high, low, high, redraw });
  }
  zoom(factor, at = (this.low + this.high) / 2) {
    const width = Math.max((this.most - this.least) * 1e-7, Math.min(this.most - this.least, (this.high - this.low) * factor));
    const share = (at - this.low) / (this.high - this.low);
    this.to(at - share * width, width);
  }
  pan(by) { this.to(this.low + by, this.high - this.low); }
  to(low, width) {
    this.low = Math.max(this.least, Math.min(this.most - width, low));
    this.high = this.low + width;
    this.redraw();
  }
  reset() { this.to(this.least, this.most - this.least); }
}
