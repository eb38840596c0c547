/**
 * The randomizer of `projective_sketch`, as in the Python package: a string is hashed to a point in
 * each of many rows, and a report is a point of one row.
 *
 * The row is drawn without the string, and the thresholds come from epsilon and the geometry, which
 * are both found out here.
 *
 * @module projective_sketch
 */

import { LARGEST, bestGeometry, pointOf, respond } from "./geometry.js";
import { littleEndian, symbolWidth, uniformBelow } from "./sampling.js";
import { constantOf, keyOf, mix } from "./string_code.js";

/** @import { Definition } from "./dither.js" */

const [LEAST_POINTS, MOST_POINTS] = [64, 2048];
const LARGEST_TABLE = 2 ** 24;

/**
 * The mechanism's options, checked.
 *
 * @param {Definition} definition
 * @returns {{rows: number, points: number, seed: bigint}}
 */
function optionsOf({ name, options = {} }) {
  const known = { rows: 1024, points: 364, seed: 0, ...options };
  const { rows, points, seed } = known;
  const isWhole = Object.values(known).every((number) => Number.isSafeInteger(number));
  const fits = points >= LEAST_POINTS && points <= MOST_POINTS && rows * points <= LARGEST_TABLE;
  if (!isWhole || !fits || rows < 1 || seed < 0 || Object.keys(known).length > 3) {
    throw new TypeError(`options of ${name}: expected rows, points and seed`);
  }
  return { rows, points, seed: BigInt(seed) };
}

/**
 * @param {Definition} definition
 * @returns {import("./mechanisms.js").Mechanism}
 * @throws {TypeError} If the definition's options are none.
 */
export function projectiveSketch(definition) {
  const { name, categories, levels } = definition;
  if (categories !== "open") throw new TypeError(`${name}: expected categories "open"`);
  const { rows, points, seed } = optionsOf(definition);
  /** @type {[number, number]} */
  const limits = [LEAST_POINTS, MOST_POINTS];
  const geometries = levels.map((level) => bestGeometry(Math.min(level, LARGEST), limits, points));
  const counts = geometries.map((one) => Math.max(1, Math.floor((rows * points) / one.points)));
  const firsts = counts.map((_, i) => counts.slice(0, i).reduce((sum, count) => sum + count, 0));
  const symbols = geometries.map((one, i) => counts[i] * one.points);
  const width = symbolWidth(BigInt(Math.max(...symbols)));
  return {
    width,
    randomize(value, level, bits) {
      const key = keyOf(name, value);
      const row = Number(uniformBelow(bits, BigInt(counts[level])));
      const geometry = geometries[level];
      const own = pointOf(mix(key ^ constantOf(seed, firsts[level] + row)), geometry.points);
      const report = row * geometry.points + respond(geometry, own, bits);
      return littleEndian(BigInt(report), width);
    },
  };
}
