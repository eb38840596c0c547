/**
 * The randomizer of numbers whose report is one symbol, as in the Python package
 * (`estimators.mechanisms.piecewise`): a symbol in the window of the value's knot, or, less likely,
 * another symbol.
 *
 * A definition says the window and the numbers of the symbols; whatever it says, epsilon holds,
 * because the threshold is computed here.
 *
 * @module windows
 */

import { unitOf } from "./means.js";
import { bernoulli, byteBelow, missThreshold, roundUp } from "./sampling.js";

/** @import { Definition } from "./dither.js" */
/** @import { Mechanism } from "./mechanisms.js" */

const MOST_SYMBOLS = 255;
const LARGEST_NUMBER = 2 ** 15;

/** @param {Definition} definition @returns {Mechanism} */
export function windows(definition) {
  const unit = unitOf(definition);
  const shapes = definition.levels.map((epsilon, level) => {
    const { z, window } = shapeOf(definition, level);
    const others = z.length - window;
    const sums = Array.from({ length: others + 1 }, (_, s) =>
      z.slice(s, s + window).reduce((sum, number) => sum + number, 0),
    );
    const threshold = missThreshold(epsilon, BigInt(window), BigInt(others));
    return { sums, window, others, threshold };
  });
  return {
    width: 1,
    randomize(value, level, bits) {
      const { sums, window, others, threshold } = shapes[level];
      const scaled = Math.min(Math.max(unit(value), -1), 1) * sums[others];
      const below = sums.findLastIndex((sum, s) => s === 0 || (s < others && sum <= scaled));
      const up = roundUp(bits, (scaled - sums[below]) / (sums[below + 1] - sums[below]));
      const start = below + Number(up);
      const [missed] = bernoulli(bits, threshold, 1);
      const rank = byteBelow(bits, missed ? others : window);
      const shift = missed && rank < start ? 0 : missed ? window : start;
      return Uint8Array.of(rank + shift);
    },
  };
}

/**
 * Returns the mechanism's name at each level of `auto`: with two symbols it is randomized response.
 *
 * @param {Definition} definition
 * @returns {string[]}
 * @internal
 */
export function chosenWindows(definition) {
  return definition.levels.map((_, level) =>
    shapeOf(definition, level).z.length === 2 ? "randomized_response" : "windows",
  );
}

/**
 * Returns the window and the numbers of the symbols at a level, checked.
 *
 * @param {Definition} definition
 * @param {number} level
 */
function shapeOf({ name, constants }, level) {
  const [window, z] = [Number(constants?.window?.[level]), constants?.z?.[level]];
  const isShape =
    Array.isArray(z) && z.length >= 2 && z.length <= MOST_SYMBOLS &&
    Number.isInteger(window) && window >= 1 && window < z.length &&
    z.every(
      (number, j) =>
        Number.isInteger(number) && Math.abs(number) < LARGEST_NUMBER &&
        number === -z[z.length - 1 - j] && (j === 0 || number >= z[j - 1]) &&
        (j < window || number > z[j - window]),
    );
  if (!isShape) {
    throw new TypeError(`${name}: a definition whose constants fit no reports of level ${level}`);
  }
  return { window, z };
}
