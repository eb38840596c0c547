/**
 * Exact thresholds and exact sampling, as in the Python package (`estimators.exact`).
 *
 * @module sampling
 */

import { outside } from "./checks.js";

/**
 * A source of independent uniform 64-bit words.
 *
 * @typedef {object} Bits
 * @property {(count: number) => BigUint64Array} integers
 */

/** @internal */
export const WORD = 1n << 64n;
const MAX_NARROW = 2n ** 24n;
const LOW_56 = (1n << 56n) - 1n;
/** @internal */
export const LEVEL_UNITS = 10_000n; // levels have at most 4 decimal digits
const RANDOM_WORDS = 8192; // getRandomValues hands out at most 65,536 bytes a call

/** @type {Bits} The browser's cryptographic generator. @internal */
export const systemBits = {
  integers(count) {
    const words = new BigUint64Array(count);
    for (let start = 0; start < count; start += RANDOM_WORDS) {
      crypto.getRandomValues(words.subarray(start, start + RANDOM_WORDS));
    }
    return words;
  },
};

// -- Exact thresholds: integers only, rounded towards privacy ------------------------------------

/** @param {bigint} x @returns {number} @internal */
export function bitLength(x) {
  return x === 0n ? 0 : x.toString(2).length;
}

/** Returns a / b, rounded up, for a of at least 0. @param {bigint} a @param {bigint} b @internal */
export function ceilDiv(a, b) {
  return (a + b - 1n) / b;
}

/**
 * Returns a lower and an upper bound of 2^precision e^(numerator / denominator), as integers.
 *
 * The Taylor series of e^y, y at most 1/2, in fixed point, then as many squarings as there were
 * halvings; every step is rounded down for the lower and up for the upper end.
 *
 * @param {bigint} numerator At least 0.
 * @param {bigint} denominator
 * @param {bigint} precision
 * @returns {[bigint, bigint]}
 * @internal
 */
export function expBounds(numerator, denominator, precision) {
  const one = 1n << precision;
  if (numerator === 0n) return [one, one];
  const halvings = bitLength((2n * numerator) / denominator);
  const divisor = denominator << BigInt(halvings);
  let [lower, upper, lowTerm, highTerm] = [one, one, one, one];
  for (let step = 1n; highTerm > 1n; step += 1n) {
    lowTerm = (lowTerm * numerator) / (divisor * step);
    highTerm = ceilDiv(highTerm * numerator, divisor * step);
    lower += lowTerm;
    upper += highTerm;
  }
  upper += 2n * highTerm;
  for (let i = 0; i < halvings; i += 1) {
    lower = (lower * lower) >> precision;
    upper = ceilDiv(upper * upper, one);
  }
  return [lower, upper];
}

/** @typedef {number | [bigint, bigint]} Epsilon At most 4 decimal digits; or a fraction. */

/**
 * Returns f(e^(epsilon / parts)) exactly, for a monotone function f to integers, whose argument is
 * a fraction: an interval around e^x is narrowed until f has the same value at both ends.
 *
 * @param {Epsilon} epsilon
 * @param {(numerator: bigint, denominator: bigint) => bigint} f
 * @param {bigint} [parts]
 * @returns {bigint}
 * @internal
 */
export function atExp(epsilon, f, parts = 1n) {
  const [numerator, whole] =
    typeof epsilon === "number" ? [unitsOf(epsilon), LEVEL_UNITS] : epsilon;
  const denominator = whole * parts;
  for (let precision = 128n; ; precision *= 2n) {
    const one = 1n << precision;
    const [low, high] = expBounds(numerator, denominator, precision).map((end) => f(end, one));
    if (low === high) return low;
  }
}

/**
 * Returns an epsilon in units of 10^-4. More decimals are refused, because rounding up would exceed
 * the epsilon.
 *
 * @param {number} epsilon
 * @throws {RangeError}
 * @internal
 */
export function unitsOf(epsilon) {
  const units = Math.round(epsilon * Number(LEVEL_UNITS));
  if (!(units > 0) || units / Number(LEVEL_UNITS) !== epsilon) {
    throw outside(`epsilon = ${epsilon}`, "above 0, at most 4 decimal digits");
  }
  return BigInt(units);
}

/**
 * Returns T = ceil(2^64 outside / (inside e^epsilon + outside)): a word below T misses.
 *
 * Each of the `inside` outputs of the value's own set has probability (2^64 - T) / (2^64 inside),
 * each of the `outside` others T / (2^64 outside). T is rounded up, so that the ratio is at most
 * e^epsilon.
 *
 * @param {Epsilon} epsilon Above 0.
 * @param {bigint} [inside]
 * @param {bigint} [outside]
 * @param {bigint} [parts] The threshold is that of epsilon / parts.
 * @returns {bigint}
 * @internal
 */
export function missThreshold(epsilon, inside = 1n, outside = 1n, parts = 1n) {
  return atExp(
    epsilon, (e, one) => ceilDiv(WORD * outside * one, inside * e + outside * one), parts,
  );
}

/**
 * Returns 2^floor(log2 min(e^epsilon, 2k)): the number of blocks of Hadamard response.
 *
 * @param {number} epsilon
 * @param {number} categories k.
 * @returns {bigint}
 * @internal
 */
export function blockCount(epsilon, categories) {
  const most = 2n * BigInt(categories);
  return atExp(epsilon, (e, one) => {
    const whole = e / one;
    return 1n << BigInt(bitLength(whole < most ? whole : most) - 1);
  });
}

