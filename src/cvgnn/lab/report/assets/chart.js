// One panel: axes, bands, curves, crosshair with tooltip, zoom.

const MARGIN = { left: 44, right: 12, top: 8, bottom: 36 };
const HEIGHT = 250;
let clips = 0;

class PanelView {
  /**
   * panel: the data. xLabel: label of the x axis. dashes: all patterns. hidden: labels of the curves switched off.
   * shared: {x}, the zoom of the row, with redraw() and reset() for the whole row.
   */
  constructor(panel, { xLabel, dashes, hidden, shared, rowName }) {
    Object.assign(this, { panel, xLabel: panel.x_label || xLabel, dashes, hidden, shared });
    this.plain = panel.kind === "plain"; // a diagnosis: its texts are typeset
    this.y = null;
    this.log = panel.log_y;
    // Where a number is on the x axis, and back: distances and zooms are measured there.
    this.along = panel.log_x ? Math.log10 : (x) => x;
    this.back = panel.log_x ? (at) => Math.pow(10, at) : (at) => at;
    this.whole = false; // whether the y axis shows the steep first epochs too
    this.pointers = new Map();
    this.clip = "clip" + clips++;
    this.plot = svg("svg", {
      class: "plot", tabindex: 0, role: "img",
      "aria-label": (rowName ? rowName + ", " : "") + panel.title + " by " + this.xLabel +
        ". Arrow keys read values, + and - zoom, Escape resets.",
    });
    this.tip = element("div", { class: "tip", role: "status" });
    this.tip.hidden = true;
    const title = element("h4", {}, ...(this.plain ? typeset(panel.title) : [panel.title]));
    const note = panel.note ? [element("p", { class: "note" }, ...(this.plain ? typeset(panel.note) : [panel.note]))] : [];
    this.host = element("div", { class: "panel" }, title, this.plot, this.tip, ...note);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.host);
  }

  /** The visible curves; a dashed one is drawn after, and so above, a solid one that it may coincide with. */
  get curves() {
    const dash = (curve) => curve.style[1];
    return this.panel.curves.filter((curve) => !this.hidden.has(curve.label)).sort((a, b) => dash(a) - dash(b));
  }

  get zoomed() {
    return this.y !== null || this.shared.x !== null;
  }

  /** All x of the panel, also of hidden curves, so that switching one off does not move the others. */
  fullX() {
    const all = this.panel.curves.flatMap((curve) => curve.x);
    const low = this.xLabel === "epoch" || this.plain || this.panel.points ? Math.min(...all) : 0;
    const high = Math.max(...all);
    if (this.panel.x_ticks.length) return [-0.5, this.panel.x_ticks.length - 0.5];
    const room = this.panel.points ? 0.04 : 0; // points at the ends are not cut
    if (this.panel.log_x) return high > low ? [low * Math.pow(low / high, room), high * Math.pow(high / low, room)] : [low / 2, low * 2];
    if (room && high > low) return [low - room * (high - low), high + room * (high - low)];
    return high > low ? [low, high] : [low - 0.5, low + 0.5];
  }

  /** The y range of the visible curves between two x. */
  fullY([from, to]) {
    let low = Infinity;
    let high = -Infinity;
    for (const curve of this.curves) {
      curve.x.forEach((x, i) => {
        if (x >= from && x <= to) {
          // On a logarithmic axis an interval that reaches to zero must not press all else together.
          low = Math.min(low, this.log ? Math.max(curve.low[i], curve.mean[i] / 10) : curve.low[i]);
          high = Math.max(high, this.log ? Math.min(curve.high[i], curve.mean[i] * 10) : curve.high[i]);
        }
      });
    }
    if (low > high) [low, high] = [0, 1];
    const span = this.panel.span;
    if (span && !this.whole && this.shared.x === null) {
      const cut = [Math.max(low, span[0]), Math.min(high, span[1])];
      if (cut[0] < cut[1]) [low, high] = cut;
    }
    if (this.log && low > 0) return [low / 1.1, high * 1.1];
    const room = (high - low) * 0.05 || Math.abs(high) * 0.05 || 0.05;
    const top = this.panel.kind === "percent" ? 1 : Infinity;
    return [Math.max(low - room, low >= 0 ? 0 : -Infinity), Math.max(Math.min(high + room, top), high)];
  }

  draw() {
    const width = Math.max(220, Math.floor(this.plot.clientWidth || this.host.clientWidth));
    this.plot.setAttribute("viewBox", "0 0 " + width + " " + HEIGHT);
    this.plot.replaceChildren();
    this.width = width;
    if (this.panel.curves.length === 0) {
      this.plot.append(svg("text", { x: width / 2, y: HEIGHT / 2, class: "empty" }, "not measured"));
      return;
    }
    const x = this.shared.x || this.fullX();
    const y = this.y || this.fullY(x);
    this.sx = makeScale(x[0], x[1], MARGIN.left, width - MARGIN.right, this.panel.log_x);
    this.sy = makeScale(y[0], y[1], HEIGHT - MARGIN.bottom, MARGIN.top, this.log && y[0] > 0);
    this.drawAxes(x, y);
    const inside = svg("g", { "clip-path": "url(#" + this.clip + ")" });
    const box = { x: MARGIN.left, y: MARGIN.top, width: width - MARGIN.left - MARGIN.right };
    const area = svg("rect", { ...box, height: HEIGHT - MARGIN.top - MARGIN.bottom });
    this.plot.append(svg("clipPath", { id: this.clip }, area), inside);
    for (const curve of this.panel.points ? [] : this.curves) inside.append(this.band(curve));
    for (const curve of this.curves) inside.append(...(this.panel.points ? this.scatter(curve) : [this.line(curve), ...this.dots(curve)]));
    this.cross = svg("g", { class: "cross" });
    this.frame = svg("rect", { class: "frame" });
    this.frame.style.display = "none";
    this.plot.append(this.cross, this.frame);
  }

  drawAxes(x, y) {
    const bottom = HEIGHT - MARGIN.bottom;
    const right = this.width - MARGIN.right;
    const names = this.panel.x_ticks;
    const across = names.length ? { values: names.map((_, i) => i).filter((i) => i >= x[0] && i <= x[1]), write: (i) => names[i] }
      : this.panel.log_x ? logTicks(x[0], x[1])
      : linearTicks(x[0], x[1], Math.max(3, this.width / 75), this.xLabel === "epoch");
    const percent = this.panel.kind === "percent";
    const up = this.log && y[0] > 0 ? logTicks(y[0], y[1])
      : percent ? linearTicks(100 * y[0], 100 * y[1], 7, false) : linearTicks(y[0], y[1], 7, false);
    for (const tick of up.values) {
      const at = this.sy(percent ? tick / 100 : tick);
      this.plot.append(svg("line", { x1: MARGIN.left, x2: right, y1: at, y2: at, class: "grid" }));
      this.plot.append(typesetLabel({ x: MARGIN.left - 6, y: at + 4, class: "tick end" }, up.write(tick) + (percent ? "%" : "")));
    }
    for (const tick of across.values) {
      const at = this.sx(tick);
      this.plot.append(svg("line", { x1: at, x2: at, y1: bottom, y2: bottom + 4, class: "axis" }));
      this.plot.append(typesetLabel({ x: at, y: bottom + 16, class: "tick" }, across.write(tick)));
    }
    this.plot.append(svg("line", { x1: MARGIN.left, x2: right, y1: bottom, y2: bottom, class: "axis" }));
    const middle = (MARGIN.left + right) / 2;
    const label = { x: middle, y: HEIGHT - 4, class: "tick" };
    this.plot.append(this.plain ? typesetLabel(label, this.xLabel) : svg("text", label, this.xLabel));
  }

  line(curve) {
    if (curve.x.length === 1) {
      const place = { cx: this.sx(curve.x[0]), cy: this.sy(curve.mean[0]), r: 3.5 };
      return svg("circle", { ...place, class: "dot " + colorClass(curve), "data-curve": curve.label });
    }
    const points = curve.x.map((x, i) => this.sx(x).toFixed(1) + " " + this.sy(curve.mean[i]).toFixed(1));
    return svg("path", { d: "M" + points.join("L"), ...lineStyle(curve, this.dashes), "data-curve": curve.label });
  }

  /**
   * Markers: of a diagnosis with few points one at each, for they show where something was measured; else a few, at other
   * places for every curve, so that coinciding curves can be told apart.
   */
  dots(curve) {
    if (curve.reference || curve.x.length === 1) return [];
    const few = this.plain && curve.x.length <= 40;
    const [from, to] = (this.shared.x || this.fullX()).map(this.along);
    const wanted = [0, 1, 2, 3].map((k) => from + ((to - from) * (k + 0.1 + ((3 * curve.style[0] + curve.style[1]) % 8) / 10)) / 4);
    const nearest = (at) => curve.x.reduce((best, x, i) =>
      (Math.abs(this.along(x) - at) < Math.abs(this.along(curve.x[best]) - at) ? i : best), 0);
    const places = few ? curve.x.keys() : new Set(wanted.map(nearest));
    return [...places].map((i) => marker(curve, this.sx(curve.x[i]), this.sy(curve.mean[i]), few ? 2.8 : 3.4));
  }

  /** The points of a scatter plot, with a bar from the lowest to the highest run. */
  scatter(curve) {
    const bars = curve.x.map((x, i) => svg("path", {
      d: "M" + this.sx(x) + " " + this.sy(curve.low[i]) + "V" + this.sy(curve.high[i]), class: "curve thin " + colorClass(curve),
    }));
    const points = curve.x.map((x, i) => marker(curve, this.sx(x), this.sy(curve.mean[i]), 4));
    for (const point of points) point.setAttribute("data-curve", curve.label);
    return [...bars, ...points];
  }

  band(curve) {
    const at = (values) => curve.x.map((x, i) => this.sx(x).toFixed(1) + " " + this.sy(values[i]).toFixed(1));
    const d = "M" + at(curve.high).concat(at(curve.low).reverse()).join("L") + "Z";
    return svg("path", { d, class: "band c" + curve.style[0] });
  }

  /** Show the values of the curves at the data point nearest to a pixel. */
  read(pixel) {
    if (!this.sx || this.curves.length === 0) return;
    const wanted = this.along(this.sx.invert(pixel));
    const away = (x) => Math.abs(this.along(x) - wanted);
    const [from, to] = this.shared.x || this.fullX();
    const near = (curve) => curve.x.reduce((best, x, i) => {
      const there = x >= from && x <= to;
      return there && (best < 0 || away(x) < away(curve.x[best])) ? i : best;
    }, -1);
    const found = this.curves.map((curve) => ({ curve, i: near(curve) })).filter((one) => one.i >= 0);
    if (found.length === 0) return;
    const closest = found.reduce((a, b) => (away(b.curve.x[b.i]) < away(a.curve.x[a.i]) ? b : a));
    this.at = closest.curve.x[closest.i];
    const x = this.sx(this.at);
    this.cross.replaceChildren(svg("line", { x1: x, x2: x, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }));
    for (const { curve, i } of found) {
      const place = { cx: this.sx(curve.x[i]), cy: this.sy(curve.mean[i]), r: 3 };
      this.cross.append(svg("circle", { ...place, class: "dot " + colorClass(curve) }));
    }
    found.sort((a, b) => b.curve.mean[b.i] - a.curve.mean[a.i]);
    this.showTip(found, x);
  }

  showTip(found, pixel) {
    const plain = this.plain || this.panel.points;
    const named = this.panel.x_ticks;
    const seconds = this.xLabel !== "epoch" && !plain;
    const rows = found.map(({ curve, i }) => {
      const runs = curve.runs[i] < Math.max(...curve.runs) ? " (" + curve.runs[i] + " of " + Math.max(...curve.runs) + " runs)" : "";
      const other = seconds || (plain && curve.x[i] !== this.at);
      const when = other ? " at " + (named[curve.x[i]] ?? Number(curve.x[i].toPrecision(3))) + (seconds ? " s" : "") : "";
      const label = this.plain ? typeset(curve.label) : [curve.label];
      return element("tr", {},
        element("td", {}, swatch(curve, this.dashes)), element("td", {}, ...label, when + runs),
        element("td", { class: "number" }, writeValue(curve.mean[i], this.panel.kind)),
        element("td", { class: "range" }, writeBand(curve.low[i], curve.high[i], this.panel.kind)));
    });
    const head = seconds ? Number(this.at.toPrecision(3)) + " s" : this.xLabel + " " + (named[this.at] ?? Number(this.at.toPrecision(this.panel.points ? 3 : 6)));
    this.tip.replaceChildren(element("strong", {}, ...(this.plain ? typeset(head) : [head])), element("table", {}, ...rows));
    this.tip.classList.toggle("many", found.length > 5);
    this.tip.hidden = false;
    const place = this.plot.getBoundingClientRect();
    const scale = place.width / this.width;
    const left = place.left + pixel * scale;
    const width = this.tip.offsetWidth;
    const room = document.documentElement.clientWidth;
    let x = left + 14 + width < room ? left + 14 : left - 14 - width;
    x = Math.max(4, Math.min(x, room - width - 4));
    const host = this.host.getBoundingClientRect();
    this.tip.style.left = x - host.left + "px";
    this.tip.style.top = this.tipTop(found, place, scale, room < 640) - host.top + "px";
  }

  /** Where the tooltip hides no curve: below the panel on a phone, else in the half that the curves are not in. */
  tipTop(found, place, scale, phone) {
    const tall = this.tip.offsetHeight;
    if (phone) return place.bottom + tall < document.documentElement.clientHeight ? place.bottom : place.top - tall;
    const middle = found.reduce((sum, { curve, i }) => sum + this.sy(curve.mean[i]), 0) / found.length;
    return middle < HEIGHT / 2 ? place.bottom - MARGIN.bottom * scale - tall - 6 : place.top + MARGIN.top * scale;
  }

  forget() {
    this.tip.hidden = true;
    this.at = null;
    if (this.cross) this.cross.replaceChildren();
  }
}
