/**
 * The randomizers for values that are one of k categories.
 *
 * @module categories
 */

import { labelled } from "./axes.js";
import {
  LARGEST_TABLE, LEAVE_OUT, conversion, listing, outside, shown, wholeOptions, wrong, wrongOptions,
} from "./checks.js";
import { categoryGeometry, respond } from "./geometry.js";
import {
  atExp, bernoulli, bitLength, blockCount, ceilDiv, fairCoin, isOdd, littleEndian, missThreshold,
  WORD, packed, symbolWidth, uniformBelow, uniformOther,
} from "./sampling.js";
import { constantOf, keyOf, mix } from "./string_code.js";

/** @import { Definition } from "./dither.js" */
/** @import { Mechanism } from "./mechanisms.js" */
/** @import { Bits } from "./sampling.js" */

/** @param {Definition} definition @returns {number} */
export function categoryCount({ name, categories }) {
  const count = Array.isArray(categories) ? categories.length : 0; // a number could be huge
  if (count < 2) throw wrong(name, "names of two or more categories");
  return count;
}

/**
 * Returns the index of a category, given by its name, its index, or the value of each axis.
 *
 * @param {Definition} definition
 * @param {unknown} given
 */
export function categoryIndex(definition, given) {
  const value = labelled(definition, given);
  const count = categoryCount(definition);
  const names = /** @type {string[]} */ (definition.categories);
  const index = typeof value === "string" ? names.indexOf(value) : /** @type {number} */ (value);
  const isOtherNumber = (/** @type {string} */ label, /** @type {number} */ position) =>
    /^-?\d+$/.test(label) && label !== `${position}`;
  if (Number.isInteger(value) && names.some(isOtherNumber)) {
    throw outside(
      `category ${value} of ${definition.name}: an integer may be an index or one of the names`,
      "a name, as String() makes",
    );
  }
  if (Number.isInteger(index) && index >= 0 && index < count) return index;
  const listed = [...names].sort().slice(0, 10).join(", ") + (count > 10 ? ` and ${count - 10} more` : "");
  const isIndex = Number.isInteger(value) || typeof value === "bigint";
  const isName = ["string", "boolean"].includes(typeof value);
  throw outside(
    `category ${shown(value)} of ${definition.name}`,
    isIndex ? `0 to ${count - 1}${conversion(value)}`
      : `one of ${listed}${isName ? "" : listing(value) + LEAVE_OUT}`,
  );
}

/** @param {Definition} definition @returns {Mechanism} */
export function grr(definition) {
  const count = BigInt(categoryCount(definition));
  const thresholds = definition.levels.map((epsilon) => missThreshold(epsilon, 1n, count - 1n));
  const width = symbolWidth(count);
  return {
    width,
    randomize(value, level, bits) {
      const own = BigInt(categoryIndex(definition, value));
      const [missed] = bernoulli(bits, thresholds[level], 1);
      return littleEndian(missed ? uniformOther(bits, own, count) : own, width);
    },
  };
}

/** @param {Definition} definition @returns {Mechanism} */
export function rappor(definition) {
  const thresholds = definition.levels.map((epsilon) => missThreshold(epsilon, 1n, 1n, 2n));
  const count = categoryCount(definition);
  return {
    width: Math.ceil(count / 8),
    randomize(value, level, bits) {
      const own = categoryIndex(definition, value);
      const flipped = bernoulli(bits, thresholds[level], count);
      return packed(flipped.map((one, i) => one !== (i === own)));
    },
  };
}

/** @param {Definition} definition @returns {Mechanism} */
export function oue(definition) {
  const thresholds = definition.levels.map((epsilon) => missThreshold(epsilon));
  const count = categoryCount(definition);
  return {
    width: Math.ceil(count / 8),
    randomize(value, level, bits) {
      const own = categoryIndex(definition, value);
      const ones = bernoulli(bits, thresholds[level], count);
      ones[own] = fairCoin(bits);
      return packed(ones);
    },
  };
}

