// The search for a minimum or maximum: how its rounds have narrowed the range, and what is certain.

import {h, setText} from "./dom.js";
import {count, number} from "./format.js";

/** Where the search stands: a row for each round's interval, the question, the certificate. */
export class Search {
  constructor(definition) {
    this.definition = definition;
    this.round = h("p", {class: "search-round"});
    this.bars = h("div", {class: "search-bars", role: "img"});
    this.certified = h("p", {class: "note"});
    this.tail = h("p", {class: "note"});
    this.element = h("div", {class: "search", hidden: true}, this.round, this.bars, this.certified, this.tail);
  }
  show({answer, scale}) {
    const search = answer?.search;
    this.element.hidden = !search;
    if (!search) return;
    const {kind, range: [low, high]} = this.definition;
    const [from, to] = search.interval;
    const digits = scale.digits(from, to);
    const text = (x) => scale.withUnit(x, digits);
    const least = kind === "minimum" ? "at most" : "at least";
    setText(this.round, search.threshold === null
      ? `All ${search.rounds} rounds are decided.`
      : `Round ${search.round} of ${search.rounds}: is it ${least} ${text(search.threshold)}? ${count(search.answers)} answers so far`);
    setText(this.certified, `Somebody's value is ${least} ${text(search.certified)}, with ${number(100 * search.certainty, 2)}\u00a0%, in all rounds at once.`);
    setText(this.tail, search.tail ? `Towards the extreme, the share within x of it falls like x^${number(search.tail.alpha, 1)} (${number(search.tail.lower, 1)} to ${number(search.tail.upper, 1)}).` : "");
    const bar = h("span", {class: "search-interval"});
    bar.style.left = `${(100 * (from - low)) / (high - low)}%`;
    bar.style.width = `max(3px, ${(100 * (to - from)) / (high - low)}%)`;
    this.bars.setAttribute("aria-label", `Searched within ${text(from)} to ${text(to)}, of ${text(low)} to ${text(high)}`);
    this.bars.replaceChildren(bar);
  }
}
