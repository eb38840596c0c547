/**
 * Reports from the browser: a value is randomized here, and only the report leaves the browser.
 *
 *     import { report } from "/static/dither.js";
 *
 *     const definition = await (await fetch("/v1/metrics/late")).json();
 *     await report("/v1/reports", definition, 1, 0.5);
 *
 * Randomness is the browser's cryptographic generator, compared with integer thresholds that are
 * computed here, in exact arithmetic, from epsilon and the number of symbols alone: a server's
 * definition names levels, categories and bins, but cannot make a report less private than its
 * stated level. The arithmetic, and the order in which random words are used, are those of the
 * Python package `estimators`. The mechanisms are listed in `mechanisms.js`; `definition.js`
 * derives what a definition allows to be asked, and `deny.js` decides what is not reported. This
 * module imports the other modules of its folder.
 *
 * @module dither
 */

import { outside, refuseCrowd, wrong } from "./checks.js";
import { coarsen } from "./definition.js";
import { withoutDenied } from "./deny.js";
import { levelOf, mechanismOf } from "./mechanisms.js";
import { encodeBatch, post, refuseSeconds } from "./posting.js";
import { systemBits } from "./sampling.js";

export { canonicalForm, fingerprintOf, revisionOf } from "./definition.js";
export { denyRule } from "./deny.js";
export { levelOf } from "./mechanisms.js";
export { DeliveryError, encodeBatch, newBatchId, post } from "./posting.js";
/** @internal */
export { answer, randomizeAnswer, takeTurn } from "./rounds.js";
/** @internal */
export { blockCount, missThreshold, systemBits } from "./sampling.js";

/**
 * The answer to `GET /v1/metrics/NAME`; other keys are ignored.
 *
 * @typedef {object} Definition
 * @property {string} name
 * @property {string} mechanism
 * @property {number[]} levels The epsilons on offer, ascending.
 * @property {number} revision
 * @property {string} [kind]
 * @property {[number, number]} [range] For a mean, a distribution, a minimum or a maximum.
 * @property {number} [bins] The number of a distribution's bins, with `range`.
 * @property {string} [scale] The scale of a distribution's bins: "log", or left out.
 * @property {number[]} [edges] The edges of a distribution's bins, instead of `range`.
 * @property {Constants} [constants] The constants of some mechanisms, by level.
 * @property {string[]} [coordinates] The names of a vector mean's coordinates, with `radius`.
 * @property {number} [radius] The largest length of a vector.
 * @property {number} [rounds] For a minimum or maximum: see `answer`.
 * @property {string} [split]
 * @property {number} [beta]
 * @property {string} [critical]
 * @property {string[] | string} [categories] The names of a frequency's categories, or "open".
 * @property {Record<string, string[]>} [axes] The values of each axis; the categories are their
 *   combinations.
 * @property {import("./string_code.js").Code} [code] For `prefix_tree`: how strings become bits.
 * @property {import("./deny.js").Rule} [deny] For open categories: the strings that are reported as
 *   "other".
 * @property {object} [options]
 * @property {string} [trust]
 * @property {boolean} [memoized]
 * @property {number} [pane_seconds]
 * @property {number} [lateness_seconds]
 * @property {number} [max_batch_reports]
 * @property {string[]} [by] The attributes of devices by which reports are also summed.
 * @property {Record<string, string[]>} [attributes] The declared values of each attribute.
 * @property {Crowd} [crowd] The crowd in which each report hides: see `Device`.
 */

/**
 * A relay shuffles at least `minimum` reports, `wait_seconds` after a pane's end.
 *
 * @typedef {object} Crowd
 * @property {number} minimum
 * @property {number} wait_seconds
 * @property {number} delta
 * @property {number} dishonest
 */

/**
 * How the reports of each level are made; privacy does not depend on it.
 *
 * @typedef {object} Constants
 * @property {number[]} [block_bits] For `dyadic_hadamard`: how many bits of a node are sent as they
 *   are.
 * @property {number[]} [hash_bits] For `dyadic_hadamard`: how many bits are sent as parities.
 * @property {number[][]} [depths] The probability of each depth, times 2^16.
 * @property {number[]} [window] For `windows`, and `auto` for a mean: how many symbols a window
 *   has.
 * @property {number[][]} [z] For the same mechanisms: the number for which each symbol stands.
 * @property {number[]} [candidates] For `caps`: how many directions are ranked.
 * @property {number[]} [inside] For `caps`: how many of the ranked directions are preferred.
 */

/**
 * The answer to `GET /v1/metrics/NAME/round`.
 *
 * @typedef {object} Round
 * @property {string} metric
 * @property {number} revision
 * @property {number} number Counts from 1.
 * @property {number} rounds
 * @property {number | null} threshold Null once all rounds are decided.
 */

