// Living comparisons: by how much one arm exceeds another, when that was decided, and how it stands now.

import {get} from "./api.js";
import {announce, h, setText} from "./dom.js";
import {certainty, moment, probability, quantileName, Scale, seconds, stretch, whole} from "./format.js";
import {explained} from "./guide.js";
import {columns, History} from "./history.js";
import {address} from "./place.js";

const BETWEEN = 5_000; // milliseconds between two looks

/** A value of an attribute in words: neither “other” nor “none” can be declared. */
const word = (value) => (value === null ? "none" : typeof value === "object" ? "other" : value);
const sliceOf = (where) => Object.values(where).map(word).join(" · ") || "all";

/** How all comparisons stand, read again and again while somebody looks. */
export class Feed {
  constructor(changed) {
    Object.assign(this, {changed, comparisons: [], problem: null, histories: new Map(), decided: null});
    setInterval(() => { if (document.visibilityState === "visible") this.read(); }, BETWEEN);
    this.read();
  }

  async read() {
    try {
      const {comparisons} = await get("/v1/comparisons");
      this.comparisons = await Promise.all(comparisons.map((one) => this.#withHistory(one)));
      this.problem = null;
      this.#tell();
    } catch (error) {
      this.problem = error;
    }
    this.changed(this);
  }

  all() { return this.comparisons; }

  /** Those of one metric. */
  of(name) { return this.comparisons.filter(({a, b}) => a.metric === name || b.metric === name); }

  /** How it stood before is read where another final pane was looked at. */
  async #withHistory(one) {
    const known = this.histories.get(one.comparison);
    if (known?.until === one.until) return {...one, history: known.history};
    const {history, until} = await get(`/v1/comparisons/${encodeURIComponent(one.comparison)}`);
    this.histories.set(one.comparison, {history, until});
    return {...one, history};
  }

  /** Say it to those who do not see it. */
  #tell() {
    const decided = this.comparisons.filter((one) => one.decided).map((one) => one.comparison);
    const fresh = this.decided && decided.filter((name) => !this.decided.includes(name));
    if (fresh?.length) announce(`Comparison ${fresh.join(", ")} is decided.`);
    this.decided = decided;
  }
}

export const section = () => h("section", {class: "comparisons", "aria-label": "Comparisons", hidden: true});

/** The panel of comparisons: of all metrics, or of one. */
export class Panel {
  constructor(element, definitions) {
    this.note = h("p", {class: "note"});
    this.grid = h("div", {class: "comparisons-grid"});
    Object.assign(this, {element, definitions, cards: new Map()});
    element.replaceChildren(h("h3", {}, "Comparisons"), this.grid, this.note);
  }

  show(comparisons, {problem} = {}) {
    this.element.hidden = !comparisons.length;
    const names = comparisons.map((one) => one.comparison);
    for (const [name, card] of this.cards) if (!names.includes(name)) { card.close(); this.cards.delete(name); }
    for (const one of comparisons) {
      const definition = this.definitions().find(({name}) => name === one.metric);
      if (!this.cards.has(one.comparison)) this.cards.set(one.comparison, new ComparisonCard(one, definition));
      this.cards.get(one.comparison).show(one);
    }
    const cards = names.map((name) => this.cards.get(name).element);
    if (cards.length !== this.grid.children.length || cards.some((card, place) => this.grid.children[place] !== card)) this.grid.replaceChildren(...cards);
    setText(this.note, problem ? `Not read again: ${problem.message}` : "");
  }
}

