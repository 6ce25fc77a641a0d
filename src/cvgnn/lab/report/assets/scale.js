"use strict";
// Axes: positions of ticks and formats of numbers.

/** A round step (1, 2 or 5 times a power of ten) that divides a span into about so many parts. */
function roundStep(span, parts) {
  const raw = span / Math.max(1, parts);
  const power = Math.pow(10, Math.floor(Math.log10(raw)));
  const found = [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999);
  return found * power;
}

/** Ticks of a linear axis, and their format. */
function linearTicks(low, high, parts, whole) {
  const step = whole ? Math.max(1, roundStep(high - low, parts)) : roundStep(high - low, parts);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const values = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) values.push(i * step);
  const long = digits > 4 || Math.max(Math.abs(low), Math.abs(high)) >= 1e5; // the margin has room for six characters
  return { values, write: (value) => (long && value ? value.toExponential(1) : value.toFixed(Math.min(digits, 8))) };
}

/** Ticks of a logarithmic axis: powers of ten, with 2 and 5 between them where there is room. */
function logTicks(low, high) {
  const values = [];
  const narrow = Math.log10(high / low) < 3;
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const factor of narrow ? [1, 2, 5] : [1]) {
      const value = factor * Math.pow(10, power);
      if (value >= low && value <= high) values.push(value);
    }
  }
  if (values.length < 2) return linearTicks(low, high, 4, false);
  return { values, write: (value) => (value < 1e-3 || value >= 1e5 ? writePower(value) : String(Number(value.toPrecision(2)))) };
}

/** A tick of a logarithmic axis as 10^{-4} or 2·10^{-4}. */
function writePower(value) {
  const [factor, exponent] = value.toExponential(0).split("e");
  return (factor === "1" ? "" : factor + "·") + "10^{" + String(Number(exponent)).replace("-", "−") + "}";
}

/** The function that maps numbers in [low, high] to pixels in [from, to], and its inverse. */
function makeScale(low, high, from, to, log) {
  const f = log ? Math.log10 : (v) => v;
  const back = log ? (v) => Math.pow(10, v) : (v) => v;
  const a = f(low);
  const b = f(high);
  const beyond = from - 1e4 * Math.sign(to - from); // where a logarithmic axis has zero
  const scale = (value) => (log && value <= 0 ? beyond : from + ((f(value) - a) / (b - a)) * (to - from));
  scale.invert = (pixel) => back(a + ((pixel - from) / (to - from)) * (b - a));
  return scale;
}

/** A value for the tooltip. */
function writeValue(value, kind) {
  return kind === "percent" ? (100 * value).toFixed(2) + "%" : String(Number(value.toPrecision(4)));
}

function writeBand(low, high, kind) {
  if (low === high) return "";
  if (kind === "percent") return (100 * low).toFixed(2) + " to " + (100 * high).toFixed(2);
  return Number(low.toPrecision(4)) + " to " + Number(high.toPrecision(4));
}