/** @typedef {import("./posting.js").PostOptions} PostOptions */
/** @typedef {import("./sampling.js").Bits} Bits */
/**
 * @typedef {number | string | number[] | Record<string, string>} Value A number; a category's name
 *   or index, or the value of each of its axes; a string; or a vector, as a list.
 */

/**
 * @typedef {object} Randomized
 * @property {number} level Index into the definition's levels.
 * @property {Uint8Array} report The bytes of the report, as they travel.
 * @property {boolean} [denied] Whether "other" was reported in place of a denied string. Do not
 *   send this: it is not randomized.
 */

/**
 * Randomizes a value. Each call spends its epsilon.
 *
 * @param {Definition} definition
 * @param {Value} value A number for a mean (clipped to the range); a category's name or index for a
 *   frequency; a string for open categories; a list of numbers for a vector mean (shortened to the
 *   radius).
 * @param {number} epsilon The largest epsilon that the owner allows, rounded down to a level.
 * @param {Bits} [bits] The source of randomness: the browser's cryptographic generator, except in
 *   tests.
 * @param {import("./deny.js").Deny} [deny] For strings, the page's own rule, in addition to the
 *   definition's: which strings are reported as "other".
 * @returns {Randomized}
 * @throws {TypeError | RangeError} If the mechanism, the value or the epsilon cannot be used.
 */
export function randomize(definition, value, epsilon, bits = systemBits, deny = undefined) {
  if (definition.rounds !== undefined) {
    throw new TypeError(`${definition.name} is asked in rounds: use answer`);
  }
  const level = levelOf(definition, epsilon);
  const reported = withoutDenied(definition, value, deny);
  const bytes = mechanismOf(definition).randomize(reported.value, level, bits);
  return { level, report: bytes, denied: reported.denied };
}

/**
 * Returns the values and their epsilons as lists without holes; throws if there is no value, or the
 * numbers of values and epsilons differ.
 *
 * @param {Definition} definition
 * @param {Value | Value[]} values
 * @param {number | number[]} epsilons
 * @returns {[Value[], number[]]}
 * @internal
 */
export function listsOf({ name, coordinates }, values, epsilons) {
  const isRow = (/** @type {unknown} */ value) => Array.isArray(value) || ArrayBuffer.isView(value);
  const isOne = !Array.isArray(values) || (coordinates && !isRow(values[0]));
  const all = /** @type {Value[]} */ (isOne ? [values] : Array.from(values));
  const each = Array.isArray(epsilons) ? Array.from(epsilons) : all.map(() => epsilons);
  if (all.length === 0) throw new RangeError(`no values of ${name}`);
  if (each.length !== all.length) {
    throw outside(`${each.length} epsilons for ${all.length} values`, "one, or one for each value");
  }
  if (!coordinates && all.some(Array.isArray)) {
    throw wrong(name, "one value or a flat array of them");
  }
  return [all, each];
}

/**
 * Randomizes values and posts the reports as one batch, until Kafka has it.
 *
 * @param {string | URL} url The gateway's `/v1/reports`.
 * @param {Definition} definition From `GET /v1/metrics/NAME`.
 * @param {Value | Value[]} values One value or a list of values; each vector is a list.
 * @param {number | number[]} epsilons One epsilon for all values, or one for each.
 * @param {PostOptions & {time?: number | Date, attributes?: Record<string, string>, deny?:
 *   import("./deny.js").Deny}} [options] `time`: when the values were true, now by default;
 *   `attributes`: as for `encodeBatch`; `deny`: as for `randomize`.
 * @returns {Promise<{batch_id: string, reports: number, denied?: number}>} The gateway's answer
 *   and, with a deny rule, how many values it denied, which the gateway does not know.
 * @throws {TypeError | RangeError} If a value or an epsilon cannot be used; nothing was reported.
 * @throws {DeliveryError} If it is unknown whether Kafka has the batch; `post` sends it again.
 */
export async function report(url, definition, values, epsilons, options = {}) {
  const { time, attributes = {}, deny, ...posting } = options;
  refuseCrowd(definition);
  const [all, each] = listsOf(definition, values, epsilons);
  refuseSeconds(time); // what cannot be sent is not randomized
  coarsen(definition, attributes);
  const randomized = all.map((value, i) => randomize(definition, value, each[i], systemBits, deny));
  const body = encodeBatch(
    definition,
    randomized.map(({ level }) => level),
    randomized.map(({ report: bytes }) => bytes),
    { time, attributes },
  );
  const answered = await post(url, body, posting);
  if (deny === undefined && definition.deny === undefined) return answered;
  return { ...answered, denied: randomized.filter(({ denied }) => denied).length };
}
