/**
 * The randomizer of `count_sketch`, as in the Python package: a string is hashed to a bucket and a
 * sign in each of many rows, and a report is a symbol of one row.
 *
 * @module count_sketch
 */

import { LARGEST_TABLE, checkOpen, wholeOptions } from "./checks.js";
import {
  WORD, atExp, bernoulli, bitLength, isOdd, littleEndian, missThreshold, symbolWidth, uniformBelow,
  uniformOther,
} from "./sampling.js";
import { constantOf, keyOf, mix } from "./string_code.js";

/** @import { Definition } from "./dither.js" */

/**
 * Returns the largest power of two w with 2 w^2 <= (e^epsilon - 1)^2, at least 1.
 *
 * @param {number} epsilon
 */
function bestBlocks(epsilon) {
  return atExp(epsilon, (e, one) => {
    const bits = bitLength((e - one) ** 2n / (2n * one * one));
    return 1n << BigInt(Math.max(0, bits - 1) >> 1);
  });
}

/**
 * @param {Definition} definition
 * @returns {import("./mechanisms.js").Mechanism}
 * @throws {TypeError} If the definition's options are invalid.
 */
export function countSketch(definition) {
  const { name, levels } = definition;
  checkOpen(definition);
  const known = wholeOptions(definition, { rows: 512, buckets: 64, seed: 0 }, (given) => {
    const { rows, buckets } = given;
    const isPower = buckets >= 1 && Number.isInteger(Math.log2(buckets));
    return isPower && rows >= 1 && rows * buckets <= LARGEST_TABLE;
  });
  const [rows, buckets, seed] = [known.rows, known.buckets, known.seed].map(BigInt);
  const bucketBits = BigInt(bitLength(buckets) - 1);
  const used = levels.map((epsilon) => {
    const best = bestBlocks(epsilon);
    const blocks = best < buckets ? best : buckets;
    return { blocks, threshold: missThreshold(epsilon, 1n, 2n * blocks - 1n) };
  });
  const width = symbolWidth(2n * rows * buckets);
  return {
    width,
    randomize(value, level, bits) {
      const key = keyOf(name, value);
      const { blocks, threshold } = used[level];
      const size = buckets / blocks;
      const drawn = uniformBelow(bits, rows * size);
      const [row, r] = [drawn / size, drawn % size];
      const word = mix(key ^ constantOf(seed, row));
      const bucket = (word * (1n << bucketBits)) / WORD;
      const negative = (word & 1n) === 1n;
      const own = 2n * (bucket / size) + (negative !== isOdd(r & (bucket % size)) ? 1n : 0n);
      const [missed] = bernoulli(bits, threshold, 1);
      const symbol = missed ? uniformOther(bits, own, 2n * blocks) : own;
      const place = row * buckets + (symbol / 2n) * size + r;
      return littleEndian(2n * place + (symbol % 2n), width);
    },
  };
}
