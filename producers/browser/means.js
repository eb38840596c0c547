/**
 * The randomizers of numbers: one bit, and the answers to rounds.
 *
 * @module means
 */

import { bernoulli, missThreshold, roundUp } from "./sampling.js";

/** @import { Definition } from "./dither.js" */
/** @import { Mechanism } from "./mechanisms.js" */

/**
 * Returns what takes a number, clipped to the range, to [-1, 1].
 *
 * @param {Definition} definition
 * @returns {(value: unknown) => number}
 * @throws {TypeError} If there is no range.
 */
export function unitOf({ name, range }) {
  const [low, high] = range ?? [NaN, NaN];
  if (!(low < high)) throw new TypeError(`${name}: a definition without a range`);
  return (value) => {
    if (typeof value !== "number" || Number.isNaN(value)) {
      throw new TypeError(`value ${String(value)} of ${name}: expected a number`);
    }
    return (Math.min(Math.max(value, low), high) - low) * (2 / (high - low)) - 1;
  };
}

/** @param {Definition} definition @param {bigint} [parts] @returns {Mechanism} */
export function randomizedResponse(definition, parts = 1n) {
  const thresholds = definition.levels.map((epsilon) => missThreshold(epsilon, 1n, 1n, parts));
  const unit = unitOf(definition);
  return {
    width: 1,
    randomize(value, level, bits) {
      const positive = roundUp(bits, (1 + unit(value)) / 2);
      const [flipped] = bernoulli(bits, thresholds[level], 1);
      return Uint8Array.of(positive === flipped ? 0 : 1);
    },
  };
}

/** Answers to rounds: of -1 for "no" and 1 for "yes". @param {Definition} definition @param {number} rounds */
export function roundAnswers(definition, rounds) {
  const parts = definition.split === "budget" ? BigInt(rounds) : 1n;
  return randomizedResponse({ ...definition, range: [-1, 1] }, parts);
}
