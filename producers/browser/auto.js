/**
 * Chooses what `auto` means, as in the Python package: at each level the mechanism of least
 * variance among those whose reports fit. The arithmetic is exact, because devices and aggregators
 * have to agree. For a mean, the definition contains the choice.
 *
 * @module auto
 */

import { bestSize, categoryCount } from "./categories.js";
import { wholeOptions, wrongOptions } from "./checks.js";
import { categoryGeometry, supportsOf } from "./geometry.js";
import { WORD, bitLength, missThreshold, symbolWidth } from "./sampling.js";
import { chosenWindows } from "./windows.js";

/** @import { Definition } from "./dither.js" */

/**
 * A mechanism's name, the bytes of a report, and the probabilities that a report supports its own
 * category (own / whole) and another category (other / whole).
 *
 * @typedef {[name: string, width: number, own: bigint, other: bigint, whole: bigint]} Candidate
 */

const MOST_BYTES = 16;

/**
 * Returns the name of each level's mechanism.
 *
 * @param {Definition} definition
 * @returns {string[]}
 * @throws {TypeError} If the options are invalid, or no report fits.
 */
export function chosenFor(definition) {
  if (definition.kind === "mean") return chosenWindows(definition);
  const { levels } = definition;
  const { report_bytes: most } = wholeOptions(definition, { report_bytes: MOST_BYTES });
  const count = categoryCount(definition);
  return levels.map((epsilon) => {
    const fitting = candidates(epsilon, count).filter(([, width]) => width <= most);
    if (fitting.length === 0) throw wrongOptions(definition, `more than ${most} report_bytes`);
    return fitting.reduce((best, each) => (isBetter(each, best, BigInt(count)) ? each : best))[0];
  });
}

/** @param {number} epsilon @param {number} count k. @returns {Candidate[]} */
function candidates(epsilon, count) {
  const k = BigInt(count);
  const bytes = Math.ceil(count / 8);
  const geometry = categoryGeometry(epsilon, count);
  const members = BigInt(bestSize(epsilon, count));
  const missed = (inside = 1n, outside = 1n, parts = 1n) =>
    missThreshold(epsilon, inside, outside, parts);
  const [one, flipped] = [missed(1n, k - 1n), missed(1n, 1n, 2n)];
  const [out, coin] = [missed(members, k - members), missed()];
  const { own, other, whole } = supportsOf(geometry);
  return [
    ["grr", symbolWidth(k), (WORD - one) * (k - 1n), one, WORD * (k - 1n)],
    ["projective_geometry_response", symbolWidth(BigInt(geometry.points)), own, other, whole],
    [
      "subset_selection", bytes, (WORD - out) * (k - 1n), WORD * members - (WORD - out),
      WORD * (k - 1n),
    ],
    ["oue", bytes, WORD / 2n, coin, WORD],
    ["rappor", bytes, WORD - flipped, flipped, WORD],
    ["projection", symbolWidth(2n << BigInt(bitLength(k))), WORD - coin, WORD / 2n, WORD],
  ];
}

/**
 * Returns whether mechanism `one` has less variance than `best` at frequencies of 1/k, or the same
 * variance and smaller reports.
 *
 * @param {Candidate} one
 * @param {Candidate} best
 * @param {bigint} k
 */
function isBetter(one, best, k) {
  const [[a, b], [c, d]] = [one, best].map(([, , own, other, whole]) => {
    const chance = other * (k - 1n) + own; // times k
    return [chance * (whole * k - chance), (own - other) ** 2n];
  });
  return a * d < c * b || (a * d === c * b && one[1] < best[1]);
}
