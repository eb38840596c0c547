/**
 * Strings as keys and as bits, as in the Python package (`estimators.discovery.string_code`).
 *
 * @module string_code
 */

import { outside, shown, textOf, wrong } from "./checks.js";

/**
 * A public prefix code. Its symbols are the bytes, the end, and the tokens, which are byte strings.
 *
 * @typedef {object} Code
 * @property {string[]} tokens The tokens in hexadecimal digits; token i is symbol 257 + i.
 * @property {Record<string, string>} lengths For each context (the byte before a symbol, 256 at the
 *   start, -1 for all others) the number of bits of each symbol, a byte each, in hexadecimal
 *   digits.
 */

const WIDTH = 128; // bits of a string that are kept
const END = 256;
const START = 256;
const SHARED = -1;
const [MOST_TOKENS, LONGEST_TOKEN, LONGEST_CODE] = [400, 32, 64];
/** @internal */
export const GOLDEN = 0x9e3779b97f4a7c15n;
/** @internal */
export const MASK = (1n << 64n) - 1n;

/** @param {unknown} text @returns {Uint8Array} */
function bytesOf(text) {
  if (typeof text !== "string" || !/^([0-9a-f]{2})*$/.test(text)) {
    throw wrong("code", "hexadecimal digits");
  }
  return Uint8Array.from({ length: text.length / 2 }, (_, i) =>
    Number.parseInt(text.slice(2 * i, 2 * i + 2), 16),
  );
}

/** Returns bytes as a string with one character for each. @param {Uint8Array} bytes */
function latin(bytes) {
  return Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
}

/**
 * Returns a string's UTF-8 bytes.
 *
 * @param {string} text
 * @returns {Uint8Array}
 * @throws {RangeError} If it has half a surrogate pair.
 * @internal
 */
export function utf8(text) {
  if (/\p{Surrogate}/u.test(text)) {
    throw outside(`value ${shown(text)}`, "whole Unicode characters");
  }
  return new TextEncoder().encode(text);
}

/** UTF-8 bytes of a string's normal form C. @param {string} text @throws {RangeError} @internal */
export function normalUtf8(text) {
  return utf8(text.normalize("NFC"));
}

/**
 * Returns the code words of one context's symbols: Huffman's code in canonical form.
 *
 * @param {Uint8Array} given The number of bits of each symbol.
 * @returns {{bits: bigint[], lengths: number[]}}
 */
function tableOf(given) {
  const lengths = Array.from(given);
  const bits = new Array(lengths.length).fill(0n);
  const order = lengths.map((_, symbol) => symbol).sort((a, b) => lengths[a] - lengths[b] || a - b);
  let [next, before, whole] = [0n, 0, 0n];
  for (const symbol of order) {
    const length = lengths[symbol];
    if (length < 1 || length > LONGEST_CODE) throw wrong("code", "1 to 64 bits");
    next <<= BigInt(length - before);
    bits[symbol] = next;
    next += 1n;
    before = length;
    whole += 1n << BigInt(LONGEST_CODE - length);
  }
  if (whole !== 1n << BigInt(LONGEST_CODE)) {
    throw wrong("code", "the lengths of a complete code");
  }
  return { bits, lengths };
}

/**
 * Returns a function that turns bytes into the first 128 bits of their code word.
 *
 * @param {Code | undefined} code
 * @returns {(data: Uint8Array) => bigint}
 * @throws {TypeError} If the code is invalid.
 * @internal
 */
export function encoder(code) {
  if (typeof code !== "object" || code === null || !Array.isArray(code.tokens)) {
    throw wrong("code", "tokens and lengths");
  }
  const tokens = code.tokens.slice(0, MOST_TOKENS + 1).map((token) => bytesOf(token));
  const symbols = new Map(tokens.map((token, i) => [latin(token), END + 1 + i]));
  const fits = tokens.every(({ length }) => length >= 2 && length <= LONGEST_TOKEN);
  if (!fits || tokens.length > MOST_TOKENS || symbols.size < tokens.length) {
    throw wrong("code", `at most ${MOST_TOKENS} tokens of 2 to 32 bytes, each once`);
  }
  /** @type {Map<number, ReturnType<typeof tableOf>>} */
  const tables = new Map();
  for (const [context, text] of Object.entries(code.lengths)) {
    const [place, lengths] = [Number(context), bytesOf(text)];
    const isContext = Number.isInteger(place) && place >= SHARED && place <= START;
    if (!isContext || String(place) !== context || lengths.length !== END + 1 + tokens.length) {
      throw wrong("code", `a length a symbol in context ${context}`);
    }
    tables.set(place, tableOf(lengths));
  }
  const shared = tables.get(SHARED);
  if (shared === undefined) throw wrong("code", "a table for all other contexts");
  const sizes = [...new Set(tokens.map(({ length }) => length))].sort((a, b) => b - a);
  return (data) => {
    // a symbol has at least one bit and at most 32 bytes: no more can matter
    const text = latin(data.subarray(0, LONGEST_TOKEN * (WIDTH + 1)));
    let [bits, length, context, at] = [0n, 0, START, 0];
    for (let symbol = -1; symbol !== END && length <= WIDTH; ) {
      const [start, rest] = [at, text.length - at];
      const size = sizes.find((n) => n <= rest && symbols.has(text.slice(start, start + n)));
      const part = text.slice(at, at + (size ?? 1));
      symbol = part === "" ? END : (symbols.get(part) ?? part.charCodeAt(0));
      const table = tables.get(context) ?? shared;
      bits = (bits << BigInt(table.lengths[symbol])) | table.bits[symbol];
      length += table.lengths[symbol];
      context = symbol === END ? END : part.charCodeAt(part.length - 1);
      at += part.length;
    }
    return length <= WIDTH ? bits << BigInt(WIDTH - length) : bits >> BigInt(length - WIDTH);
  };
}

