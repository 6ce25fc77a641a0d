// A parallel-coordinates plot: a vertical axis for each option, a line for each setting.

const PARALLEL = { side: 44, top: 56, bottom: 14, height: 330 };

class ParallelView {
  /** panel: axes with ticks, and lines from the worst to the best; positions are shares of an axis. */
  constructor(panel, rowName) {
    this.panel = panel;
    this.zoomed = false;
    this.plot = svg("svg", {
      class: "plot", tabindex: 0, role: "img",
      "aria-label": (rowName ? rowName + ", " : "") + "settings in parallel coordinates: " +
        panel.axes.map((axis) => axis.name).join(", ") + ". Arrow keys read the settings, the best first.",
    });
    this.tip = element("div", { class: "tip", role: "status" });
    this.tip.hidden = true;
    this.host = element("div", { class: "panel parallel" }, this.plot, this.tip);
    this.plot.addEventListener("pointermove", (event) => this.point(event));
    this.plot.addEventListener("pointerdown", (event) => this.point(event));
    this.plot.addEventListener("pointerleave", () => this.forget());
    this.plot.addEventListener("blur", () => this.forget());
    this.plot.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.host);
  }

  draw() {
    const { side, top, bottom, height } = PARALLEL;
    const width = Math.max(220, Math.floor(this.plot.clientWidth || this.host.clientWidth));
    const axes = this.panel.axes;
    this.x = axes.map((_, i) => side + (i * (width - 2 * side)) / Math.max(1, axes.length - 1));
    this.y = (share) => height - bottom - share * (height - top - bottom);
    this.width = width;
    this.plot.setAttribute("viewBox", "0 0 " + width + " " + height);
    this.paths = this.panel.lines.map((line) => svg("path", {
      d: "M" + line.at.map((share, i) => this.x[i].toFixed(1) + " " + this.y(share).toFixed(1)).join("L"),
      class: "setting" + (line.best ? " winner" : ""), style: "--share:" + line.share,
    }));
    this.lines = svg("g", {}, ...this.paths);
    this.plot.replaceChildren(this.lines, ...axes.flatMap((axis, i) => this.axis(axis, this.x[i])));
  }

  axis(axis, x) {
    const line = svg("line", { x1: x, x2: x, y1: this.y(0), y2: this.y(1), class: "axis" });
    const end = x > this.width / 2; // labels of the right half stand to the left of their axis, inside the drawing
    const ticks = axis.ticks.flatMap(([share, text]) => [
      svg("line", { x1: x - 3, x2: x + 3, y1: this.y(share), y2: this.y(share), class: "axis" }),
      svg("text", { x: end ? x - 6 : x + 6, y: this.y(share) + 4, class: "tick " + (end ? "end" : "start") }, text),
    ]);
    const room = (this.width - 2 * PARALLEL.side) / Math.max(1, this.panel.axes.length - 1);
    const beside = [this.x[0], this.x.at(-1)].includes(x) ? 2 * PARALLEL.side : room; // the outer axes have the margin
    const rows = wrapped(axis.name, Math.max(7, Math.floor(Math.min(room, beside) / 7)));
    const name = rows.map((row, i) =>
      svg("text", { x, y: PARALLEL.top - 14 - 13 * (rows.length - 1 - i), class: "name" }, row));
    return [line, ...ticks, ...name];
  }

  /** Read the line that is nearest to the pointer. */
  point(event) {
    const box = this.plot.getBoundingClientRect();
    const scale = this.width / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    const right = Math.max(1, this.x.findIndex((at) => at >= x));
    const share = Math.max(0, Math.min(1, (x - this.x[right - 1]) / (this.x[right] - this.x[right - 1])));
    const away = this.panel.lines.map(({ at }) => Math.abs(this.y(at[right - 1] + share * (at[right] - at[right - 1])) - y));
    const nearest = away.indexOf(Math.min(...away));
    if (away[nearest] > 30) this.forget();
    else this.read(nearest, x / scale, y / scale);
  }

  key(event) {
    const step = { ArrowDown: -1, ArrowLeft: -1, ArrowUp: 1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") this.forget();
    if (!step) return;
    event.preventDefault();
    const last = this.panel.lines.length - 1;
    this.read(this.at === null || this.at === undefined ? last : Math.max(0, Math.min(last, this.at + step)), 20, 20);
  }

  read(number, left, top) {
    this.forget();
    this.at = number;
    this.lines.classList.add("faded");
    this.paths[number].classList.add("read");
    this.lines.append(this.paths[number]);
    this.tip.replaceChildren(this.panel.lines[number].label);
    this.tip.hidden = false;
    this.tip.style.left = Math.max(0, Math.min(left + 12, this.host.clientWidth - this.tip.offsetWidth)) + "px";
    this.tip.style.top = top + 16 + "px";
  }

  forget() {
    this.tip.hidden = true;
    this.at = null;
    if (!this.lines) return;
    this.lines.classList.remove("faded");
    for (const path of this.paths) path.classList.remove("read");
    this.lines.append(...this.paths);
  }
}

/** A text in rows of about so many letters. */
function wrapped(text, letters) {
  const rows = [];
  for (const word of text.split(" ")) {
    const last = rows.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= letters) rows[rows.length - 1] = last + " " + word;
    else rows.push(word);
  }
  return rows.slice(0, 3);
}
