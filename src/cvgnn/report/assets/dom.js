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

/** A short piece of a curve, for legends and tooltips. */
function swatch(color, dashes) {
  const line = svg("line", { x1: 1, y1: 5, x2: 33, y2: 5, class: "curve c" + (color % 8), "stroke-dasharray": dashes });
  return svg("svg", { width: 34, height: 10, viewBox: "0 0 34 10", "aria-hidden": "true", class: "swatch" }, line);
}
