// One panel: axes, bands, curves, crosshair with tooltip, zoom.

const MARGIN = { left: 44, right: 12, top: 8, bottom: 36 };
const HEIGHT = 250;
let clips = 0;

class Chart {
  /**
   * panel: its data. xLabel: of the x axis. dashes: of each color. hidden: set of the labels that are switched off.
   * shared: {x} the zoom of the row, with redraw() for all of it.
   */
  constructor(panel, { xLabel, dashes, hidden, shared, rowName }) {
    Object.assign(this, { panel, xLabel, dashes, hidden, shared });
    this.y = null;
    this.log = panel.log_y;
    // Where a number is on the x axis, and back: distances and zooms are measured there.
    this.along = panel.log_x ? Math.log10 : (x) => x;
    this.back = panel.log_x ? (at) => Math.pow(10, at) : (at) => at;
    this.whole = false; // whether the y axis shows the rise of the first epochs too
    this.pointers = new Map();
    this.clip = "clip" + clips++;
    this.plot = svg("svg", {
      class: "plot", tabindex: 0, role: "img",
      "aria-label": (rowName ? rowName + ", " : "") + panel.title + " by " + xLabel +
        ". Arrow keys read values, + and - zoom, Escape resets.",
    });
    this.tip = element("div", { class: "tip", role: "status" });
    this.tip.hidden = true;
    const title = element("h4", {}, panel.title);
    this.host = element("div", { class: "panel" }, title, this.plot, this.tip);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.host);
  }

  get curves() {
    return this.panel.curves.filter((curve) => !this.hidden.has(curve.label));
  }

  get zoomed() {
    return this.y !== null || this.shared.x !== null;
  }

  /** All x of the panel, also of hidden curves, so that switching one off does not move the others. */
  fullX() {
    const all = this.panel.curves.flatMap((curve) => curve.x);
    const low = this.xLabel === "epoch" || this.panel.kind === "plain" ? Math.min(...all) : 0;
    const high = Math.max(...all);
    if (this.panel.log_x) return high > low ? [low, high] : [low / 2, low * 2];
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
    const floor = this.panel.floor;
    if (floor !== null && !this.whole && this.shared.x === null && floor < high) low = Math.max(low, floor);
    if (this.log && low > 0) return [low / 1.1, high * 1.1];
    const room = (high - low) * 0.05 || Math.abs(high) * 0.05 || 0.05;
    const top = this.panel.kind === "accuracy" ? 1 : Infinity;
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
    for (const curve of this.curves) inside.append(this.band(curve));
    for (const curve of this.curves) inside.append(this.line(curve), ...this.dots(curve));
    this.cross = svg("g", { class: "cross" });
    this.frame = svg("rect", { class: "frame" });
    this.frame.style.display = "none";
    this.plot.append(this.cross, this.frame);
  }

  drawAxes(x, y) {
    const bottom = HEIGHT - MARGIN.bottom;
    const right = this.width - MARGIN.right;
    const across = this.panel.log_x ? logTicks(x[0], x[1])
      : linearTicks(x[0], x[1], Math.max(3, this.width / 75), this.xLabel === "epoch");
    const percent = this.panel.kind === "accuracy";
    const up = this.log && y[0] > 0 ? logTicks(y[0], y[1])
      : percent ? linearTicks(100 * y[0], 100 * y[1], 7, false) : linearTicks(y[0], y[1], 7, false);
    for (const tick of up.values) {
      const at = this.sy(percent ? tick / 100 : tick);
      this.plot.append(svg("line", { x1: MARGIN.left, x2: right, y1: at, y2: at, class: "grid" }));
      this.plot.append(svg("text", { x: MARGIN.left - 6, y: at + 4, class: "tick end" }, up.write(tick) + (percent ? "%" : "")));
    }
    for (const tick of across.values) {
      const at = this.sx(tick);
      this.plot.append(svg("line", { x1: at, x2: at, y1: bottom, y2: bottom + 4, class: "axis" }));
      this.plot.append(svg("text", { x: at, y: bottom + 16, class: "tick" }, across.write(tick)));
    }
    this.plot.append(svg("line", { x1: MARGIN.left, x2: right, y1: bottom, y2: bottom, class: "axis" }));
    const middle = (MARGIN.left + right) / 2;
    this.plot.append(svg("text", { x: middle, y: HEIGHT - 4, class: "tick" }, this.xLabel));
  }

  line(curve) {
    const color = "c" + (curve.color % 8);
    if (curve.x.length === 1) {
      const place = { cx: this.sx(curve.x[0]), cy: this.sy(curve.mean[0]), r: 3.5 };
      return svg("circle", { ...place, class: "dot " + color, "data-curve": curve.label });
    }
    const points = curve.x.map((x, i) => this.sx(x).toFixed(1) + " " + this.sy(curve.mean[i]).toFixed(1));
    return svg("path", { d: "M" + points.join("L"), ...look(curve, this.dashes), "data-curve": curve.label });
  }

  /** The points of a curve that has few of them, so that it is seen where something was measured. */
  dots(curve) {
    if (this.panel.kind !== "plain" || curve.reference || curve.x.length === 1 || curve.x.length > 40) return [];
    return curve.x.map((x, i) => svg("circle", {
      cx: this.sx(x), cy: this.sy(curve.mean[i]), r: 2.8, class: "dot c" + (curve.color % 8),
    }));
  }

  band(curve) {
    const at = (values) => curve.x.map((x, i) => this.sx(x).toFixed(1) + " " + this.sy(values[i]).toFixed(1));
    const d = "M" + at(curve.high).concat(at(curve.low).reverse()).join("L") + "Z";
    return svg("path", { d, class: "band c" + (curve.color % 8) });
  }

  /** Show what the curves are at the data point that is nearest to a pixel. */
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
      this.cross.append(svg("circle", { ...place, class: "dot " + (curve.reference ? "reference" : "c" + (curve.color % 8)) }));
    }
    found.sort((a, b) => b.curve.mean[b.i] - a.curve.mean[a.i]);
    this.showTip(found, x);
  }

  showTip(found, pixel) {
    const plain = this.panel.kind === "plain";
    const seconds = this.xLabel !== "epoch" && !plain;
    const rows = found.map(({ curve, i }) => {
      const runs = curve.runs[i] < Math.max(...curve.runs) ? " (" + curve.runs[i] + " of " + Math.max(...curve.runs) + " runs)" : "";
      const other = seconds || (plain && curve.x[i] !== this.at);
      const when = other ? " at " + Number(curve.x[i].toPrecision(3)) + (seconds ? " s" : "") : "";
      return element("tr", {},
        element("td", {}, swatch(curve, this.dashes)), element("td", {}, curve.label + when + runs),
        element("td", { class: "number" }, writeValue(curve.mean[i], this.panel.kind)),
        element("td", { class: "range" }, writeBand(curve.low[i], curve.high[i], this.panel.kind)));
    });
    const head = seconds ? Number(this.at.toPrecision(3)) + " s" : this.xLabel + " " + Number(this.at.toPrecision(6));
    this.tip.replaceChildren(element("strong", {}, head), element("table", {}, ...rows));
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
