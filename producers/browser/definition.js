/**
 * Derives what a definition means, and what it allows to be asked, without trusting its sender.
 *
 * A server may send any definition, and another one tomorrow. So the page derives the revision
 * itself, from the same text as the Python package, byte for byte, and which rounds and thresholds
 * a search for a minimum or maximum can have.
 *
 * @module definition
 */

import { chosenFor } from "./auto.js";
import { LIMITS, checkLimits, outside, wrong } from "./checks.js";
import { repeatedBy } from "./repetition.js";

/** @import { Definition } from "./dither.js" */

const KINDS = ["minimum", "maximum"];
const SPLITS = ["users", "budget"];
const LARGEST_LEVEL = 64;
const MOST_BYTES = 64; // of an attribute's name, and of its value
const MOST_KEYS = 512; // of a table: options, constants, a rule, or a code of strings
const OTHER = "other";

/**
 * Throws unless a definition's levels are ascending epsilons, above 0 and at most 64.
 *
 * @param {Definition} definition
 * @throws {RangeError}
 * @internal
 */
export function checkLevels({ name, levels }) {
  const isList = Array.isArray(levels) && levels.length >= 1;
  const fits = (/** @type {number} */ level, /** @type {number} */ i) =>
    typeof level === "number" && level > (i > 0 ? levels[i - 1] : 0) && level <= LARGEST_LEVEL;
  if (!isList || !levels.every(fits)) {
    throw outside(
      `levels of ${name}`,
      `1 to ${LIMITS.levels} ascending epsilons above 0, at most ${LARGEST_LEVEL}`,
    );
  }
}

// -- The canonical form ---------------------------------------------------------------------------

/**
 * Returns all that a report and its pane mean, as one line of JSON in ASCII: with sorted keys, no
 * spaces, numbers as Python writes them. It is `Metric.canonical` of the Python package.
 *
 * @param {Definition} definition The answer to `GET /v1/metrics/NAME`.
 * @returns {string}
 * @throws {TypeError | RangeError} If something is missing, or too large.
 */
export function canonicalForm(definition) {
  checkLimits(definition);
  const { name, kind, mechanism, levels, range, categories, options = {} } = definition;
  const pane = Math.round(Number(definition.pane_seconds) * 1000);
  if (!(pane > 0) || typeof kind !== "string" || !Array.isArray(levels)) {
    throw wrong(name, `a whole definition, as GET /v1/metrics/${name} answers`);
  }
  /** @type {Record<string, string>} */
  const meaning = {
    categories: listed(categories),
    kind: quoted(kind),
    levels: listOf(levels, float),
    mechanism: quoted(mechanism),
    options: written(options),
    pane: String(pane),
    range: range === undefined ? "null" : listOf(range, float),
  };
  const given = /** @type {Record<string, unknown>} */ (definition);
  for (const [key, write] of Object.entries(AS_GIVEN)) {
    if (given[key] !== undefined) meaning[key] = write(given[key]);
  }
  if (definition.code !== undefined) meaning.discover = quoted(digestOf(written(definition.code)));
  if (mechanism === "auto") meaning.chosen = listOf(chosenFor(definition), quoted);
  if (mechanism === "repetition") {
    const { of, repeats } = repeatedBy(definition);
    meaning.chosen = listOf(repeats.map((times) => `${times} x ${of}`), quoted);
  }
  if (definition.radius !== undefined) {
    meaning.coordinates = listOf(definition.coordinates, quoted);
    meaning.radius = float(definition.radius);
  }
  if (definition.trust !== undefined && definition.trust !== "local") {
    meaning.trust = quoted(definition.trust);
  }
  if (definition.memoized) meaning.memoized = "true";
  if (definition.crowd !== undefined) {
    const { minimum, wait_seconds: wait, delta, dishonest } = definition.crowd;
    meaning.crowd = object({
      delta: float(delta),
      dishonest: float(dishonest),
      minimum: whole(minimum),
      wait: whole(Math.round(Number(wait) * 1000)),
    });
  }
  if (KINDS.includes(kind)) {
    meaning.rounds = whole(definition.rounds);
    meaning.split = quoted(definition.split);
    meaning.beta = float(definition.beta);
    meaning.critical = quoted(definition.critical);
  }
  return object(meaning);
}

/** How keys are written that have the same name in the canonical form; each is optional. */
const AS_GIVEN = {
  edges: (/** @type {unknown} */ edges) => listOf(edges, float),
  bins: whole,
  scale: quoted,
  constants: written,
  deny: written,
};

/** @param {unknown} categories Names, "open", or nothing. */
function listed(categories) {
  if (categories === undefined) return "[]";
  return categories === "open" ? quoted(categories) : listOf(categories, quoted);
}

/** @param {Record<string, string>} entries */
function object(entries) {
  const keys = Object.keys(entries).sort();
  return `{${keys.map((key) => `${quoted(key)}:${entries[key]}`).join(",")}}`;
}