/** @param {Definition} definition @returns {Mechanism} */
export function subsetSelection(definition) {
  const count = categoryCount(definition);
  const { size = null } = /** @type {{size?: unknown}} */ (definition.options ?? {});
  const isSize = Number.isInteger(size) && Number(size) >= 1 && Number(size) < count;
  if (size !== null && !isSize) {
    throw wrongOptions(definition, `a size from 1 to ${count - 1}`);
  }
  const levels = definition.levels.map((epsilon) => {
    const members = size === null ? bestSize(epsilon, count) : Number(size);
    return { members, threshold: missThreshold(epsilon, BigInt(members), BigInt(count - members)) };
  });
  return {
    width: Math.ceil(count / 8),
    randomize(value, level, bits) {
      const own = categoryIndex(definition, value);
      const { members, threshold } = levels[level];
      const [missed] = bernoulli(bits, threshold, 1);
      const others = uniformSubset(bits, count - 1, missed ? members : members - 1);
      return packed([...others.slice(0, own), !missed, ...others.slice(own)]);
    },
  };
}

/**
 * Returns the integer nearest to k / (e^epsilon + 1), at least 1.
 *
 * @param {number} epsilon
 * @param {number} count
 */
export function bestSize(epsilon, count) {
  const k = BigInt(count);
  const nearest = atExp(epsilon, (e, one) => (2n * k * one + e + one) / (2n * (e + one)));
  return Math.max(1, Number(nearest));
}

/**
 * Draws a uniform subset of `size` out of `total`, by Floyd's algorithm for the subset or its
 * complement.
 *
 * @param {Bits} bits
 * @param {number} total
 * @param {number} size
 * @returns {boolean[]}
 */
function uniformSubset(bits, total, size) {
  const smaller = Math.min(size, total - size);
  const chosen = new Array(total).fill(false);
  for (let last = total - smaller; last < total; last += 1) {
    const drawn = Number(uniformBelow(bits, BigInt(last + 1)));
    chosen[chosen[drawn] ? last : drawn] = true;
  }
  return smaller === size ? chosen : chosen.map((member) => !member);
}

/** @param {Definition} definition @returns {Mechanism} */
export function projectiveGeometryResponse(definition) {
  const count = categoryCount(definition);
  const geometries = definition.levels.map((epsilon) => categoryGeometry(epsilon, count));
  const width = symbolWidth(BigInt(Math.max(...geometries.map(({ points }) => points))));
  return {
    width,
    randomize(value, level, bits) {
      const own = categoryIndex(definition, value);
      return littleEndian(BigInt(respond(geometries[level], own, bits)), width);
    },
  };
}

/** @param {Definition} definition @returns {Mechanism} */
export function recursiveHadamard(definition) {
  const count = categoryCount(definition);
  const size = 1n << BigInt(bitLength(BigInt(count - 1)));
  const levels = definition.levels.map((epsilon) => {
    const bitsOfSymbol = bestBits(epsilon, count);
    const blocks = 1n << BigInt(bitsOfSymbol - 1);
    const threshold = missThreshold(epsilon, 1n, 2n * blocks - 1n);
    return { blocks, rows: size / blocks, threshold };
  });
  const width = symbolWidth(2n * size);
  return {
    width,
    randomize(value, level, bits) {
      const own = BigInt(categoryIndex(definition, value));
      const { blocks, rows, threshold } = levels[level];
      const row = uniformBelow(bits, rows);
      const kept = 2n * (own % blocks) + (isOdd(row & (own / blocks)) ? 1n : 0n);
      const [missed] = bernoulli(bits, threshold, 1);
      const symbol = missed ? uniformOther(bits, kept, 2n * blocks) : kept;
      return littleEndian(2n * blocks * row + symbol, width);
    },
  };
}

