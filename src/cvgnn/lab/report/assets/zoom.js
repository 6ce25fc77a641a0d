// Zoom and read a panel with mouse, touch and keys.

PanelView.prototype.listen = function () {
  const on = (name, handle) => this.plot.addEventListener(name, handle);
  on("pointerdown", (event) => this.press(event));
  on("pointermove", (event) => this.move(event));
  on("pointerup", (event) => this.release(event));
  on("pointercancel", (event) => this.release(event));
  on("pointerleave", (event) => { if (event.pointerType === "mouse" && !this.drag) this.forget(); });
  on("dblclick", () => this.reset());
  on("keydown", (event) => this.key(event));
  on("blur", () => this.forget());
};

/** Where in the drawing an event is, kept inside the axes. */
PanelView.prototype.place = function (event) {
  const box = this.plot.getBoundingClientRect();
  const scale = this.width / box.width;
  const inside = (value, low, high) => Math.max(low, Math.min(high, value));
  return {
    x: inside((event.clientX - box.left) * scale, MARGIN.left, this.width - MARGIN.right),
    y: inside((event.clientY - box.top) * scale, MARGIN.top, HEIGHT - MARGIN.bottom),
  };
};

PanelView.prototype.press = function (event) {
  if (!this.sx || (event.pointerType === "mouse" && event.button !== 0)) return;
  const here = this.place(event);
  this.pointers.set(event.pointerId, here);
  if (event.pointerType === "touch") {
    if (this.pointers.size === 2) {
      this.forget();
      this.pinch = [...this.pointers.values()].map((p) => this.along(this.sx.invert(p.x))).sort((a, b) => a - b);
    } else this.read(here.x);
    return;
  }
  this.plot.setPointerCapture(event.pointerId);
  this.drag = here;
};

PanelView.prototype.move = function (event) {
  if (!this.sx) return;
  const here = this.place(event);
  if (event.pointerType === "touch") {
    if (!this.pointers.has(event.pointerId)) return;
    this.pointers.set(event.pointerId, here);
    if (this.pointers.size === 2) this.spread();
    else this.read(here.x);
  } else if (this.drag) this.mark(this.drag, here);
  else this.read(here.x);
};

PanelView.prototype.release = function (event) {
  const from = this.drag;
  this.pointers.delete(event.pointerId);
  this.pinch = this.pointers.size < 2 ? null : this.pinch;
  this.drag = null;
  if (!from || event.type === "pointercancel") return;
  this.frame.style.display = "none";
  const to = this.place(event);
  if (Math.abs(to.x - from.x) < 6) return;
  const tall = Math.abs(to.y - from.y) > 24;
  const sorted = (a, b) => (a < b ? [a, b] : [b, a]);
  const y = tall ? sorted(this.sy.invert(from.y), this.sy.invert(to.y)) : null;
  this.zoom(sorted(this.sx.invert(from.x), this.sx.invert(to.x)), y);
};

/** The frame that is being drawn: both directions if it is tall, else x only. */
PanelView.prototype.mark = function (from, to) {
  this.forget();
  const tall = Math.abs(to.y - from.y) > 24;
  const box = {
    x: Math.min(from.x, to.x), width: Math.abs(to.x - from.x),
    y: tall ? Math.min(from.y, to.y) : MARGIN.top,
    height: tall ? Math.abs(to.y - from.y) : HEIGHT - MARGIN.top - MARGIN.bottom,
  };
  for (const [name, value] of Object.entries(box)) this.frame.setAttribute(name, value);
  this.frame.style.display = "";
};

/** Two fingers: the x that were under them stay under them. */
PanelView.prototype.spread = function () {
  const [a, b] = [...this.pointers.values()].map((p) => p.x).sort((p, q) => p - q);
  if (!this.pinch || b - a < 12) return;
  const unit = (this.pinch[1] - this.pinch[0]) / (b - a);
  const from = this.pinch[0] - (a - MARGIN.left) * unit;
  this.zoom([from, from + (this.width - MARGIN.left - MARGIN.right) * unit].map(this.back), null);
};

PanelView.prototype.zoom = function (x, y) {
  const [low, high] = this.fullX().map(this.along);
  const [a, b] = x.map(this.along);
  const span = Math.min(b - a, high - low);
  if (!(span > (high - low) / 1e4)) return;
  const from = Math.max(low, Math.min(a, high - span)); // at the edges the view moves instead of shrinking
  this.shared.x = span >= (high - low) * (1 - 1e-9) ? null : [from, from + span].map(this.back);
  this.y = y;
  this.forget();
  this.shared.redraw();
};

PanelView.prototype.reset = function () {
  this.forget();
  this.shared.reset();
};

PanelView.prototype.key = function (event) {
  if (!this.sx || event.ctrlKey || event.metaKey || event.altKey) return;
  const [from, to] = this.shared.x || this.fullX();
  const [left, right] = [this.along(from), this.along(to)];
  const at = this.at === null || this.at === undefined ? this.back((left + right) / 2) : this.at;
  const xs = [...new Set(this.curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
  const around = (half) => [this.along(at) - half, this.along(at) + half].map(this.back);
  const near = (wanted) => this.read(this.sx(wanted));
  const todo = {
    ArrowRight: () => near(xs.find((x) => x > at && x <= to) ?? at),
    ArrowLeft: () => near(xs.findLast((x) => x < at && x >= from) ?? at),
    "+": () => this.zoom(around((right - left) / 4), null),
    "-": () => this.zoom(around(right - left), null),
    Escape: () => this.reset(),
  }[event.key];
  if (!todo) return;
  event.preventDefault();
  todo();
};
