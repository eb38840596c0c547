/**
 * The randomizer of `projective_sketch`, as in the Python package: a string is hashed to a point in
 * each of many rows, and a report is a point of one row.
 *
 * The row is drawn without the string, and the thresholds come from epsilon and the geometry, which
 * are both computed here.
 *
 * @module projective_sketch
 */

import { LARGEST_TABLE, checkOpen, wholeOptions } from "./checks.js";
import { LARGEST, bestGeometry, pointOf, respond } from "./geometry.js";
import { littleEndian, symbolWidth, uniformBelow } from "./sampling.js";
import { constantOf, keyOf, mix } from "./string_code.js";

/** @import { Definition } from "./dither.js" */

const [LEAST_POINTS, MOST_POINTS] = [64, 2048];

/**
 * @param {Definition} definition
 * @returns {import("./mechanisms.js").Mechanism}
 * @throws {TypeError} If the definition's options are invalid.
 */
export function projectiveSketch(definition) {
  const { name, levels } = definition;
  checkOpen(definition);
  const known = { rows: 1024, points: 364, seed: 0 };
  const { rows, points, seed } = wholeOptions(definition, known, (given) => {
    const isPlane = given.points >= LEAST_POINTS && given.points <= MOST_POINTS;
    return isPlane && given.rows >= 1 && given.rows * given.points <= LARGEST_TABLE;
  });
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
      const word = mix(key ^ constantOf(BigInt(seed), firsts[level] + row));
      const own = pointOf(word, geometry.points);
      const report = row * geometry.points + respond(geometry, own, bits);
      return littleEndian(BigInt(report), width);
    },
  };
}
