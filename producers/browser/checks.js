/**
 * Checks what a page or a definition gives; the errors say what was given and what was expected.
 *
 * @module checks
 */

/** @import { Definition } from "./dither.js" */

/**
 * The most elements of lists in a definition, and the largest numbers, because a server may send
 * any. They are those of the Python package (`estimators.limits`).
 *
 * @internal
 */
export const LIMITS = {
  levels: 255, categories: 2 ** 20, coordinates: 2 ** 14, bins: 4096, edges: 4097, rounds: 50,
  by: 16,
};
/** The most cells of a mechanism for strings: its rows times the cells of a row. @internal */
export const LARGEST_TABLE = 2 ** 24;
/** The most bytes of a report. @internal */
export const LARGEST_REPORT = 2 ** 16;
/** The most bytes of a server's answer about a metric. @internal */
export const LARGEST_DEFINITION = 2 ** 22;
/** The most bytes of a server's answer to a batch, or about a round. @internal */
export const LARGEST_ANSWER = 2 ** 20;

/** The most characters of a wrong value in a message. */
const MOST_SHOWN = 500;

/** Returns a copy of lists and plain objects. @param {any} value @returns {any} @internal */
export function copied(value) {
  if (Array.isArray(value)) return value.map(copied);
  return value?.constructor === Object ? { ...value } : value;
}

/**
 * Throws if something in a definition is so large that reading it, or a report, costs too much.
 *
 * @param {Definition} definition
 * @throws {RangeError}
 * @internal
 */
export function checkLimits(definition) {
  const { name, by = [], attributes = {} } = definition;
  for (const [key, most] of Object.entries(LIMITS)) {
    const given = /** @type {Record<string, unknown>} */ (definition)[key];
    if ((Array.isArray(given) ? given.length : Number(given)) > most) {
      throw outside(`${name}.${key}`, `at most ${most}`);
    }
  }
  const places = by.map((attribute) => (attributes[attribute]?.length ?? 0) + 2);
  if (places.reduce((all, each) => all * each, 1) > 2 ** 16) {
    throw outside(`${name}.by`, "at most 65536 slices");
  }
}

/**
 * @param {unknown} given
 * @param {unknown} expected
 * @internal
 */
export function wrong(given, expected) {
  return new TypeError(`${String(given)}: expected ${expected}`);
}

/**
 * Returns the error for a number or a size that is too large or too small.
 *
 * @param {unknown} given
 * @param {unknown} expected
 * @internal
 */
export function outside(given, expected) {
  return new RangeError(`${String(given)}: expected ${expected}`);
}

/** A value as messages show it: text in quotes, of a long value only the beginning. @internal */
export function shown(/** @type {unknown} */ value) {
  /** @type {string} */
  let text = typeof value;
  try {
    if (typeof value === "string") text = JSON.stringify(value);
    else if (Array.isArray(value)) text = `[${Array.from(value.slice(0, 100), shown).join(", ")}]`;
    else text = typeof value === "bigint" ? `${value}n` : String(value);
  } catch {
    // an object without a text
  }
  return text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)} ...` : text;
}

/** @param {unknown} value @param {string} name @param {string} expected @internal */
export function wrongValue(value, name, expected) {
  return wrong(`value ${shown(value)} of ${name}`, expected);
}

/** @param {Definition} definition @param {unknown} expected @internal */
export function wrongOptions({ name }, expected) {
  return wrong(`options of ${name}`, expected);
}

/**
 * Throws for a metric with a crowd: its reports are sealed, and go to a relay.
 *
 * @param {Definition} definition
 * @internal
 */
export function refuseCrowd({ name, crowd }) {
  if (crowd === undefined) return;
  throw wrong(
    `metric ${name} has a crowd`,
    "a device that seals its reports: Device.open(gateway, { relay, key }); nothing was reported",
  );
}

/** @internal */
export const LEAVE_OUT = "; leave out what was not measured";

/** Returns how to convert a value to a number or a list; "" if nothing does. @internal */
export function conversion(/** @type {unknown} */ value) {
  const isText = typeof value === "bigint" || (typeof value === "string" && value.trim() !== "");
  const isNumber = value instanceof Number || value instanceof Date;
  return (isText || isNumber) && Number.isFinite(Number(value)) ? ", as Number() makes" : listing(value);
}

/** Returns how to convert a value to a list; "" if it has not several values. @internal */
export function listing(/** @type {unknown} */ value, which = " or a list of them") {
  if (/** @type {any} */ (value)?.then) return ", as await makes";
  if (value instanceof String) return ", as String() makes";
  const isObject = typeof value === "object" && value !== null;
  const isMany = isObject && (Symbol.iterator in value || "length" in value);
  return isMany && !Array.isArray(value) ? `${which}, as Array.from() makes` : "";
}

/** @param {unknown} value @param {string} name The metric's name. @returns {number} @internal */
export function numberOf(value, name) {
  const found = typeof value === "boolean" ? Number(value) : value;
  if (typeof found === "number" && !Number.isNaN(found)) return found;
  throw wrongValue(value, name, `a number${conversion(value)}${LEAVE_OUT}`);
}

/** @param {unknown} value @param {string} name The metric's name. @returns {string} @internal */
export function textOf(value, name) {
  if (typeof value === "string") return value;
  throw wrongValue(value, name, `a string${listing(value)}${LEAVE_OUT}`);
}

/** Throws if a metric's values are not strings. @param {Definition} definition @internal */
export function checkOpen({ name, categories }) {
  if (categories !== "open") throw wrong(name, 'categories "open"');
}

/**
 * Returns a mechanism's options; throws unless their names are known and all are whole and at least
 * 0.
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
