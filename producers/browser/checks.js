/**
 * What a page or a definition gives, checked; and errors that say what was given and expected.
 *
 * @module checks
 */

/** @import { Definition } from "./dither.js" */

/**
 * @param {unknown} given
 * @param {unknown} expected
 * @internal
 */
export function wrong(given, expected) {
  return new TypeError(`${String(given)}: expected ${expected}`);
}

/**
 * The same of something too large or too small.
 *
 * @param {unknown} given
 * @param {unknown} expected
 * @internal
 */
export function outside(given, expected) {
  return new RangeError(`${String(given)}: expected ${expected}`);
}

/** @param {unknown} value @param {string} name @param {string} expected @internal */
export function wrongValue(value, name, expected) {
  return wrong(`value ${String(value)} of ${name}`, expected);
}

/** @param {Definition} definition @param {unknown} expected @internal */
export function wrongOptions({ name }, expected) {
  return wrong(`options of ${name}`, expected);
}

/** @param {unknown} value @param {string} name The metric's. @returns {number} @internal */
export function numberOf(value, name) {
  if (typeof value === "number" && !Number.isNaN(value)) return value;
  throw wrongValue(value, name, "a number");
}

/** @param {unknown} value @param {string} name The metric's. @returns {string} @internal */
export function textOf(value, name) {
  if (typeof value === "string") return value;
  throw wrongValue(value, name, "a string");
}

/** Throws if a metric's values are no strings. @param {Definition} definition @internal */
export function checkOpen({ name, categories }) {
  if (categories !== "open") throw wrong(name, 'categories "open"');
}

/**
 * A mechanism's options, if all are whole numbers of at least 0 and have known names.
 *
 * @template {Record<string, number>} Options
 * @param {Definition} definition
 * @param {Options} defaults
 * @param {(options: Options) => boolean} [fits]
 * @returns {Options}
 * @throws {TypeError}
 * @internal
 */
export function wholeOptions(definition, defaults, fits = () => true) {
  const found = { ...defaults, ...definition.options };
  const isWhole = Object.values(found).every((one) => Number.isSafeInteger(one) && one >= 0);
  const names = Object.keys(defaults);
  if (isWhole && Object.keys(found).length === names.length && fits(found)) return found;
  throw wrongOptions(definition, names.join(", "));
}