// -- Hashes ---------------------------------------------------------------------------------------

/** The finaliser of SplitMix64, variant 13. @param {bigint} word @internal */
export function mix(word) {
  let mixed = word ^ (word >> 30n);
  mixed = (mixed * 0xbf58476d1ce4e5b9n) & MASK;
  mixed ^= mixed >> 27n;
  mixed = (mixed * 0x94d049bb133111ebn) & MASK;
  return mixed ^ (mixed >> 31n);
}

/**
 * Returns the constant of a hash: a word of SplitMix64.
 *
 * @param {bigint} seed
 * @param {number | bigint} index
 * @internal
 */
export function constantOf(seed, index) {
  return mix((seed + (BigInt(index) + 1n) * GOLDEN) & MASK);
}

/**
 * Returns the key of a value of an open vocabulary.
 *
 * @param {string} name The metric's name.
 * @param {unknown} value
 * @returns {bigint}
 * @throws {TypeError | RangeError} If the value is not a string, or has half a surrogate pair.
 * @internal
 */
export function keyOf(name, value) {
  return stringKey(utf8(textOf(value, name)));
}

const IV = [
  0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
];
const SIGMA = [
  "0123456789abcdef", "ea489fd61c02b753", "b8c052fdae367194", "7931dcbe265a40f8",
  "905724afe1bc683d", "2c6a0b834d75fe19", "c51fed4a0763928b", "db7ec13950f4862a",
  "6fe9b308c2d714a5", "a2847615fb9e3cd0", "0123456789abcdef", "ea489fd61c02b753",
].map((round) => Array.from(round, (digit) => Number.parseInt(digit, 16)));
const QUARTERS = [
  [0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15],
  [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14],
];
const BLOCK = 128;

/** A 64-bit word, rotated to the right. @param {bigint} word @param {bigint} by */
function turned(word, by) {
  return (word >> by) | ((word << (64n - by)) & MASK);
}

/**
 * Returns the key of a string: its BLAKE2b hash of 8 bytes (RFC 7693), as a little-endian number.
 *
 * @param {Uint8Array} data
 * @returns {bigint}
 * @internal
 */
export function stringKey(data) {
  const state = [...IV];
  state[0] ^= 0x01010008n;
  const blocks = Math.max(1, Math.ceil(data.length / BLOCK));
  for (let block = 0; block < blocks; block += 1) {
    const padded = new Uint8Array(BLOCK);
    padded.set(data.subarray(block * BLOCK, (block + 1) * BLOCK));
    const view = new DataView(padded.buffer);
    const words = Array.from({ length: 16 }, (_, i) => view.getBigUint64(8 * i, true));
    const v = [...state, ...IV];
    v[12] ^= BigInt(Math.min(data.length, (block + 1) * BLOCK));
    if (block === blocks - 1) v[14] ^= MASK;
    for (const order of SIGMA) {
      QUARTERS.forEach(([a, b, c, d], i) => {
        for (const [word, far, near] of [[order[2 * i], 32n, 24n], [order[2 * i + 1], 16n, 63n]]) {
          v[a] = (v[a] + v[b] + words[Number(word)]) & MASK;
          v[d] = turned(v[d] ^ v[a], BigInt(far));
          v[c] = (v[c] + v[d]) & MASK;
          v[b] = turned(v[b] ^ v[c], BigInt(near));
        }
      });
    }
    state.forEach((word, i) => {
      state[i] = word ^ v[i] ^ v[i + 8];
    });
  }
  return state[0];
}
