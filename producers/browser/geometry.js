/**
 * Projective geometries for reports, as in the Python package: Singer's difference sets
 * (`estimators.exact.difference_sets`), the geometry of least variance for an epsilon, and a
 * response in it (`estimators.exact.geometries`).
 *
 * @module geometry
 */

import { WORD, atExp, bernoulli, bitLength, missThreshold, uniformBelow } from "./sampling.js";

/**
 * The points 0 to K - 1, and a hyperplane D: the other hyperplanes are its translates.
 *
 * @typedef {object} Geometry
 * @property {number} order d, a prime power; with two coordinates, any number.
 * @property {number} coordinates t.
 * @property {number} points K.
 * @property {number} size s, the points of a hyperplane.
 * @property {bigint} threshold A 64-bit word below it misses the hyperplane.
 * @property {number} variance
 */

/** Levels above this epsilon are reported at this epsilon. */
export const LARGEST = 6;
const LARGEST_SHARE = 4; // K / k of a category's geometry is at most this
const SPARED = 1.03; // accepted variance, over the least, for a number of points nearer to the aim

/** 1 + base + ... + base^(terms - 1). @param {number} base @param {number} terms */
function geometricSum(base, terms) {
  let sum = 0;
  for (let i = 0; i < terms; i += 1) sum = sum * base + 1;
  return sum;
}

/** Returns the primes that divide a number, ascending. @param {number} n */
function primeFactors(n) {
  const found = [];
  let rest = n;
  for (let divisor = 2; divisor * divisor <= rest; divisor += 1) {
    if (rest % divisor === 0) found.push(divisor);
    while (rest % divisor === 0) rest /= divisor;
  }
  return rest > 1 ? [...found, rest] : found;
}

/** p and m with n = p^m, if there are any. @param {number} n @returns {[number, number] | undefined} */
function primePower(n) {
  const factors = primeFactors(n);
  if (factors.length !== 1) return undefined;
  return [factors[0], Math.round(Math.log(n) / Math.log(factors[0]))];
}

/**
 * Returns the double nearest to a fraction; of two, the even one.
 *
 * @param {bigint} numerator At least 0.
 * @param {bigint} denominator
 */
function nearestDouble(numerator, denominator) {
  const shift = Math.max(0, 66 - bitLength(numerator) + bitLength(denominator));
  const scaled = numerator << BigInt(shift);
  const whole = scaled / denominator; // at least 65 bits, of which the last says if there is a rest
  return Number(whole * denominator === scaled ? whole : whole | 1n) / 2 ** shift;
}

/**
 * Returns the geometry of least variance within limits, or nearly so and nearer to an aim.
 *
 * @param {number} epsilon
 * @param {[number, number]} limits The smallest and the largest number of points.
 * @param {number} aim
 * @returns {Geometry}
 */
export function bestGeometry(epsilon, [least, largest], aim) {
  const odds = Math.exp(epsilon);
  /** @type {Geometry[]} */
  const found = [];
  for (let coordinates = 2; coordinates <= largest.toString(2).length; coordinates += 1) {
    for (let order = 2; geometricSum(order, coordinates) <= largest; order += 1) {
      // as many points as there can be have (odds + d - 1)^2 / (4 odds (d - 1)) times the least
      // variance: beyond 2 none is worth a look
      const isNear = (odds + order - 1) ** 2 <= 8 * odds * (order - 1);
      const isLarge = geometricSum(order, coordinates) >= least;
      if (!isNear || !isLarge || !primePower(order)) continue;
      found.push(geometryOf(epsilon, order, coordinates));
    }
  }
  const smallest = Math.min(...found.map(({ variance }) => variance));
  const fitting = found.filter(({ variance }) => variance <= SPARED * smallest);
  const distance = (/** @type {Geometry} */ { points }) => Math.abs(points - aim);
  return fitting.sort(
    (a, b) =>
      distance(a) - distance(b) || a.variance - b.variance || a.coordinates - b.coordinates,
  )[0];
}