/**
 * Returns T = floor(2^64 (e^epsilon - 1) / (e^epsilon + symbols - 1)): a symbol is kept if a word
 * is below T, and otherwise replaced by a uniform symbol. T is rounded down, so that the ratio is
 * at most e^epsilon whatever else the definition says.
 *
 * @param {number} epsilon
 * @param {bigint} symbols
 * @returns {bigint}
 * @internal
 */
export function keepThreshold(epsilon, symbols) {
  return atExp(epsilon, (e, one) => (WORD * (e - one)) / (e + (symbols - 1n) * one));
}

// -- Exact sampling -------------------------------------------------------------------------------

/** Returns `count` uniform bytes. @param {Bits} bits @param {number} count */
function uniformBytes(bits, count) {
  const words = bits.integers(Math.ceil(count / 8));
  return new Uint8Array(words.buffer, words.byteOffset, count);
}

/**
 * Draws coins that are true with probability threshold / 2^64, exactly: the first byte of a word
 * decides, unless it ties with the threshold's.
 *
 * @param {Bits} bits
 * @param {bigint} threshold
 * @param {number} count
 * @returns {boolean[]}
 * @internal
 */
export function bernoulli(bits, threshold, count) {
  const first = Number(threshold >> 56n);
  const drawn = uniformBytes(bits, count);
  const coins = Array.from(drawn, (byte) => byte < first);
  const tied = coins.flatMap((_, i) => (drawn[i] === first ? [i] : []));
  if (tied.length > 0) {
    const rest = bits.integers(tied.length);
    tied.forEach((i, n) => {
      coins[i] = rest[n] >> 8n < (threshold & LOW_56);
    });
  }
  return coins;
}

/**
 * Draws coins that are true with probabilities given as numbers, within 2^-61; the first byte of
 * each word decides, unless it ties with the probability's.
 *
 * @param {Bits} bits
 * @param {number[]} fractions
 * @returns {boolean[]}
 * @internal
 */
export function roundsUp(bits, fractions) {
  const scaled = fractions.map((fraction) => fraction * 2 ** 8);
  const drawn = uniformBytes(bits, fractions.length);
  const tied = scaled.map((each, i) => drawn[i] === Math.trunc(each));
  const rest = bits.integers(tied.filter(Boolean).length);
  let used = 0;
  return scaled.map((each, i) =>
    tied[i] ? Number(rest[used++] >> 11n) < (each - drawn[i]) * 2 ** 53 : drawn[i] < each,
  );
}

/** Draws one coin as `roundsUp` does. @param {Bits} bits @param {number} fraction @internal */
export function roundUp(bits, fraction) {
  return roundsUp(bits, [fraction])[0];
}

/**
 * Draws an integer uniform on [0, bound), by rejection; for a bound of up to 2^24, from 32 bits of
 * each word.
 *
 * @param {Bits} bits
 * @param {bigint} bound
 * @internal
 */
export function uniformBelow(bits, bound) {
  const largest = bound > MAX_NARROW ? WORD - 1n : 2n ** 32n - 1n;
  const limit = (largest / bound) * bound;
  let drawn = bits.integers(1)[0] & largest;
  while (drawn >= limit) drawn = bits.integers(1)[0] & largest;
  return drawn % bound;
}

/**
 * Draws an integer uniform on [0, bound) from single bytes, by rejection.
 *
 * @param {Bits} bits
 * @param {number} bound 1 to 255.
 * @internal
 */
export function byteBelow(bits, bound) {
  let [drawn] = uniformBytes(bits, 1);
  while (drawn >= 256 - (256 % bound)) [drawn] = uniformBytes(bits, 1);
  return drawn % bound;
}

/**
 * Draws an integer uniform on [0, bound) without `value`.
 *
 * @param {Bits} bits
 * @param {bigint} value
 * @param {bigint} bound At least 2.
 * @internal
 */
export function uniformOther(bits, value, bound) {
  const drawn = uniformBelow(bits, bound - 1n);
  return drawn >= value ? drawn + 1n : drawn;
}

/** Draws a coin that is true with probability 1/2. @param {Bits} bits @internal */
export function fairCoin(bits) {
  return uniformBytes(bits, 1)[0] < 128;
}

// -- Reports as bytes -----------------------------------------------------------------------------

/** Returns whether a number has an odd number of one bits. @param {bigint} x @internal */
export function isOdd(x) {
  let odd = false;
  for (let rest = x; rest > 0n; rest &= rest - 1n) odd = !odd;
  return odd;
}

/**
 * Returns the bytes of the smallest unsigned integer for indices below `symbols`.
 *
 * @param {bigint} symbols
 * @internal
 */
export function symbolWidth(symbols) {
  const width = [1, 2, 4].find((bytes) => symbols <= 1n << BigInt(8 * bytes));
  if (width === undefined) throw outside(`${symbols} symbols`, "at most 2^32");
  return width;
}

/** @param {bigint} value @param {number} width @returns {Uint8Array} @internal */
export function littleEndian(value, width) {
  return Uint8Array.from({ length: width }, (_, i) => Number((value >> BigInt(8 * i)) & 255n));
}

/**
 * Packs booleans into bytes, one bit each, the first into the lowest bit.
 *
 * @param {boolean[]} ones
 * @returns {Uint8Array}
 * @internal
 */
export function packed(ones) {
  const bytes = new Uint8Array(Math.ceil(ones.length / 8));
  ones.forEach((one, i) => {
    if (one) bytes[i >> 3] |= 1 << (i & 7);
  });
  return bytes;
}