/**
 * Returns the number of bits of a symbol with the least variance at frequencies of 1/k each, in
 * exact arithmetic.
 *
 * @param {number} epsilon
 * @param {number} count k.
 */
function bestBits(epsilon, count) {
  const k = BigInt(count);
  let best = { bits: 0, numerator: 0n, denominator: 1n };
  for (let bits = 1; bits <= bitLength(k - 1n) + 1; bits += 1) {
    const [others, blocks] = [(1n << BigInt(bits)) - 1n, 1n << BigInt(bits - 1)];
    const missed = missThreshold(epsilon, 1n, others);
    // u and c = p - u, in units of 1 / (2^64 others)
    const [other, unit] = [missed, WORD * others];
    const contrast = (WORD - missed) * others - other;
    const [small, larger] = [k / blocks, k % blocks];
    const squares = larger * (small + 1n) ** 2n + (blocks - larger) * small ** 2n;
    // (2u + c squares / k^2) / c^2; 1 / k^2 less for all
    const numerator = unit * (2n * other * k * k + contrast * squares);
    const denominator = contrast * contrast;
    if (best.bits === 0 || numerator * best.denominator < best.numerator * denominator) {
      best = { bits, numerator, denominator };
    }
  }
  return best.bits;
}

/** @param {Definition} definition @returns {Mechanism} */
export function hadamardResponse(definition) {
  const categories = categoryCount(definition);
  const levels = definition.levels.map((epsilon) => {
    const blocks = blockCount(epsilon, categories);
    const size = 1n << BigInt(bitLength(ceilDiv(BigInt(categories), blocks)));
    const symbols = blocks * size;
    const half = size / 2n;
    return { blocks, size, symbols, half, threshold: missThreshold(epsilon, half, symbols - half) };
  });
  const symbols = levels.map((each) => each.symbols);
  const width = symbolWidth(symbols.reduce((most, each) => (each > most ? each : most)));
  return {
    width,
    randomize(value, level, bits) {
      const own = BigInt(categoryIndex(definition, value));
      const { blocks, size, symbols, half, threshold } = levels[level];
      const block = own % blocks;
      const row = own / blocks + 1n;
      const [missed] = bernoulli(bits, threshold, 1);
      const drawn = uniformBelow(bits, missed ? symbols - half : half);
      if (missed && drawn >= half) {
        const far = drawn - half;
        return littleEndian(far >= block * size ? far + size : far, width);
      }
      // half the columns of the block: a bit inserted at the row's lowest one bit decides the sign
      const lowest = row & -row;
      let column = ((drawn & ~(lowest - 1n)) << 1n) | (drawn & (lowest - 1n));
      if (isOdd(row & column) !== missed) column ^= lowest;
      return littleEndian(block * size + column, width);
    },
  };
}

/** @param {Definition} definition @returns {Mechanism} */
export function projection(definition) {
  const { name, levels, options = {}, categories } = definition;
  const thresholds = levels.map((epsilon) => missThreshold(epsilon));
  const isOpen = categories === "open";
  const isHashed = Object.keys(options).length > 0;
  const { rows, seed } = wholeOptions(definition, { rows: 0, seed: 0 }, (given) =>
    isHashed ? given.rows >= 1 && given.rows <= LARGEST_TABLE : !isOpen,
  );
  const count = isHashed
    ? BigInt(rows)
    : 1n << BigInt(bitLength(BigInt(categoryCount(definition))));
  const width = symbolWidth(2n * count);
  return {
    width,
    randomize(value, level, bits) {
      const own = isOpen ? keyOf(name, value) : BigInt(categoryIndex(definition, value));
      const row = uniformBelow(bits, count);
      const isNegative = isHashed
        ? mix(constantOf(BigInt(seed), row) ^ mix(own)) >> 63n === 0n
        : isOdd(row & (own + 1n));
      const [flipped] = bernoulli(bits, thresholds[level], 1);
      return littleEndian(2n * row + (isNegative === flipped ? 1n : 0n), width);
    },
  };
}
