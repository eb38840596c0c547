/**
 * Axes of categories: each category is one value of every axis (`estimators.metrics.axes` in
 * Python).
 *
 * @module axes
 */

import { wrong } from "./checks.js";

/** @import { Definition } from "./dither.js" */

const FEW_LISTED = 10;

/**
 * Throws unless the product of a definition's axes, if it has some, is its list of categories.
 *
 * @param {Definition} definition
 * @throws {TypeError}
 */
export function checkAxes({ name, axes, categories }) {
  if (axes === undefined) return;
  const error = wrong(`axes of ${name}`, "those whose product is its categories");
  const isTable = typeof axes === "object" && axes !== null && Object.values(axes).every(Array.isArray);
  if (!isTable || !Array.isArray(categories)) throw error;
  const entries = Object.entries(axes);
  const count = entries.reduce((product, [, values]) => product * values.length, 1);
  if (entries.length === 0 || count !== categories.length) throw error;
  categories.forEach((category, index) => {
    const texts = entries.toReversed().map(([axis, values]) => {
      const text = `${axis}=${values[index % values.length]}`;
      index = Math.floor(index / values.length);
      return text;
    });
    if (texts.reverse().join(", ") !== category) throw error;
  });
}

/**
 * Returns the category of an object with a value for each axis; any other value unchanged.
 *
 * @param {Pick<Definition, "name" | "axes">} definition
 * @param {unknown} value
 * @returns {unknown}
 * @throws {TypeError} If the object is not a category.
 */
export function labelled({ name, axes }, value) {
  if (axes === undefined || typeof value !== "object" || value === null) return value;
  if (Symbol.iterator in value) {
    throw wrong(`${String(value)} of ${name}`, "an object of axes, as Object.fromEntries() makes");
  }
  const given = /** @type {Record<string, string>} */ (value);
  for (const axis of Object.keys(given)) {
    if (!Object.hasOwn(axes, axis)) throw wrong(`axis ${axis} of ${name}`, oneOf(Object.keys(axes)));
  }
  const texts = Object.entries(axes).map(([axis, values]) => {
    if (!Object.hasOwn(given, axis)) throw wrong(`axis ${axis} of ${name} is missing`, oneOf(values));
    if (!values.includes(given[axis])) {
      throw wrong(`${axis}=${String(given[axis])} of ${name}`, oneOf(values));
    }
    return `${axis}=${given[axis]}`;
  });
  return texts.join(", ");
}

/**
 * Returns the category in which `axis` has its second value, and each other axis its first.
 *
 * @param {Definition} definition
 * @param {unknown} axis
 * @throws {TypeError} If there is no such axis.
 */
export function flagged({ name, axes = {} }, axis) {
  if (typeof axis !== "string" || !Object.hasOwn(axes, axis)) {
    throw wrong(`flag ${String(axis)} of ${name}`, oneOf(Object.keys(axes)));
  }
  const values = Object.entries(axes).map(([each, two]) => [each, two[Number(each === axis)]]);
  return labelled({ name, axes }, Object.fromEntries(values));
}

/** @param {string[]} words */
function oneOf(words) {
  const hidden = words.length - FEW_LISTED;
  const more = hidden > 0 ? ` and ${hidden} more` : "";
  return `one of ${words.slice(0, FEW_LISTED).join(", ")}${more}`;
}
