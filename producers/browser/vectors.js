/**
 * The randomizers of vectors, as in the Python package: directions are drawn before the value is
 * looked at; exact coins choose between them, and the choice is rounded to a grid.
 *
 * Normal variates need a logarithm and a cosine, whose last bits are the platform's. The same
 * random words give Python's report unless a coordinate lies so near to a limit of rounding that
 * those bits decide: fewer than one coordinate in 10^9. Privacy does not depend on them.
 *
 * @module vectors
 */

import {
  LEAVE_OUT, listing, numberOf, wholeOptions, wrong, wrongOptions, wrongValue,
} from "./checks.js";
import { bernoulli, missThreshold, roundUp, roundsUp, uniformBelow } from "./sampling.js";

/** @import { Definition } from "./dither.js" */
/** @import { Mechanism } from "./mechanisms.js" */
/** @import { Bits } from "./sampling.js" */

const LARGEST_GRID = 2 ** 24;
const FINE = 1024; // coordinates up to which `caps` has a byte for each
const BLOCK = 2 ** 17; // numbers that are drawn together
const MOST_NUMBERS = 2 ** 21; // normal numbers of a report
const MOST_CANDIDATES = 2 ** 12; // they are sorted for each report: a server may ask for any

/** @param {number[]} one @param {number[]} other */
const product = (one, other) => one.reduce((sum, each, i) => sum + each * other[i], 0);

/** @param {number[]} vector */
const lengthOf = (vector) => Math.sqrt(product(vector, vector));

/**
 * Returns a function that shortens a vector to the radius, and maps it to the unit ball.
 *
 * @param {Definition} definition
 * @returns {(value: unknown) => number[]}
 * @throws {TypeError} If there are no coordinates, or no radius.
 */
function ballOf({ name, coordinates, radius = NaN }) {
  const size = Array.isArray(coordinates) ? coordinates.length : 0;
  if (size < 1 || !(radius > 0 && radius < Infinity)) {
    throw wrong(name, "a definition with coordinates and a radius");
  }
  return (value) => {
    if (!Array.isArray(value) || value.length !== size || value.some(Array.isArray)) {
      const expected = `one vector of ${size} numbers or rows of them`;
      throw wrongValue(value, name, expected + listing(value, ""));
    }
    const given = Array.from(value, (each) => numberOf(each, name));
    const scale = Math.max(radius, ...given.map(Math.abs)); // squares must not overflow
    if (scale === Infinity) throw wrongValue(scale, name, `finite numbers${LEAVE_OUT}`);
    const vector = given.map((each) => each / scale);
    const length = lengthOf(vector);
    const isLong = scale > radius || length > 1;
    return isLong ? vector.map((each) => each / Math.max(length, 0.5)) : vector;
  };
}

/**
 * Draws vectors of normal variates, by Box and Muller, in blocks of up to 2^17 numbers.
 *
 * @param {Bits} bits
 * @param {number} count
 * @param {number} size
 * @returns {number[][]}
 */
function normalVectors(bits, count, size) {
  const block = Math.max(1, Math.floor(BLOCK / size));
  const vectors = [];
  for (let first = 0; first < count; first += block) {
    const some = Math.min(block, count - first);
    const pairs = Math.ceil((some * size) / 2);
    const { buffer, byteOffset } = bits.integers(pairs);
    const uniform = Array.from(
      new Uint32Array(buffer, byteOffset, 2 * pairs), (word) => (word + 0.5) * 2 ** -32,
    );
    const turns = uniform.slice(pairs);
    const cosines = turns.map((turn) => Math.cos(2 * Math.PI * turn));
    const sines = cosines.map((one, i) => Math.sqrt(1 - one ** 2) * Math.sign(0.5 - turns[i]));
    const numbers = [cosines, sines].flatMap((all) =>
      all.map((each, i) => Math.sqrt(-2 * Math.log(uniform[i])) * each),
    );
    for (let i = 0; i < some; i += 1) vectors.push(numbers.slice(size * i, size * (i + 1)));
  }
  return vectors;
}

/** Returns a vector divided by its length. @param {number[]} vector */
function unitVector(vector) {
  const length = lengthOf(vector);
  return length === 0
    ? vector.map((_, i) => (i === 0 ? 1 : 0))
    : vector.map((each) => Math.min(Math.max(each / length, -1), 1));
}

