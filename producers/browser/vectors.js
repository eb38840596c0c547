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

import { numberOf, wholeOptions, wrong, wrongOptions, wrongValue } from "./checks.js";
import { bernoulli, missThreshold, roundUp, roundsUp } from "./sampling.js";

/** @import { Definition } from "./dither.js" */
/** @import { Mechanism } from "./mechanisms.js" */
/** @import { Bits } from "./sampling.js" */

const LARGEST_GRID = 2 ** 24;
const NARROW_GRID = 2 ** 15; // below it a coordinate has two bytes

/** @param {number[]} one @param {number[]} other */
const product = (one, other) => one.reduce((sum, each, i) => sum + each * other[i], 0);

/** @param {number[]} vector */
const lengthOf = (vector) => Math.sqrt(product(vector, vector));

/**
 * Returns what takes a vector, shortened to the radius, to the unit ball.
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
    if (!Array.isArray(value) || value.length !== size) {
      throw wrongValue(value, name, `a list of ${size} numbers`);
    }
    const given = value.map((each) => numberOf(each, name));
    const scale = Math.max(radius, ...given.map(Math.abs)); // squares must not overflow
    if (scale === Infinity) throw wrongValue(value, name, "finite numbers");
    const vector = given.map((each) => each / scale);
    const length = lengthOf(vector);
    const isLong = scale > radius || length > 1;
    return isLong ? vector.map((each) => each / Math.max(length, 0.5)) : vector;
  };
}

/**
 * Draws a unit vector: normal variates by Box and Muller, divided by their length.
 *
 * @param {Bits} bits
 * @param {number} size
 */
function uniformDirection(bits, size) {
  const pairs = Math.ceil(size / 2);
  const { buffer, byteOffset } = bits.integers(pairs);
  const uniform = Array.from(
    new Uint32Array(buffer, byteOffset, 2 * pairs), (word) => (word + 0.5) * 2 ** -32,
  );
  const lengths = uniform.slice(0, pairs).map((each) => Math.sqrt(-2 * Math.log(each)));
  const turns = uniform.slice(pairs);
  const cosines = turns.map((turn) => Math.cos(2 * Math.PI * turn));
  const sines = cosines.map((cosine, i) => Math.sqrt(1 - cosine ** 2) * Math.sign(0.5 - turns[i]));
  const normal = [cosines, sines].flatMap((all) => all.map((each, i) => lengths[i] * each));
  const vector = normal.slice(0, size);
  const length = lengthOf(vector);
  return length === 0
    ? vector.map((_, i) => (i === 0 ? 1 : 0))
    : vector.map((each) => Math.min(Math.max(each / length, -1), 1));
}

/**
 * Integers whose mean is a number times a vector.
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
 * @param {Definition} definition
 * @returns {Mechanism}
 * @throws {TypeError} If the definition's ball or grid is none.
 */
export function hemisphere(definition) {
  const { grid } = wholeOptions(definition, { grid: 2 ** 14 });
  if (grid < 1 || grid > LARGEST_GRID) throw wrongOptions(definition, "a grid of 1 to 2^24");
  const ball = ballOf(definition);
  const size = Number(definition.coordinates?.length);
  const thresholds = definition.levels.map((epsilon) => missThreshold(epsilon));
  const Coordinates = grid < NARROW_GRID ? Int16Array : Int32Array;
  return {
    width: size * Coordinates.BYTES_PER_ELEMENT,
    randomize(value, level, bits) {
      const vector = ball(value);
      const direction = uniformDirection(bits, size);
      const isAway = product(direction, vector) < 0;
      const isKept = roundUp(bits, (1 + Math.min(lengthOf(vector), 1)) / 2);
      const [flipped] = bernoulli(bits, thresholds[level], 1);
      const isTurned = (isAway === isKept) !== flipped;
      const rounded = onGrid(bits, direction, grid);
      const report = new Coordinates(rounded.map((each) => (isTurned ? -each : each)));
      return new Uint8Array(report.buffer); // little-endian, as every browser's machine
    },
  };
}
