/**
 * The randomizers of numbers, as in the Python package: one bit, answers to rounds, and discrete
 * Laplace noise on a grid, drawn exactly (`estimators.exact.laplace_sampler`).
 *
 * A law on a few integers is drawn by inversion: 16 bits of a uniform number, then 48 more, then 64
 * at a time, until it is certain between which two cumulative probabilities the number lies. Floors
 * of these irrational numbers are enclosed until both ends agree, so nothing is rounded.
 *
 * @module means
 */

import { numberOf, wholeOptions, wrongOptions } from "./checks.js";
import {
  LEVEL_UNITS, bernoulli, bitLength, ceilDiv, expBounds, littleEndian, missThreshold, roundUp,
  unitsOf,
} from "./sampling.js";

/** @import { Definition } from "./dither.js" */
/** @import { Mechanism } from "./mechanisms.js" */
/** @import { Bits } from "./sampling.js" */
/** @typedef {(bits: number) => bigint[]} Floors floor(2^bits c) of cumulative probabilities. */
/** @typedef {[bigint, bigint]} Fraction Numerator and denominator. */

/**
 * Returns a function that clips a number to the range, and maps it to [-1, 1].
 *
 * @param {Definition} definition
 * @returns {(value: unknown) => number}
 * @throws {TypeError} If the range is missing, or would map a value to NaN.
 */
export function unitOf({ name, range }) {
  const [low, high] = range ?? [NaN, NaN];
  const scale = 2 / (high - low);
  if (!(low < high) || ![low, high, high - low, scale].every(Number.isFinite)) {
    throw new TypeError(`${name}: a definition without a range of finite numbers`);
  }
  return (value) => {
    const given = numberOf(value, name);
    return (Math.min(Math.max(given, low), high) - low) * scale - 1;
  };
}

