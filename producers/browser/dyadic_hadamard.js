/**
 * The randomizer of `dyadic_hadamard`: it reports a number's bin at one depth of a tree of bins.
 *
 * @module dyadic_hadamard
 */

import { numberOf } from "./checks.js";
import {
  bernoulli, bitLength, isOdd, keepThreshold, littleEndian, uniformBelow,
} from "./sampling.js";

/** @import { Definition } from "./dither.js" */
/** @import { Mechanism } from "./mechanisms.js" */

const GRAIN = 2 ** 16; // probabilities of depths are multiples of its inverse
const MOST_BLOCK_BITS = 7;

/** @param {Definition} definition @returns {Mechanism} */
export function dyadicHadamard(definition) {
  const edges = binEdges(definition);
  const height = bitLength(BigInt(edges.length - 2));
  const levels = definition.levels.map((epsilon, level) => {
    const constants = treeConstants(definition, level, height);
    const symbols = 1n << BigInt(constants.blockBits + constants.hashBits);
    return { ...constants, symbols, threshold: keepThreshold(epsilon, symbols) };
  });
  return {
    width: 5,
    randomize(value, level, bits) {
      const given = numberOf(value, definition.name);
      const bin = BigInt(edges.slice(1, -1).filter((edge) => edge <= given).length);
      const { blockBits, hashBits, depths, symbols, threshold } = levels[level];
      let drawn = Number(uniformBelow(bits, BigInt(GRAIN)));
      const depth = depths.findIndex((chance) => (drawn -= chance) < 0);
      const free = BigInt(depth - blockBits);
      const rows = (1n << free) - 1n;
      const first = 1n + uniformBelow(bits, rows);
      let second = 0n;
      if (hashBits === 2) {
        second = 1n + uniformBelow(bits, rows - 1n);
        if (second >= first) second += 1n;
      }
      const node = bin >> BigInt(height - depth);
      const own = node & rows;
      const parities = (isOdd(first & own) ? 1n : 0n) | (isOdd(second & own) ? 2n : 0n);
      const [kept] = bernoulli(bits, threshold, 1);
      const other = uniformBelow(bits, symbols);
      const symbol = kept ? ((node >> free) << BigInt(hashBits)) | parities : other;
      return littleEndian(BigInt(depth) | (first << 4n) | (second << 16n) | (symbol << 28n), 5);
    },
  };
}

/**
 * Returns the edges of a distribution's bins.
 *
 * @param {Definition} definition
 * @returns {number[]}
 */
function binEdges({ name, range, bins, scale, edges }) {
  let found = Array.isArray(edges) ? edges : [];
  const isKnown = scale === undefined || scale === "linear" || scale === "log";
  if (edges === undefined && isKnown && Array.isArray(range) && range.length === 2) {
    const [[low, high], count] = [range, bins ?? 0];
    const between = (/** @type {number} */ share) =>
      scale === "log" ? low * (high / low) ** share : low + (high - low) * share;
    found = Array.from({ length: count + 1 }, (_, i) => between(i / count));
  }
  const isAscending = found.every(
    (edge, i) => Number.isFinite(edge) && (i === 0 || edge > found[i - 1]),
  );
  if (found.length < 3 || !isAscending) {
    throw new TypeError(`${name}: a definition without 2 bins or more`);
  }
  return found;
}

/**
 * Returns how a level's reports are drawn, by the definition; whatever it says, epsilon holds.
 *
 * @param {Definition} definition
 * @param {number} level
 * @param {number} height The tree has 2^height bins.
 */
function treeConstants({ name, constants }, level, height) {
  const [blockBits, hashBits] = [constants?.block_bits?.[level], constants?.hash_bits?.[level]];
  const depths = constants?.depths?.[level];
  const least = Number(blockBits) + Number(hashBits);
  const isChance = (/** @type {number} */ chance, /** @type {number} */ depth) =>
    Number.isInteger(chance) && chance >= 0 && (depth >= least || chance === 0);
  if (
    !Number.isInteger(blockBits) ||
    !(Number(blockBits) >= 0 && Number(blockBits) <= MOST_BLOCK_BITS) ||
    (hashBits !== 1 && hashBits !== 2) ||
    !Array.isArray(depths) ||
    depths.length !== height + 1 ||
    !depths.every(isChance) ||
    depths.reduce((sum, chance) => sum + chance, 0) !== GRAIN
  ) {
    throw new TypeError(`${name}: a definition whose constants fit no reports of level ${level}`);
  }
  return { blockBits: Number(blockBits), hashBits, depths };
}
