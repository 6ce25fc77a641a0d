// Draw the charts of the page from the data in it.

const DATA = JSON.parse(document.getElementById("data").textContent);
const DASHES = DATA.dashes.map((dash) => dash.join(" "));
const HIDDEN = new Set(); // labels of the curves that are switched off, in all figures
const FIGURES = [];

/** A figure: buttons for its views, legend, rows of panels. */
class FigureView {
  constructor(host, figure) {
    Object.assign(this, { host, figure, view: 0, charts: [] });
    this.bar = element("div", { class: "bar" });
    this.rows = element("div", {});
    host.append(this.bar, this.rows);
    this.build();
  }

  build() {
    this.charts = [];
    this.bar.replaceChildren();
    if (this.figure.views.length > 1) this.bar.append(this.viewButtons());
    this.legend = element("div", { class: "legend", role: "group", "aria-label": "Curves; click to hide or show" });
    for (const [label, curve] of this.legendCurves()) this.legend.append(this.legendButton(label, curve));
    this.resetButton = element("button", { type: "button", class: "reset", onclick: () => this.reset() }, "Reset zoom");
    this.bar.append(this.legend, this.resetButton);
    this.bar.hidden = this.figure.views[this.view].rows.every((row) => row.panels.every((panel) => panel.axes));
    if (this.figure.key === "loss") this.bar.append(this.switchButton("log", "Logarithmic"));
    const panels = this.figure.views[this.view].rows.flatMap((row) => row.panels);
    if (panels.some((panel) => !panel.axes && panel.span)) this.bar.append(this.switchButton("whole", "Whole range"));
    this.rows.replaceChildren(...this.figure.views[this.view].rows.map((row) => this.row(row)));
    this.redraw();
  }

  /** The curves of some rows by their labels. */
  curvesByLabel(rows) {
    const panels = rows.flatMap((row) => row.panels);
    const curves = panels.flatMap((panel) => (panel.curves || []).map((curve) => ({ ...curve, points: panel.points, plain: panel.kind === "plain" })));
    return new Map(curves.map((curve) => [curve.label, curve]));
  }

  /** The curves in the order of the legend. */
  legendCurves() {
    const place = ({ style: [color, dash], reference }) => 1000 * reference + 100 * color + dash;
    return [...this.curvesByLabel(this.figure.views[this.view].rows)].sort((a, b) => place(a[1]) - place(b[1]));
  }

  legendButton(label, curve) {
    const toggle = () => {
      if (!HIDDEN.delete(label)) HIDDEN.add(label);
      for (const figure of FIGURES) figure.redraw();
    };
    const attributes = { type: "button", "data-label": label, onclick: toggle };
    return element("button", attributes, swatch(curve, DASHES), element("span", {}, ...(curve.plain ? typeset(label) : [label])));
  }

  viewButtons() {
    const buttons = this.figure.views.map((view, number) => {
      const show = () => { this.view = number; this.build(); };
      return element("button", { type: "button", "aria-pressed": number === this.view, onclick: show }, view.name);
    });
    return element("div", { class: "views", role: "group", "aria-label": "Choice of settings" }, ...buttons);
  }

  /** A button that switches a property of all panels on or off. */
  switchButton(property, text) {
    const button = element("button", { type: "button", "aria-pressed": "false", class: "switch " + property }, text);
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") === "false";
      button.setAttribute("aria-pressed", on);
      for (const chart of this.charts) Object.assign(chart, { [property]: on, y: null });
      this.redraw();
    });
    return button;
  }

  row(row) {
    // Panels of one data set zoom together, if they have the same x axis.
    const linked = this.figure.key !== "loss" && !row.panels.some((panel) => panel.x_label);
    const all = { x: null, redraw: () => this.redraw(), reset: () => this.reset() };
    const charts = row.panels.map((panel) => panel.axes ? new ParallelView(panel, row.name) : new PanelView(panel, {
      xLabel: this.figure.x_label, dashes: DASHES, hidden: HIDDEN, rowName: row.name,
      shared: linked ? all : { x: null, redraw: () => this.redraw(), reset: () => this.reset() },
    }));
    this.charts.push(...charts);
    const notes = [...this.curvesByLabel([row]).values()].filter((curve) => curve.note).map((curve) =>
      element("li", {}, swatch(curve, DASHES), element("b", {}, curve.label), " " + curve.note));
    return element("div", { class: "row" },
      ...(row.name ? [element("h3", {}, row.name)] : []),
      element("div", { class: "panels of-" + Math.min(3, charts.length) }, ...charts.map((chart) => chart.host)),
      ...(notes.length ? [element("ul", { class: "notes" }, ...notes)] : []));
  }

  reset() {
    for (const chart of this.charts) {
      chart.y = null;
      if (chart.shared) chart.shared.x = null;
    }
    this.redraw();
  }

  redraw() {
    for (const button of this.legend.children) button.setAttribute("aria-pressed", !HIDDEN.has(button.dataset.label));
    for (const chart of this.charts) {
      chart.forget();
      chart.draw();
    }
    this.resetButton.disabled = !this.charts.some((chart) => chart.zoomed);
  }
}

for (const chart of DATA.charts) {
  const host = document.querySelector('[data-figure="' + chart.key + '"]');
  FIGURES.push(new FigureView(host, chart));
}
document.addEventListener("pointerdown", (event) => {
  for (const figure of FIGURES) {
    for (const chart of figure.charts) if (!chart.plot.contains(event.target)) chart.forget();
  }
});
