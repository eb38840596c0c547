// Numbers and times for people: as many digits as the band allows, all times in UTC.

const MINUS = "−";
const THIN = "\u202f";
/** Characters that change the direction of the text after them. */
export const TURNING = /[\u202a-\u202e\u2066-\u2069]/g;
export const MOST_DECIMALS = 15;

/** A number's shortest decimal, as whole digits times a power of ten, and the power of its first digit. */
function shortest(x) {
  const [mantissa, power] = Math.abs(x).toExponential().split("e");
  const whole = mantissa.replace(".", "");
  return {whole: BigInt(whole) * (x < 0 ? -1n : 1n), exponent: Number(power) - whole.length + 1, first: Number(power)};
}

/** x · 10^(digits + power) as a whole number, rounded down (side -1) or up (side 1). */
function units(x, digits, side, power = 0) {
  const {whole, exponent} = shortest(x);
  const shift = exponent + digits + power;
  if (shift >= 0) return whole * 10n ** BigInt(shift);
  const by = 10n ** BigInt(-shift);
  const rest = whole % by; // has the sign of the number
  return whole / by + (side > 0 && rest > 0n ? 1n : side < 0 && rest < 0n ? -1n : 0n);
}

function written(whole, digits) {
  const text = String(whole < 0n ? -whole : whole).padStart(digits + 1, "0");
  const [head, tail] = [text.slice(0, text.length - digits), text.slice(text.length - digits)];
  return (whole < 0n ? MINUS : "") + head.replace(/\B(?=(\d{3})+$)/g, THIN) + (tail && `.${tail}`);
}

/** A bound, rounded so that it claims no more than is known: a lower bound down (side -1), an upper bound up (side 1). The rules are those of estimators/rounding.py. */
export function bound(x, digits, side, power = 0) {
  return x === null || x === undefined || Number.isNaN(x) ? "–" : written(units(x, digits, side, power), digits);
}
export const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

/** The number of decimals that shows two significant digits of a band's half width. */
export function decimals(lower, upper) {
  const half = (upper - lower) / 2;
  if (!(half > 0) || !Number.isFinite(half)) return 3;
  return Math.min(MOST_DECIMALS, Math.max(0, 1 - shortest(half).first));
}

/** What is certain about a minimum ("at most") or maximum ("at least"), rounded so that it claims no more, with two significant digits of the search's last step. */
export function certified(kind, low, high, rounds, x) {
  const step = (high - low) / 2 ** rounds;
  return trimmed(bound(x, decimals(-step, step), kind === "minimum" ? 1 : -1));
}

export function number(x, digits = 0) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  const shown = Math.abs(x).toLocaleString("en-US", {minimumFractionDigits: digits, maximumFractionDigits: digits}).replaceAll(",", THIN);
  return x < 0 && Number(Math.abs(x).toFixed(digits)) !== 0 ? MINUS + shown : shown;
}

/** Whether a metric's numbers are shares of people: frequencies, and the mean of a yes or no. */
const isShare = (kind, unit, range) => kind === "frequency" || (kind === "mean" && !unit && range?.[0] === 0 && range[1] === 1);

/** Formats the values of a metric: shares as percentages, other values in the metric's unit. */
export class Scale {
  constructor(kind, unit, range = null) {
    const share = isShare(kind, unit, range);
    this.power = share ? 2 : 0;
    this.factor = 10 ** this.power;
    this.unit = share ? "%" : unit ?? "";
  }
  digits(lower, upper) { return lower === null || upper === null ? 2 : decimals(lower * this.factor, upper * this.factor); }
  /** `side`: -1 for a lower bound, 1 for an upper bound, 0 for any other number. */
  text(x, digits, side = 0) { return side ? bound(x, digits, side, this.power) : number(x === null || x === undefined ? null : x * this.factor, digits); }
  withUnit(x, digits, side = 0) { return this.#united(this.text(x, digits, side)); }
  interval(lower, upper, digits = this.digits(lower, upper)) { return `${this.text(lower, digits, -1)} to ${this.text(upper, digits, 1)}`; }
  #united(text) { return this.unit ? `${text}\u00a0${this.unit}` : text; }
}

/** A quantile's name: the median, or p95. */
export const quantileName = (q) => (Number(q) === 0.5 ? "median" : `p${trimmed(bound(Number(q), MOST_DECIMALS, 1, 2))}`);

/** A value of an attribute in words; “other” and “none” are unambiguous, because neither can be declared. */
export const attributeValue = (value) => (value === null ? "none" : typeof value === "object" ? "other" : value);
export const sliceName = (slice) => Object.values(slice).map(attributeValue).join(" · ");
/** The number of decimals of a round number. */
export const decimalsOf = (x) => (String(x).split(".")[1] ?? "").length;

/** 20000 as 20k, 1500000 as 1.5M. */
export function compact(x) {
  const [size, letter] = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]].find(([one]) => Math.abs(x) >= one) ?? [1, ""];
  return number(x / size, (x / size) % 1 ? 1 : 0) + letter;
}

/** 1234 as 1 234, 56789 as 56.8k. */
export function count(n) {
  if (n === null || n === undefined) return "–";
  if (n < 10_000) return number(Math.round(n));
  const [size, letter] = n < 1e6 ? [1e3, "k"] : n < 1e9 ? [1e6, "M"] : [1e9, "G"];
  const scaled = n / size;
  return number(scaled, scaled < 100 ? 1 : 0) + letter;
}

