// Create elements. Texts come from files that anybody may have written: they are set as text, never as markup.

function element(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

// The parser knows the namespace of svg elements.
const SVG_SPACE = document.createRange().createContextualFragment("<svg></svg>").firstChild.namespaceURI;

function svg(name, attributes, ...children) {
  return fill(document.createElementNS(SVG_SPACE, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  for (const child of children) node.append(child);
  return node;
}

/** The parts of a typeset text: what stands in the line, what is lowered by _{...}, and what is raised by ^{...}. */
function typesetParts(text) {
  return text.split(/([_^]\{[^{}]*\})/).filter((part) => part).map((part) =>
    /^[_^]\{.*\}$/.test(part) ? { text: part.slice(2, -1), shift: part[0] === "_" ? 1 : -1 } : { text: part, shift: 0 });
}

/** A typeset text as HTML nodes. */
function typeset(text) {
  return typesetParts(text).map((part) => (part.shift ? element(part.shift > 0 ? "sub" : "sup", {}, part.text) : part.text));
}

/** A text element of a drawing, typeset. */
function typesetLabel(attributes, text) {
  let from = 0; // how far the baseline is below the line's
  const pieces = typesetParts(text).map(({ text: piece, shift }) => {
    const dy = 4 * shift - from;
    from = 4 * shift;
    return svg("tspan", { dy, class: shift ? "shifted" : null }, piece);
  });
  return svg("text", attributes, ...pieces);
}

// The outlines of markers, one for each dash, in a square from -1 to 1.
const MARKERS = [
  [[0, -1.15], [0.81, -0.81], [1.15, 0], [0.81, 0.81], [0, 1.15], [-0.81, 0.81], [-1.15, 0], [-0.81, -0.81]],
  [[-1, -1], [1, -1], [1, 1], [-1, 1]],
  [[0, -1.3], [1.2, 0.9], [-1.2, 0.9]],
  [[0, -1.4], [1.4, 0], [0, 1.4], [-1.4, 0]],
  [[0, 1.3], [1.2, -0.9], [-1.2, -0.9]],
  [[-0.4, -1.3], [0.4, -1.3], [0.4, -0.4], [1.3, -0.4], [1.3, 0.4], [0.4, 0.4], [0.4, 1.3], [-0.4, 1.3], [-0.4, 0.4], [-1.3, 0.4], [-1.3, -0.4], [-0.4, -0.4]],
  [[0.9, 0], [-0.9, 1.2], [-0.9, -1.2]].map(([x, y]) => [x + 0.2, y]),
  [[-0.9, 0], [0.9, 1.2], [0.9, -1.2]].map(([x, y]) => [x - 0.2, y]),
];

/** A curve's marker at a place. */
function marker(curve, x, y, size) {
  const points = MARKERS[curve.style[1] % MARKERS.length].map(([dx, dy]) => (x + size * dx).toFixed(1) + " " + (y + size * dy).toFixed(1));
  return svg("path", { d: "M" + points.join("L") + "Z", class: "dot " + colorClass(curve) });
}

/** The class of a curve's color; reference curves are grey. A style is a color and a dash, as indices. */
function colorClass(curve) {
  return curve.reference ? "reference" : "c" + curve.style[0];
}

/** The attributes of a curve's line. */
function lineStyle(curve, dashes) {
  return { class: "curve " + colorClass(curve), "stroke-dasharray": dashes[curve.style[1]] };
}

/** A short piece of a curve, for legends and tooltips. */
function swatch(curve, dashes) {
  const line = svg("line", { x1: 1, y1: 5, x2: 33, y2: 5, ...lineStyle(curve, dashes) });
  const parts = curve.reference ? [line] : [...(curve.points ? [] : [line]), marker(curve, 17, 5, 3.2)];
  return svg("svg", { width: 34, height: 10, viewBox: "0 0 34 10", "aria-hidden": "true", class: "swatch" }, ...parts);
}