/** @param {number} epsilon @param {number} order @param {number} coordinates @returns {Geometry} */
function geometryOf(epsilon, order, coordinates) {
  const [points, size, shared] = [0, 1, 2].map((less) => geometricSum(order, coordinates - less));
  const [k, s, c] = [points, size, shared].map(BigInt);
  const threshold = missThreshold(epsilon, s, k - s);
  // A (1 - A) / ((p - q)(1 - 1/K))^2 with A = s / K, as one fraction
  const contrast = (s - c) * ((WORD - threshold) * (k - s) - threshold * s) * (k - 1n);
  const scale = WORD * s * (k - s);
  const variance = nearestDouble(s * (k - s) * scale * scale, contrast * contrast);
  return { order, coordinates, points, size, threshold, variance };
}

/**
 * Returns the geometry of the least variance at a frequency of 1/k, among those with k to 4k
 * points: for each number of coordinates from 3 on, those of the prime powers next to e^epsilon + 1
 * that fit, and randomized response over k symbols. All arithmetic is exact.
 *
 * @param {number} epsilon
 * @param {number} count k.
 * @returns {Geometry}
 */
export function categoryGeometry(epsilon, count) {
  const below = Number(atExp(epsilon, (e, one) => e / one)) + 1;
  const found = [geometryOf(epsilon, count - 1, 2)];
  for (let coordinates = 3; ; coordinates += 1) {
    const smallest = leastBase(count, coordinates);
    const largest = leastBase(LARGEST_SHARE * count + 1, coordinates) - 1;
    if (largest < 2) break;
    let low = Math.min(below, largest);
    while (low >= smallest && !primePower(low)) low -= 1;
    if (low >= smallest) found.push(geometryOf(epsilon, low, coordinates));
    let high = Math.max(below + 1, smallest);
    while (high <= largest && !primePower(high)) high += 1;
    if (high <= largest) found.push(geometryOf(epsilon, high, coordinates));
  }
  const least = found.map((geometry) => ({ geometry, ...evenVariance(geometry, BigInt(count)) }));
  return least.reduce((best, each) =>
    each.numerator * best.denominator < best.numerator * each.denominator ? each : best,
  ).geometry;
}

/**
 * Returns the least base with geometricSum(base, terms) >= total.
 *
 * @param {number} total
 * @param {number} terms
 */
function leastBase(total, terms) {
  let [low, high] = [0, 1];
  while (geometricSum(high, terms) < total) [low, high] = [high, 2 * high];
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (geometricSum(middle, terms) >= total) high = middle;
    else low = middle;
  }
  return high;
}

/**
 * Returns the probabilities, in parts of a whole, that a report supports its own category, and
 * another category.
 *
 * @param {Geometry} geometry
 */
export function supportsOf({ order, coordinates, points, size, threshold }) {
  const [shared, all, s] = [geometricSum(order, coordinates - 2), points, size].map(BigInt);
  const own = (WORD - threshold) * s * (all - s);
  const other = (WORD - threshold) * shared * (all - s) + threshold * (s - shared) * s;
  return { own, other, whole: WORD * s * (all - s) };
}

/**
 * Returns the variance of a report about a category of frequency 1/k, times k^2, as a fraction.
 *
 * @param {Geometry} geometry
 * @param {bigint} k
 */
function evenVariance(geometry, k) {
  const { own, other, whole } = supportsOf(geometry);
  const chance = other * (k - 1n) + own; // times k
  return { numerator: chance * (whole * k - chance), denominator: (own - other) ** 2n };
}

// -- Difference sets ------------------------------------------------------------------------------

/** @type {Map<number, Int32Array>} Hyperplanes, by d + t / 64. */
const kept = new Map();

/**
 * Returns the i below K for which x^i lies in one hyperplane, ascending: those for which the
 * constant coefficient of x^(i + K l) vanishes for l = 0 to m - 1, where d = p^m.
 *
 * @param {Geometry} geometry
 * @returns {Int32Array}
 */
export function membersOf({ order, coordinates, points }) {
  const key = order + coordinates / 64;
  const members = kept.get(key) ?? hyperplane(order, coordinates, points);
  kept.set(key, members);
  return members;
}

/**
 * @param {number} order
 * @param {number} coordinates
 * @param {number} points
 * @returns {Int32Array}
 */
