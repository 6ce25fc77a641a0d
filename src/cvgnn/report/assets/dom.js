// Making elements. Texts come from files that may be anybody's: they are only ever set as text, never as markup.

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  return filled(made, attributes, children);
}

// The parser knows the namespace of svg elements.
const SVG_SPACE = document.createRange().createContextualFragment("<svg></svg>").firstChild.namespaceURI;

function svg(name, attributes, ...children) {
  return filled(document.createElementNS(SVG_SPACE, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  for (const child of children) made.append(child);
  return made;
}

/** Which dash a curve has: the first eight differ in color and in dash, the first 64 in one of them. */
function dashOf(color) {
  return (color + Math.floor(color / 8)) % 8;
}

/** The look of a curve: its color and dash; thin, grey and dashed for what is only there to be compared with. */
function look(curve, dashes) {
  if (curve.reference) return { class: "curve reference", "stroke-dasharray": ["2 4", "9 4", "9 3 2 3"][curve.color % 3] };
  return { class: "curve c" + (curve.color % 8), "stroke-dasharray": dashes[dashOf(curve.color)] };
}

/** A short piece of a curve, for legends and tooltips. */
function swatch(curve, dashes) {
  const line = svg("line", { x1: 1, y1: 5, x2: 33, y2: 5, ...look(curve, dashes) });
  return svg("svg", { width: 34, height: 10, viewBox: "0 0 34 10", "aria-hidden": "true", class: "swatch" }, line);
}
