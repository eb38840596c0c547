/**
 * The randomizer of `prefix_tree`, as in the Python package: strings are discovered from hashes of
 * prefixes of their code words, and of whole strings; a report is about one of these hashes.
 *
 * Whatever a definition says, its code and its options are functions of the string alone, and the
 * thresholds come from epsilon and the geometry, which are both computed here.
 *
 * @module prefix_tree
 */

import { LARGEST_TABLE, checkOpen, textOf, wholeOptions, wrongOptions } from "./checks.js";
import { LARGEST, bestGeometry, pointOf, respond } from "./geometry.js";
import { littleEndian, symbolWidth, uniformBelow } from "./sampling.js";
import { GOLDEN, MASK, constantOf, encoder, mix, normalUtf8, stringKey } from "./string_code.js";

/** @import { Definition } from "./dither.js" */

const WIDTH = 128;
const TREE_CONSTANTS = 256; // constants that are reserved for the trees of levels

/**
 * Returns the mechanism's options, checked.
 *
 * @param {Definition} definition
 * @returns {{depths: number[], rows: number, seed: bigint}}
 */
function optionsOf(definition) {
  const known = { first: 16, last: 64, step: 4, rows: 256, seed: 0 };
  const { first, last, step, rows, seed } = wholeOptions(definition, known, (given) => {
    const isTree = given.first >= 8 && given.first <= 16 && given.last >= given.first;
    const isStep = given.step >= 1 && given.step <= 8 && given.last <= WIDTH;
    return isTree && isStep && (given.last - given.first) % given.step === 0 && given.rows >= 1;
  });
  const depths = Array.from({ length: (last - first) / step + 1 }, (_, i) => first + step * i);
  return { depths, rows, seed: BigInt(seed) };
}

/**
 * Returns the hash of the first bits of a code word, up to and including those of a group.
 *
 * @param {bigint} bits The 128 bits of the code word.
 * @param {number[]} depths
 * @param {number} group
 */
function prefixHash(bits, depths, group) {
  let [hash, before] = [0n, 0];
  for (const [index, depth] of depths.slice(0, group + 1).entries()) {
    const block = (bits >> BigInt(WIDTH - depth)) & ((1n << BigInt(depth - before)) - 1n);
    hash = mix(hash ^ mix((block + BigInt(index + 1) * GOLDEN) & MASK));
    before = depth;
  }
  return hash;
}

/**
 * @param {Definition} definition
 * @returns {import("./mechanisms.js").Mechanism}
 * @throws {TypeError} If the definition's code or options are invalid.
 */
export function prefixTree(definition) {
  const { name, code, levels } = definition;
  checkOpen(definition);
  const { depths, rows, seed } = optionsOf(definition);
  const encode = encoder(code);
  const groups = depths.length;
  const used = levels.map((level) => Math.min(level, LARGEST));
  const trees = used.map((epsilon) => bestGeometry(epsilon, [2 ** 13, 2 ** 17], 2 ** 15));
  const sketches = used.map((epsilon) => bestGeometry(epsilon, [128, 2048], 1536));
  const symbols = levels.map((_, i) => groups * trees[i].points + rows * sketches[i].points);
  const most = Math.max(...symbols);
  if (most >= LARGEST_TABLE) throw wrongOptions(definition, "fewer rows");
  const width = symbolWidth(BigInt(most));
  return {
    width,
    randomize(value, level, bits) {
      const data = normalUtf8(textOf(value, name));
      const drawn = Number(uniformBelow(bits, BigInt(3 * groups)));
      const isWhole = drawn < groups;
      const group = isWhole
        ? Number(uniformBelow(bits, BigInt(rows)))
        : Math.floor((drawn - groups) / 2);
      const geometry = (isWhole ? sketches : trees)[level];
      const own = isWhole
        ? stringKey(data) ^ constantOf(seed, TREE_CONSTANTS + level * rows + group)
        : prefixHash(encode(data), depths, group) ^ constantOf(seed, level);
      const { points } = geometry;
      const point = respond(geometry, pointOf(mix(own), points), bits);
      const start = isWhole ? groups * trees[level].points : 0;
      const report = start + group * points + point;
      return littleEndian(BigInt(report), width);
    },
  };
}