function hyperplane(order, coordinates, points) {
  if (coordinates === 2) return Int32Array.of(0);
  const [prime, exponent] = primePower(order) ?? [NaN, NaN];
  const degree = exponent * coordinates;
  const reduced = powerOfX(prime, degree);
  const isZero = new Uint8Array(points).fill(1);
  const element = oneOf(degree);
  for (let power = 0; power < points * exponent; power += 1) {
    if (element[0] !== 0) isZero[power % points] = 0;
    const last = element[degree - 1];
    for (let i = degree - 1; i > 0; i -= 1) {
      element[i] = (element[i - 1] + last * reduced[i]) % prime;
    }
    element[0] = (last * reduced[0]) % prime;
  }
  return Int32Array.from(isZero.keys()).filter((i) => isZero[i] === 1);
}

/**
 * Returns the residue outside a set that has `rank` smaller residues outside the set.
 *
 * @param {Int32Array} members
 * @param {number} rank
 */
function outside(members, rank) {
  let [low, high] = [0, members.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (members[middle] - middle <= rank) low = middle + 1;
    else high = middle;
  }
  return rank + low;
}

/**
 * Returns an x^n for which x has the order p^n - 1: the first in the order of the coefficients,
 * except for the constant one.
 *
 * @param {number} prime
 * @param {number} degree
 * @returns {number[]}
 */
function powerOfX(prime, degree) {
  const order = prime ** degree - 1;
  const exponents = primeFactors(order).map((factor) => order / factor);
  const root = primitiveRoot(prime);
  const constant = degree % 2 === 0 ? prime - root : root;
  const one = oneOf(degree);
  const isOne = (/** @type {number[]} */ element) => element.every((a, i) => a === one[i]);
  for (let number = 1; ; number += 1) {
    const rest = one.slice(1).map((_, i) => Math.floor(number / prime ** i) % prime);
    const reduced = [constant, ...rest];
    const power = (/** @type {number} */ exponent) => powerOf(exponent, reduced, prime);
    const isLess = exponents.some((exponent) => isOne(power(exponent)));
    if (isOne(power(order)) && !isLess) return reduced;
  }
}

/** Returns the least generator of the nonzero integers modulo a prime. @param {number} prime */
function primitiveRoot(prime) {
  const factors = primeFactors(prime - 1);
  const power = (/** @type {number} */ base, /** @type {number} */ exponent) => {
    let result = 1;
    for (const bit of exponent.toString(2)) {
      result = (result * result) % prime;
      if (bit === "1") result = (result * base) % prime;
    }
    return result;
  };
  let root = 1;
  while (factors.some((factor) => power(root, (prime - 1) / factor) === 1)) root += 1;
  return root;
}

/** Returns the coefficients of the polynomial 1. @param {number} degree @returns {number[]} */
function oneOf(degree) {
  return Array.from({ length: degree }, (_, i) => (i === 0 ? 1 : 0));
}

/** x to a power. @param {number} exponent @param {number[]} reduced x^n @param {number} prime */
function powerOf(exponent, reduced, prime) {
  const degree = reduced.length;
  let result = oneOf(degree);
  for (const bit of exponent.toString(2)) {
    const product = new Array(2 * degree).fill(0);
    result.forEach((a, i) => result.forEach((b, j) => (product[i + j + Number(bit)] += a * b)));
    for (let i = 2 * degree - 1; i >= degree; i -= 1) {
      const a = product[i] % prime;
      if (a !== 0) reduced.forEach((c, j) => (product[i - degree + j] += a * c));
    }
    result = product.slice(0, degree).map((a) => a % prime);
  }
  return result;
}

// -- Reports --------------------------------------------------------------------------------------

/** The point of a hash: floor(points * word / 2^64). @param {bigint} word @param {number} points */
export function pointOf(word, points) {
  return Number((word * BigInt(points)) >> 64n);
}

/**
 * Draws a point on the hyperplane of the value's point or, with the probability of a miss, off it.
 *
 * @param {Geometry} geometry
 * @param {number} own The value's point.
 * @param {import("./dither.js").Bits} bits
 */
export function respond(geometry, own, bits) {
  const { points, size, threshold } = geometry;
  const [missed] = bernoulli(bits, threshold, 1);
  const rank = Number(uniformBelow(bits, BigInt(missed ? points - size : size)));
  const members = membersOf(geometry);
  return ((missed ? outside(members, rank) : members[rank]) + own) % points;
}