/** @param {Definition} definition @returns {Mechanism} */
export function randomizedResponse(definition) {
  const thresholds = definition.levels.map((epsilon) => missThreshold(epsilon));
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

/**
 * Returns the mechanism for answers to rounds; its values are -1 for "no" and 1 for "yes".
 *
 * @param {Definition} definition
 * @param {number} rounds
 */
export function roundAnswers(definition, rounds) {
  const parts = LEVEL_UNITS * (definition.split === "budget" ? BigInt(rounds) : 1n);
  const levels = definition.levels.map((epsilon) => [unitsOf(epsilon), parts]);
  return randomizedResponse({
    ...definition,
    levels: /** @type {any} */ (levels),
    range: [-1, 1],
  });
}

// -- Laplace noise --------------------------------------------------------------------------------

const [PREFIX, FIRST] = [16n, 64];
const DIGITS = 10; // binary digits that are drawn together
const LONGEST = 40n; // the last cell of a law has a probability of about e^-40
const LARGEST_RATE = 40n;
const MOST = 2n ** 31n;

/**
 * Returns a function that draws from a law on 0, 1, ..., m.
 *
 * @param {Floors} floors
 * @returns {(bits: Bits) => number}
 */
function inversion(floors) {
  const thresholds = floors(FIRST);
  const undecided = new Set(thresholds.map((threshold) => threshold >> (64n - PREFIX)));
  /** Returns how many thresholds are at most a word. @param {bigint} word */
  const below = (word) => {
    let [low, high] = [0, thresholds.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (thresholds[middle] <= word) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return (bits) => {
    const prefix = bits.integers(1)[0] & ((1n << PREFIX) - 1n);
    const start = prefix << (64n - PREFIX);
    if (!undecided.has(prefix)) return below(start);
    const word = start | (bits.integers(1)[0] >> PREFIX);
    const found = below(word);
    const ties = thresholds[Math.max(found, 1) - 1] === word;
    return ties && isBelow(bits, floors, found - 1) ? found - 1 : found;
  };
}

/**
 * Draws more bits of a number that ties with 64 bits of a cumulative probability, and returns
 * whether the number is below it.
 *
 * @param {Bits} bits
 * @param {Floors} floors
 * @param {number} which
 */
function isBelow(bits, floors, which) {
  for (let known = 2 * FIRST; ; known += FIRST) {
    const digits = BigInt.asUintN(FIRST, floors(known)[which]);
    const drawn = bits.integers(1)[0];
    if (drawn !== digits) return drawn < digits;
  }
}

/**
 * Returns floor(2^bits c) of each number, from enclosures of increasing precision.
 *
 * @param {(precision: bigint) => [Fraction, Fraction][]} enclosed
 * @param {number} bits
 */
function floorsOf(enclosed, bits) {
  for (let precision = 2n * BigInt(bits); ; precision *= 2n) {
    const ends = enclosed(precision).map((both) =>
      both.map(([numerator, denominator]) => (numerator << BigInt(bits)) / denominator),
    );
    if (ends.every(([low, high]) => low === high)) return ends.map(([low]) => low);
  }
}

/**
 * Returns bounds of 1, q, ..., q^last in units of 2^-precision, where q = exp(-rate).
 *
 * @param {Fraction} rate
 * @param {number} last
 * @param {bigint} precision
 */
function powersOf(rate, last, precision) {
  const one = 1n << precision;
  const [low, high] = expBounds(...rate, precision);
  const [least, most] = [(one * one) / high, ceilDiv(one * one, low)];
  const powers = [[one, one]];
  for (let i = 0; i < last; i += 1) {
    const [down, up] = powers[i];
    powers.push([(down * least) >> precision, ceilDiv(up * most, one)]);
  }
  return powers;
}

/**
 * Returns the probabilities that a geometric number, P(k) = (1 - q) q^k with q = exp(-rate), is
 * below 1, 2, ..., `cells`; if not `whole`, given that it is at most `cells`.
 *
 * @param {Fraction} rate
 * @param {number} cells
 * @param {boolean} whole
 * @returns {Floors}
 */
function geometric(rate, cells, whole) {
  /** @param {bigint} precision @returns {[Fraction, Fraction][]} */
  const enclosed = (precision) => {
    const one = 1n << precision;
    const powers = powersOf(rate, cells + 1, precision);
    const below = powers.map(([low, high]) => [one - high, one - low]);
    const [least, most] = whole ? [one, one] : below[below.length - 1];
    return below.slice(1, -1).map(([low, high]) => [[low, most], [high, least]]);
  };
  return (bits) => floorsOf(enclosed, bits);
}

/** Returns the probabilities of z < 0 and z < 1. @param {Fraction} rate @returns {Floors} */
function signs(rate) {
  /** @param {bigint} precision @returns {[Fraction, Fraction][]} */
  const enclosed = (precision) => {
    const one = 1n << precision;
    const [least, most] = powersOf(rate, 1, precision)[1];
    return [
      [[least, one + least], [most, one + most]],
      [[one, one + most], [one, one + least]],
    ];
  };
  return (bits) => floorsOf(enclosed, bits);
}

/**
 * Returns a function that draws integers z with P(z) proportional to exp(-rate |z|).
 *
 * @param {Fraction} rate
 * @returns {(bits: Bits) => number}
 */
function discreteLaplace([numerator, denominator]) {
  const rest = denominator / numerator;
  const digits = rest < 1n ? 0 : bitLength(rest) - 1;
  const groups = Math.ceil(digits / DIGITS);
  const parts = groups || 1;
  const ends = Array.from({ length: groups + 1 }, (_, i) => Math.floor((digits * i) / parts));
  const scaled = (/** @type {number} */ by) =>
    /** @type {Fraction} */ ([numerator << BigInt(by), denominator]);
  const most = (LONGEST * denominator) / (numerator << BigInt(digits));
  const cells = Math.max(1, Number(most));
  const drawSign = inversion(signs([numerator, denominator]));
  const drawRest = inversion(geometric(scaled(digits), cells, true));
  const lowest = ends.slice(1).map((end, i) => {
    const draw = inversion(geometric(scaled(ends[i]), 2 ** (end - ends[i]) - 1, false));
    return { draw, unit: 2 ** ends[i] };
  });
  return (bits) => {
    let magnitude = 0;
    for (let further = cells; further === cells; ) {
      further = drawRest(bits);
      magnitude += further;
    }
    magnitude *= 2 ** digits;
    for (const { draw, unit } of lowest) magnitude += draw(bits) * unit;
    return (magnitude + 1) * (drawSign(bits) - 1);
  };
}

/**
 * @param {Definition} definition
 * @returns {Mechanism}
 * @throws {TypeError} If the definition's range or grid is invalid.
 */
export function laplace(definition) {
  const { grid } = wholeOptions(definition, { grid: 1024 });
  if (!Number.isInteger(Math.log2(grid))) throw wrongOptions(definition, "a grid, a power of two");
  const size = BigInt(grid);
  const unit = unitOf(definition);
  const used = definition.levels.map((epsilon) => {
    const units = unitsOf(epsilon);
    const limit = size + ceilDiv(92n * size * LEVEL_UNITS, units);
    const isUsable = limit < MOST && units <= LARGEST_RATE * 2n * size * LEVEL_UNITS;
    if (!isUsable) throw wrongOptions(definition, `another grid at ${epsilon}`);
    /** @type {((bits: Bits) => number) | undefined} Computed when it is first needed. */
    let noise;
    const draw = (/** @type {Bits} */ bits) => {
      noise ??= discreteLaplace([units, 2n * size * LEVEL_UNITS]);
      return noise(bits);
    };
    return { limit: Number(limit), draw };
  });
  return {
    width: 4,
    randomize(value, level, bits) {
      const scaled = Math.min(Math.max(unit(value), -1), 1) * grid;
      const floor = Math.floor(scaled);
      const rounded = floor + (roundUp(bits, scaled - floor) ? 1 : 0);
      const { limit, draw } = used[level];
      const report = Math.min(Math.max(rounded + draw(bits), -limit), limit);
      return littleEndian(BigInt.asUintN(32, BigInt(report)), 4);
    },
  };
}