/** One comparison: the difference and its band, over time with a line where both arms are equal, and both arms. */
class ComparisonCard {
  constructor({comparison, metric, of, unit, shares}, definition) {
    const {kind, range} = shares ? {kind: "frequency"} : definition ?? {};
    this.equal = of === "ratio" ? 1 : 0;
    this.scale = of === "ratio" ? new Scale(null, "") : new Scale(kind, unit, range);
    this.arms = new Scale(kind, unit, range);
    if (this.scale.unit === "%") this.scale.unit = "points"; // percentage points: 5 points below 20 % is 15 %, not 19 %
    this.chip = explained("alarms", {class: "chip"});
    this.about = h("p", {class: "description"});
    this.choice = h("select", {hidden: true, "aria-label": `Category of ${comparison}`, onchange: () => { this.chosen = this.choice.value; this.show(this.answer); }});
    this.value = h("span", {class: "value"});
    this.unit = h("span", {class: "unit"}, this.scale.unit);
    this.band = h("span", {class: "band"});
    this.covers = explained("estimate", {class: "about"});
    this.headline = h("div", {class: "headline"}, h("p", {class: "figure"}, this.value, this.unit), h("p", {class: "limits"}, this.band, this.covers));
    this.verdict = h("p", {class: "verdict"});
    this.reading = h("p", {class: "note"});
    this.sides = h("dl", {class: "arms"});
    this.history = new History({scale: this.scale, include: this.equal});
    this.chart = h("div", {class: "body"}, this.history.element);
    this.element = h("article", {class: "card comparison", "aria-label": `Comparison ${comparison}`},
      h("header", {}, h("div", {class: "titles"}, h("h2", {}, h("a", {href: address({metric, by: null})}, comparison)), this.about), h("div", {class: "chips"}, this.chip)),
      this.choice, this.headline, this.chart, this.verdict, this.sides, this.reading);
  }

  close() { this.history.close(); }

  show(answer) {
    this.answer = answer;
    const labels = answer.categories ?? answer.coordinates ?? answer.quantiles ?? answer.shares ?? [];
    const index = this.#index(labels);
    const at = (numbers) => (index === null ? numbers : numbers?.[index]) ?? null;
    const [value, lower, upper, p] = [answer.value, answer.lower, answer.upper, answer.p_value].map(at);
    const decided = answer.decisions.find((one) => (one.category ?? null) === (index === null ? null : labels[index]));
    const isKnown = value !== null;
    const now = direction(lower, upper, this.equal);
    const before = decided ? direction(decided.lower, decided.upper, this.equal) : 0;
    this.#chip(isKnown, now, before);
    const arm = (one) => `${one.metric === answer.metric ? "" : `${one.metric} `}${one === answer.b && answer.rest ? "the rest" : sliceOf(one.where)}`;
    const quantile = answer.quantiles && index !== null ? `${quantileName(labels[index])} of ` : "";
    setText(this.about, `${quantile}${answer.metric}: ${arm(answer.a)} ${answer.of === "ratio" ? "divided by" : "minus"} ${arm(answer.b)}`);
    this.#choose(labels, index);
    this.headline.hidden = !isKnown;
    const digits = this.scale.digits(lower, upper);
    setText(this.value, `${value > 0 && !this.equal ? "+" : ""}${this.scale.text(value, digits)}`);
    setText(this.band, upper === null ? `at least ${this.scale.text(lower, digits, -1)}` : this.scale.interval(lower, upper, digits));
    setText(this.covers, `${certainty(answer.beta)} at all times${labels.length > 1 ? ", all together" : ""}`);
    this.covers.title = `The band covers the truth at ${answer.covers}, however often you look.`;
    setText(this.verdict, verdict(answer, isKnown, now, decided && {before, ...this.#decision(decided)}, p));
    const curve = answer.history?.length && `The curve is of final windows, until ${moment(seconds(answer.until))} UTC`;
    this.reading.hidden = !curve && !answer.reason && !answer.warning && !answer.incomplete;
    setText(this.reading, [curve, answer.reason, answer.warning, answer.incomplete && `${whole(answer.incomplete)} panes had reports in no slice`].filter(Boolean).join(" · "));
    this.sides.replaceChildren(...[answer.a, answer.b].flatMap((one) => [h("dt", {}, arm(one)), h("dd", {}, `${isKnown && at(one.value) !== null ? `${this.arms.withUnit(at(one.value), digits)} · ` : ""}${whole(one.reports)} reports`)]));
    this.#chart(answer, index);
  }

  /** Which number: the chosen one, or at first the one that differs most. */
  #index(labels) {
    if (!labels.length) return null;
    const sizes = (this.answer.value ?? []).map?.((x) => Math.abs((x ?? this.equal) - this.equal)) ?? [];
    this.chosen ??= sizes.length ? labels[sizes.indexOf(Math.max(...sizes))] : undefined;
    return Math.max(0, labels.indexOf(this.chosen));
  }

  #choose(labels, index) {
    this.choice.hidden = labels.length < 2;
    if (this.choice.options.length !== labels.length) this.choice.replaceChildren(...labels.map((label) => h("option", {value: label}, this.answer.quantiles ? quantileName(label) : label)));
    if (index !== null && document.activeElement !== this.choice) this.choice.value = labels[index];
  }

  /** When it was decided, and how far. */
  #decision({at, value, lower, upper}) {
    const digits = this.scale.digits(lower, upper);
    const band = upper === null ? `at least ${this.scale.text(lower, digits, -1)}` : this.scale.interval(lower, upper, digits);
    return {when: moment(seconds(at)), far: `${this.scale.withUnit(value, digits)} (${band})`};
  }