export const whole = (n) => number(Math.round(n ?? 0));

export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return "–";
  return perSecond > 0 && perSecond < 10 ? number(perSecond, 1) : count(perSecond);
}

export const share = (x) => (x > 0 && x < 0.001 ? "<0.1" : number(100 * x, x < 0.0995 ? 1 : 0)) + "\u00a0%";

/** The number of decimals that shows three digits of a failure probability in percent. */
const percentDigits = (beta) => Math.max(0, -shortest(beta).first);
/** 1 - beta in percent, with three digits of beta, rounded down. */
export function certainty(beta) {
  const digits = percentDigits(beta);
  return `${trimmed(written(100n * 10n ** BigInt(digits) - units(beta, digits, 1, 2), digits))}\u00a0%`;
}
/** A privacy loss: four significant digits, rounded up. */
export const loss = (x) => (x ? trimmed(bound(x, Math.max(0, 3 - shortest(x).first), 1)) : number(x));

/** A failure probability in percent, rounded up to three digits. */
export const percent = (beta) => trimmed(bound(beta, percentDigits(beta), 1, 2));

export function probability(p) {
  return p < 1e-3 ? p.toExponential(0).replace(/e-(\d+)/, (_, power) => `·10${[...`-${power}`].map((c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] ?? "⁻").join("")}`) : number(p, 3);
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/** "Mar", or "Mar 2013". */
export function monthName(at, {year = true} = {}) {
  const d = new Date(at * 1000);
  return `${MONTHS[d.getUTCMonth()]}${year ? ` ${d.getUTCFullYear()}` : ""}`;
}
const two = (n) => String(n).padStart(2, "0");
export const DAY = 86_400;

/** ISO 8601 (or null) to seconds since the epoch (or null). */
export const seconds = (iso) => (iso ? Date.parse(iso) / 1000 : null);

/** "4 Mar 2013", followed by "14:05" unless the moment is midnight. */
export function moment(at, {year = true} = {}) {
  if (at === null || at === undefined) return "–";
  const d = new Date(at * 1000);
  const date = `${d.getUTCDate()}\u00a0${MONTHS[d.getUTCMonth()]}${year ? `\u00a0${d.getUTCFullYear()}` : ""}`;
  if (at % DAY === 0) return date;
  return `${date} ${clock(d, at % 60 !== 0)}`;
}
const clock = (d, exact) => `${two(d.getUTCHours())}:${two(d.getUTCMinutes())}${exact ? `:${two(Math.floor(d.getUTCSeconds()))}` : ""}`;

/** A moment in the past: "14:03" if it is today, else also its day. */
export const since = (at, now = Date.now() / 1000) => (Math.floor(at / DAY) === Math.floor(now / DAY) ? clock(new Date(at * 1000), false) : moment(at - (at % 60)));

/** A stretch of event time; null is unbounded, and so is an end that is still to come. */
export function stretch(from, to) {
  if (to > Date.now() / 1000) return stretch(from, null);
  if (from === null && to === null) return "everything counted so far";
  if (from === null) return `up to ${moment(to)}`;
  if (to === null) return `since ${moment(from)}`;
  if (Math.floor(from / DAY) === Math.floor(to / DAY)) {
    const [start, end] = [from, to].map((at) => clock(new Date(at * 1000), at % 60 !== 0));
    return `${moment(from - (from % DAY))} ${start} – ${end}`;
  }
  const sameYear = new Date(from * 1000).getUTCFullYear() === new Date(to * 1000).getUTCFullYear();
  return `${moment(from, {year: !sameYear})} – ${moment(to)}`;
}

/** The labels of a time axis; a label has the coarser unit, too, where that changes. */
export function ticks(splits, increment) {
  let before = null;
  return splits.map((at) => {
    const d = new Date(at * 1000);
    const was = before;
    before = d;
    const newYear = !was || was.getUTCFullYear() !== d.getUTCFullYear();
    const newDay = !was || newYear || was.getUTCDate() !== d.getUTCDate() || was.getUTCMonth() !== d.getUTCMonth();
    if (increment >= 360 * DAY) return String(d.getUTCFullYear());
    if (increment >= 28 * DAY) return newYear && (was || d.getUTCMonth() === 0) ? `${MONTHS[d.getUTCMonth()]}\n${d.getUTCFullYear()}` : MONTHS[d.getUTCMonth()];
    if (increment >= DAY) return `${d.getUTCDate()} ${MONTHS[d.getUTCMonth()]}`;
    const time = clock(d, increment < 60);
    return newDay ? `${time}\n${d.getUTCDate()} ${MONTHS[d.getUTCMonth()]}` : time;
  });
}

/** "3 s", "5 min", "2 h", "4 d". */
export function duration(s) {
  if (s === null || s === undefined) return "–";
  const [size, unit] = s < 60 ? [1, "s"] : s < 3600 ? [60, "min"] : s < DAY ? [3600, "h"] : [DAY, "d"];
  const n = s / size;
  return `${number(n, n < 10 && n % 1 >= 0.05 && unit !== "s" ? 1 : 0)}\u00a0${unit}`;
}