/**
 * Draws integers whose mean is `grid` times a vector.
 *
 * @param {Bits} bits
 * @param {number[]} vector
 * @param {number} grid
 */
function onGrid(bits, vector, grid) {
  const floors = vector.map((each) => Math.floor(each * grid));
  const up = roundsUp(bits, vector.map((each, i) => each * grid - floors[i]));
  return floors.map((floor, i) => floor + Number(up[i]));
}

/**
 * Reports one of k random directions and their opposites: preferably one of the W that are nearest
 * to the value. The threshold is computed here, so epsilon holds for any k and W.
 *
 * @param {Definition} definition
 * @param {number} grid
 * @param {number[][]} sets k and W of each level.
 * @param {number} [more] 1 if a value is lifted to the sphere of one more dimension.
 * @returns {Mechanism}
 */
function rankedDirections(definition, grid, sets, more = 0) {
  if (grid < 1 || grid > LARGEST_GRID) throw wrongOptions(definition, "a grid of 1 to 2^24");
  const ball = ballOf(definition);
  const size = Number(definition.coordinates?.length) + more;
  const thresholds = sets.map(([candidates, inside], level) =>
    missThreshold(definition.levels[level], BigInt(inside), BigInt(candidates - inside)),
  );
  const Coordinates = [Int8Array, Int16Array, Int32Array][
    definition.mechanism !== "hemisphere" && grid < 2 ** 7 ? 0 : grid < 2 ** 15 ? 1 : 2
  ];
  return {
    width: size * Coordinates.BYTES_PER_ELEMENT,
    randomize(value, level, bits) {
      const vector = ball(value);
      if (more) vector.push(Math.sqrt(Math.max(1 - product(vector, vector), 0)));
      const [candidates, inside] = sets[level];
      const pairs = candidates / 2;
      const directions = normalVectors(bits, pairs, size);
      const scores = directions.map((each) => product(each, vector) / (lengthOf(each) || 1));
      scores.push(...scores.map((score) => -score));
      const isKept = roundUp(bits, (1 + Math.min(lengthOf(vector), 1)) / 2);
      const [missed] = bernoulli(bits, thresholds[level], 1);
      const best = [...scores.keys()].sort((a, b) => scores[b] - scores[a] || a - b);
      const among = missed ? best.slice(inside) : best.slice(0, inside);
      const rank = candidates > 2 ? uniformBelow(bits, BigInt(among.length)) : 0n;
      const chosen = among.sort((a, b) => a - b)[Number(rank)];
      const rounded = onGrid(bits, unitVector(directions[chosen % pairs]), grid);
      const isTurned = (chosen >= pairs) === isKept;
      const report = new Coordinates(rounded.map((each) => (isTurned ? -each : each)));
      return new Uint8Array(report.buffer); // little-endian, as every browser's machine
    },
  };
}

/**
 * @param {Definition} definition
 * @returns {Mechanism}
 * @throws {TypeError} If the definition's ball or grid is invalid.
 */
export function hemisphere(definition) {
  const { grid } = wholeOptions(definition, { grid: 2 ** 14 });
  const sets = definition.levels.map(() => [2, 1]);
  return rankedDirections(definition, grid, sets);
}

/**
 * @param {Definition} definition
 * @returns {Mechanism}
 * @throws {TypeError} If the definition's ball, grid or numbers of candidates are invalid.
 */
export function caps(definition) {
  const { name, mechanism, constants, coordinates = [], levels } = definition;
  const more = Number(mechanism === "lifted_caps");
  const size = coordinates.length + more;
  const usual = size > FINE ? 2 ** 14 : 127;
  const { grid } = wholeOptions(definition, { grid: usual });
  const sets = levels.map((_, level) => {
    const candidates = Number(constants?.candidates?.[level]);
    const inside = Number(constants?.inside?.[level]);
    const isSet =
      [candidates / 2, inside].every((one) => Number.isInteger(one) && one >= 1) &&
      candidates <= MOST_CANDIDATES && inside <= candidates / 2 &&
      (candidates / 2) * size <= MOST_NUMBERS;
    if (!isSet) throw wrong(name, `constants that fit level ${level}`);
    return [candidates, inside];
  });
  return rankedDirections(definition, grid, sets, more);
}