  #chip(isKnown, now, before) {
    const [status, text, title] = !isKnown ? ["waiting", "Waiting", "Nothing is known yet."]
      : now && before && now !== before ? ["provisional", "Turned round", "It was decided the other way round before."]
        : now ? ["final", "Decided", "The arms are proved to be different."]
          : before ? ["provisional", "Decided before", "The arms were proved to be different. The band now covers the case that they are equal."]
            : ["provisional", "Not decided", "The band covers the case that both arms are equal. That does not say that they are."];
    this.chip.dataset.status = status;
    this.chip.title = title;
    setText(this.chip, text);
  }

  #chart(answer, index) {
    const looks = answer.history ?? [];
    this.chart.hidden = !looks.length;
    const starts = [answer.a.from, ...looks.map(({at}) => at)];
    const found = columns(looks.map((look, place) => ({...look, from: starts[place], to: look.at, status: "final"})), index);
    const last = found.rows.at(-1);
    const text = last && this.scale.interval(last.lower, last.upper);
    const label = last ? `Band of ${answer.comparison} over time, ${stretch(found.rows[0].from, last.to)}: last ${text}, both arms are equal at ${this.equal}` : "";
    this.history.show(found, label, this.equal);
  }
}

/** Whether a band proves the first arm to be above (1) or below (-1) the other one, or neither (0). */
export const direction = (lower, upper, equal) => (lower !== null && lower > equal ? 1 : upper !== null && upper < equal ? -1 : 0);

/** What was decided: when, in which direction and how far; and what holds now. */
export function verdict(answer, isKnown, now, decided, p) {
  if (!isKnown) return answer.status === "too_few_reports" ? "An arm has too few reports." : answer.status === "expired" ? "Part of it has expired." : "No reports yet.";
  const chance = p === null ? "" : ` If both arms were equal, a difference as clear as this would ever be seen with a probability of ${probability(p)} at most.`;
  if (!decided) return now ? `Decided by reports that are not final yet.${chance}` : `Not decided: both arms may be equal (p = ${probability(p)}). Look again as often as you like.`;
  const was = `Decided at ${decided.when}: the first arm was ${decided.before > 0 ? "above" : "below"} the second, by ${decided.far}.`;
  if (now && now !== decided.before) return `${was} Now it is ${now > 0 ? "above" : "below"} it.${chance}`;
  return now ? `${was}${chance}` : `${was} Now both may be equal (p = ${probability(p)}).`;
}
