// The search for a minimum or maximum: how its rounds have narrowed the range, and what is certain.

import {h, setText} from "./dom.js";
import {certainty, certified, count, number} from "./format.js";

const THINNEST = "3px";

/** The intervals that the rounds have left, beginning with the whole range; each is a half of the interval before. */
export function halvings([low, high], [from, to]) {
  const found = [];
  const middle = (from + to) / 2;
  for (let [a, b] = [low, high]; ;) {
    found.push([a, b]);
    if (b - a <= 1.5 * (to - from)) return found;
    const half = (a + b) / 2;
    [a, b] = middle < half ? [a, half] : [half, b];
  }
}

/** The figure in front: what is certain. The range that the rounds have left is not a band. */
export function certain({answer: {search}, scale, definition: {kind, range, rounds, beta}}) {
  return search && {
    label: kind === "minimum" ? "at most" : "at least",
    value: certified(kind, ...range, rounds, search.certified),
    unit: scale.unit,
    about: `${certainty(beta)} in all rounds at once`,
    title: "Somebody's value reaches it. Nothing is certain about the other end.",
  };
}

/** The progress of a search: a row for each interval that was left, the present question, and what is certain. */
export class Search {
  constructor(definition) {
    this.definition = definition;
    this.round = h("p", {class: "search-round"});
    this.lines = Array.from({length: definition.rounds + 1}, () => {
      const [bar, mark] = [h("i", {class: "search-interval"}), h("i", {class: "search-threshold"})];
      return {bar, mark, row: h("div", {}, bar, mark)};
    });
    this.rows = h("div", {class: "search-rows", role: "img"}, this.lines.map(({row}) => row));
    this.rows.style.setProperty("--rows", this.lines.length);
    this.ends = [h("span", {}), h("span", {})];
    this.left = h("p", {class: "note"});
    this.certified = h("p", {class: "note"});
    this.tail = h("p", {class: "note"});
    this.element = h("div", {class: "search", hidden: true}, this.round,
      h("div", {}, this.rows, h("div", {class: "search-ends", "aria-hidden": "true"}, this.ends)), this.left, this.certified, this.tail);
  }
  show({answer, scale}) {
    const search = answer?.search;
    this.element.hidden = !search;
    if (!search) return;
    const {beta, kind, range, rounds} = this.definition;
    const [from, to] = search.bisection;
    const digits = scale.digits(from, to);
    const text = (x, places = digits) => scale.withUnit(x, places);
    const least = kind === "minimum" ? "at most" : "at least";
    setText(this.round, search.threshold === null
      ? `All ${search.rounds} rounds are decided.`
      : `Round ${search.round} of ${search.rounds}: is it ${least} ${text(search.threshold)}? ${count(search.answers)} answers so far`);
    setText(this.left, `The remaining interval is ${scale.interval(from, to, digits)}${scale.unit && `\u00a0${scale.unit}`}. It is not a confidence interval: the extreme may lie outside, where few values are.`);
    setText(this.certified, `Somebody's value is ${least} ${certified(kind, ...range, rounds, search.certified)}${scale.unit && `\u00a0${scale.unit}`}: this holds with ${certainty(beta)}, in all rounds at once.`);
    setText(this.tail, search.tail ? `Near the extreme, the share of values within x of it is proportional to x^${number(search.tail.alpha, 1)} (exponents from ${number(search.tail.lower, 1)} to ${number(search.tail.upper, 1)} fit).` : "");
    const places = range.every(Number.isInteger) ? 0 : digits;
    range.forEach((end, index) => setText(this.ends[index], text(end, places)));
    this.rows.setAttribute("aria-label", `Searched within ${text(from)} to ${text(to)}, of ${text(range[0], places)} to ${text(range[1], places)}`);
    this.#draw(halvings(range, search.bisection), search.threshold);
  }
  /** Draw a row for each decided round, and an empty row for each later round. */
  #draw(intervals, threshold) {
    const [low, high] = this.definition.range;
    const percent = (x) => `${((100 * x) / (high - low)).toFixed(3)}%`;
    this.lines.forEach(({row, bar, mark}, index) => {
      const [from, to] = intervals[index] ?? [low, low];
      row.classList.toggle("now", index === intervals.length - 1);
      bar.hidden = index >= intervals.length;
      bar.style.left = percent(from - low);
      bar.style.width = `max(${THINNEST}, ${percent(to - from)})`;
      mark.hidden = threshold === null || index !== intervals.length - 1;
      mark.style.left = percent((threshold ?? low) - low);
    });
  }
}