/** @param {unknown} list @param {(element: unknown) => string} write */
function listOf(list, write) {
  if (!Array.isArray(list)) throw wrong(list, "a list");
  return `[${list.map((element) => write(element)).join(",")}]`;
}

/** @param {unknown} text */
function quoted(text) {
  if (typeof text !== "string") throw wrong(text, "a string");
  return JSON.stringify(text).replace(
    /[^ -~]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** @param {unknown} number */
function whole(number) {
  if (!Number.isSafeInteger(number)) throw wrong(number, "an integer");
  return String(number);
}

/** Writes integers and strings, lists and objects. @param {unknown} value @returns {string} */
function written(value) {
  if (typeof value === "string") return quoted(value);
  if (Array.isArray(value)) return listOf(value, written);
  if (typeof value !== "object" || value === null) return whole(value);
  const entries = Object.entries(value);
  if (entries.length > MOST_KEYS) throw outside("a table", `at most ${MOST_KEYS} keys`);
  return object(Object.fromEntries(entries.map(([k, v]) => [k, written(v)])));
}

/**
 * Writes a double as Python's `repr`: the fewest digits that give it back, an exponent below 1e-4
 * and from 1e16 on.
 *
 * @param {unknown} number
 */
function float(number) {
  if (typeof number !== "number" || !Number.isFinite(number)) {
    throw wrong(number, "a finite number");
  }
  const sign = number < 0 || Object.is(number, -0) ? "-" : "";
  const [mantissa, power] = Math.abs(number).toExponential().split("e");
  const digits = mantissa.replace(".", "");
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 16) {
    const size = String(Math.abs(exponent)).padStart(2, "0");
    return `${sign}${mantissa}e${exponent < 0 ? "-" : "+"}${size}`;
  }
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${digits}`;
  const padded = digits.padEnd(exponent + 1, "0");
  return `${sign}${padded.slice(0, exponent + 1)}.${padded.slice(exponent + 1) || "0"}`;
}

// -- The fingerprint ------------------------------------------------------------------------------

/**
 * Returns the SHA-256 of a definition's canonical form, as 64 hexadecimal digits: no other
 * definition can be made that has the same. A page that was written for one definition compares it.
 *
 * @param {Definition} definition
 * @returns {string}
 */
export function fingerprintOf(definition) {
  return digestOf(canonicalForm(definition));
}

/** The SHA-256 of a text, as 64 hexadecimal digits. @param {string} text */
function digestOf(text) {
  const words = sha256(new TextEncoder().encode(text));
  return Array.from(words, (word) => word.toString(16).padStart(8, "0")).join("");
}

/**
 * Returns the revision, which batches contain: the first 32 bits of the fingerprint, or 1 for zero.
 *
 * @param {Definition} definition
 */
export function revisionOf(definition) {
  return revisionIn(fingerprintOf(definition));
}

/** @param {string} fingerprint */
function revisionIn(fingerprint) {
  return Number.parseInt(fingerprint.slice(0, 8), 16) || 1;
}

/**
 * Returns a definition's fingerprint; throws if the definition states a wrong revision, which would
 * be sent with each batch, and mark the browser that received it.
 *
 * @param {Definition} definition
 * @returns {string}
 * @throws {TypeError}
 * @internal
 */
export function checkRevision(definition) {
  const fingerprint = fingerprintOf(definition);
  const own = revisionIn(fingerprint);
  if (own !== definition.revision) {
    throw wrong(`revision ${definition.revision} of ${definition.name}`, `${own}, by what it says`);
  }
  return fingerprint;
}

/** Primes from 2 on. @param {number} count @returns {number[]} */
function primes(count) {
  /** @type {number[]} */
  const found = [];
  for (let n = 2; found.length < count; n += 1) if (found.every((p) => n % p !== 0)) found.push(n);
  return found;
}

/** The first 32 bits of a root's fraction, exactly. @param {number} prime @param {bigint} degree */
function rootFraction(prime, degree) {
  const power = BigInt(prime) << (32n * degree);
  let [low, high] = [0n, 1n << 40n];
  while (high - low > 1n) {
    const middle = (low + high) / 2n;
    if (middle ** degree <= power) low = middle;
    else high = middle;
  }
  return Number(low & 0xffffffffn);
}

const ROUND_CONSTANTS = Uint32Array.from(primes(64), (prime) => rootFraction(prime, 3n));
const FIRST_STATE = Uint32Array.from(primes(8), (prime) => rootFraction(prime, 2n));

/**
 * SHA-256 (FIPS 180-4), as 8 words: `crypto.subtle` is missing on pages that came over plain HTTP.
 *
 * @param {Uint8Array} message
 * @returns {Uint32Array}
 */
function sha256(message) {
  const padded = new Uint8Array(Math.ceil((message.length + 9) / 64) * 64);
  padded.set(message);
  padded[message.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setBigUint64(padded.length - 8, 8n * BigInt(message.length));
  const state = FIRST_STATE.slice();
  const words = new Uint32Array(64);
  for (let block = 0; block < padded.length; block += 64) {
    for (let i = 0; i < 16; i += 1) words[i] = view.getUint32(block + 4 * i);
    for (let i = 16; i < 64; i += 1) {
      const [far, near] = [words[i - 15], words[i - 2]];
      const s0 = turned(far, 7) ^ turned(far, 18) ^ (far >>> 3);
      const s1 = turned(near, 17) ^ turned(near, 19) ^ (near >>> 10);
      words[i] = words[i - 16] + s0 + words[i - 7] + s1;
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; i += 1) {
      const s1 = turned(e, 6) ^ turned(e, 11) ^ turned(e, 25);
      const first = (h + s1 + ((e & f) ^ (~e & g)) + ROUND_CONSTANTS[i] + words[i]) | 0;
      const s0 = turned(a, 2) ^ turned(a, 13) ^ turned(a, 22);
      const second = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((word, i) => {
      state[i] += word;
    });
  }
  return state;
}

/** A 32-bit word, rotated to the right. @param {number} word @param {number} by */
function turned(word, by) {
  return (word >>> by) | (word << (32 - by));
}

// -- Attributes -----------------------------------------------------------------------------------

/**
 * Returns the attributes that leave the browser, in the order of their names: only those that the
 * metric uses; a value that is not declared is replaced by "other".
 *
 * @param {Definition} definition
 * @param {Record<string, string>} attributes
 * @returns {[string, string][]}
 * @throws {TypeError | RangeError} If a name or value is not a string or is too long, or there are
 *   too many.
 * @internal
 */
export function coarsen({ by = [], attributes: declared = {} }, attributes) {
  const given = Object.entries(attributes);
  if (given.length > LIMITS.by) throw outside(`${given.length} attributes`, `${LIMITS.by} at most`);
  const utf8 = new TextEncoder();
  for (const [name, value] of given) {
    const shown = `attribute ${name.slice(0, 80)} = ${String(value).slice(0, 80)}`;
    if (typeof value !== "string") {
      throw wrong(shown, "a text; leave out what is not known");
    }
    if ([name, value].some((text) => utf8.encode(text).length > MOST_BYTES)) {
      throw outside(shown, `texts of ${MOST_BYTES} bytes at most`);
    }
  }
  return given
    .filter(([name]) => by.includes(name))
    .map(
      ([name, value]) =>
        /** @type {[string, string]} */ ([name, declared[name]?.includes(value) ? value : OTHER]),
    )
    .sort(([one], [other]) => (one < other ? -1 : 1));
}

// -- Rounds ---------------------------------------------------------------------------------------

/**
 * Returns the fingerprint of a search's definition, after checking all that its rounds rely on.
 *
 * @param {Definition} definition
 * @returns {string}
 * @throws {TypeError | RangeError} If this is not the definition of a search, or it states a wrong
 *   revision.
 * @internal
 */
export function checkSearch(definition) {
  checkLimits(definition);
  const { name, kind, range, rounds, split } = definition;
  checkLevels(definition);
  const [low, high] = Array.isArray(range) ? range : [NaN, NaN];
  const isSearch = KINDS.includes(String(kind)) && SPLITS.includes(String(split));
  const isPossible = Number.isInteger(rounds) && Number(rounds) >= 1;
  if (!isSearch || !isPossible || !(low < high) || !Number.isFinite(high - low)) {
    throw wrong(
      name,
      `a minimum or maximum with a range, 1 to ${LIMITS.rounds} rounds, and a split of ` +
        SPLITS.join(" or "),
    );
  }
  return checkRevision(definition);
}

/**
 * Returns whether a round can ask about a threshold: whether it is the middle of one of the
 * 2^(number - 1) intervals that the search can have reached, in the same doubles as in Python.
 *
 * @param {Definition} definition The definition of a minimum or maximum.
 * @param {number} number The round's number, from 1 on.
 * @param {number} threshold
 * @returns {boolean}
 * @internal
 */
export function couldAsk({ kind, range, rounds }, number, threshold) {
  if (!Number.isInteger(number) || number < 1 || number > Number(rounds)) return false;
  if (typeof threshold !== "number" || range === undefined) return false;
  const isMinimum = kind === "minimum";
  const [outer, inner] = isMinimum ? range : [range[1], range[0]];
  const parts = 2 ** (number - 1);
  const point = (/** @type {number} */ place) => outer + (inner - outer) * (place / parts);
  const middle = (/** @type {number} */ place) => {
    const [low, high] = isMinimum ? [place, place + 1] : [place + 1, place];
    return point(low) + (point(high) - point(low)) / 2;
  };
  let [first, beyond] = [0, parts];
  while (first < beyond) {
    const place = Math.floor((first + beyond) / 2);
    if (isMinimum ? middle(place) < threshold : middle(place) > threshold) first = place + 1;
    else beyond = place;
  }
  return first < parts && middle(first) === threshold;
}
