// Living comparisons: by how much one arm exceeds the other, when that was decided, and what is known now.

import {get, keepReading} from "./api.js";
import {differenceScale} from "./change.js";
import {announce, h, setText} from "./dom.js";
import {certainty, DAY, moment, probability, quantileName, Scale, seconds, sliceName, stretch, TURNING, whole} from "./format.js";
import {explained} from "./guide.js";
import {columns, History} from "./history.js";
import {metricAddress} from "./place.js";

const BETWEEN = 5_000; // milliseconds between two looks

/** Reads the states of all comparisons, again and again while somebody looks. */
export class Feed {
  constructor(changed) {
    Object.assign(this, {changed, comparisons: [], problem: null, histories: new Map(), decided: null});
    keepReading(this, BETWEEN);
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

  /** The comparisons of a metric. */
  of(name) { return this.comparisons.filter(({a, b}) => a.metric === name || b.metric === name); }

  /** Return a comparison with its history, which is read again only after another final pane was processed. */
  async #withHistory(one) {
    const known = this.histories.get(one.comparison);
    if (known?.until === one.until) return {...one, history: known.history};
    const {history, until} = await get(`/v1/comparisons/${encodeURIComponent(one.comparison)}`);
    this.histories.set(one.comparison, {history, until});
    return {...one, history};
  }

  /** Announce a decision to people who do not see the screen. */
  #tell() {
    const decided = this.comparisons.filter((one) => one.decided).map((one) => one.comparison);
    const fresh = this.decided && decided.filter((name) => !this.decided.includes(name));
    if (fresh?.length) announce(`Comparison ${fresh.join(", ")} is decided.`);
    this.decided = decided;
  }
}

export const isOnFirstPage = true;
export const section = () => h("section", {class: "comparisons", "aria-label": "Comparisons", hidden: true});

/** The words by which a person may search for a comparison. */
export const textOf = ({comparison, title, a, b}) => [comparison, title, sliceName(a.where), sliceName(b.where)];

/** The panel of comparisons: of all metrics, or of one metric. */
export class Panel {
  constructor(element, definitions) {
    this.note = h("p", {class: "note"});
    this.grid = h("div", {class: "comparisons-grid"});
    Object.assign(this, {element, definitions, cards: new Map()});
    this.count = h("small", {});
    element.replaceChildren(h(element.id ? "h2" : "h3", {}, "Comparisons ", this.count), this.grid, this.note);
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
    const running = comparisons.filter(({decisions}) => !decisions.length).length;
    setText(this.count, running < names.length ? `${names.length - running} decided` : `${running} running`);
    setText(this.note, problem ? `Not read again: ${problem.message}` : "");
  }
}

/** A comparison: the difference and its band over time, with a line where both arms are equal, and the numbers of both arms. */
class ComparisonCard {
  constructor({comparison, metric, of, unit, shares}, definition) {
    const {kind, range} = shares ? {kind: "frequency"} : definition ?? {};
    this.equal = of === "ratio" ? 1 : 0;
    this.scale = of === "ratio" ? new Scale(null, "") : differenceScale(kind, unit, range);
    this.arms = new Scale(kind, unit, range);
    this.chip = explained("alarms", {class: "chip"});
    this.choice = h("select", {hidden: true, "aria-label": `Category of ${comparison}`, onchange: () => { this.chosen = this.choice.value; this.show(this.answer); }});
    this.label = h("span", {class: "label"});
    this.value = h("span", {class: "value"});
    this.unit = h("span", {class: "unit"}, this.scale.unit);
    this.band = explained("estimate", {class: "band"});
    this.headline = h("div", {class: "headline"}, h("p", {class: "figure"}, this.label, this.value, this.unit), h("p", {class: "limits"}, this.band));
    this.verdict = h("p", {class: "verdict"});
    this.reading = h("p", {class: "note"});
    this.sides = h("dl", {class: "arms"});
    this.history = new History({scale: this.scale, include: this.equal});
    this.chart = h("div", {class: "body"}, this.history.element);
    this.link = h("a", {href: metricAddress(metric)}, definition?.title || metric);
    this.element = h("article", {class: "card wide comparison", "aria-label": `Comparison ${comparison}`},
      h("header", {}, h("h3", {}, this.link), this.chip, h("code", {}, comparison)),
      this.choice, this.headline, this.sides, this.chart, this.verdict, this.reading);
    this.title = definition?.title || metric;
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
    const arm = (one) => `${one.metric === answer.metric ? "" : `${one.metric} `}${one === answer.b && answer.rest ? "the rest" : sliceName(one.where) || "all"}`;
    const quantile = answer.quantiles && index !== null ? `${quantileName(labels[index])} of ` : "";
    const [first, second] = [arm(answer.a), arm(answer.b)];
    setText(this.link, answer.title.replace(TURNING, "") || `${quantile}${this.title}: ${first} ${answer.of === "ratio" ? "divided by" : "against"} ${second}`);
    this.#choose(labels, index);
    this.headline.hidden = !isKnown;
    const isRatio = Boolean(this.equal);
    const isLess = !isRatio && now < 0;
    const digits = this.scale.digits(lower, upper);
    const [low, high] = isLess ? [-upper, -lower] : [lower, upper];
    setText(this.label, isRatio ? `${first} divided by ${second} is` : now ? `${first} is ${isLess ? "lower" : "higher"} by` : `${first} minus ${second}:`);
    setText(this.value, this.scale.text(isLess ? -value : value, digits));
    setText(this.band, `${high === null ? `at least ${this.scale.text(low, digits, -1)}` : `between ${this.scale.text(low, digits, -1)} and ${this.scale.text(high, digits, 1)}`}${this.scale.unit ? ` ${this.scale.unit}` : ""}, at all times${labels.length > 1 ? ", all together" : ""}`);
    this.band.title = `The interval covers the truth with ${certainty(answer.beta)} at ${answer.covers}, however often you look.`;
    setText(this.verdict, verdict(answer, isKnown, now, decided && {before, ...this.#decision(decided)}, p, [first, second]));
    this.reading.hidden = !answer.reason && !answer.warning && !answer.incomplete;
    setText(this.reading, [answer.reason, answer.warning, answer.incomplete && `${whole(answer.incomplete)} panes had reports in no slice`].filter(Boolean).join(" · "));
    this.sides.replaceChildren(...[answer.a, answer.b].map((one, place) => h("div", {}, h("dt", {}, [first, second][place]), h("dd", {}, `${isKnown && at(one.value) !== null ? `${this.arms.withUnit(at(one.value), digits)} · ` : ""}${whole(one.reports)} reports`))));
    this.#chart(answer, index);
  }

  /** The index of the number to show: the chosen number, or at first the number that differs most. */
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

  /** The words that the comparison is decided, and on which day. */
  #when() {
    const {decided_at: at} = this.answer;
    return at ? `Decided ${moment(Math.floor(seconds(at) / DAY) * DAY)}` : "Decided";
  }

  /** When a number was decided, and its bounds by then. */
  #decision({at, value, lower, upper}) {
    const digits = this.scale.digits(lower, upper);
    const band = upper === null ? `at least ${this.scale.text(lower, digits, -1)}` : this.scale.interval(lower, upper, digits);
    return {when: moment(seconds(at)), far: `${this.scale.withUnit(value, digits)} (${band})`};
  }

  #chip(isKnown, now, before) {
    const [status, text, title] = !isKnown ? ["waiting", "Waiting", "Nothing is known yet."]
      : now && before && now !== before ? ["provisional", "Turned round", "It was decided the other way round before."]
        : now ? ["final", this.#when(), "The arms are proved to be different."]
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
    this.history.show(found, label, {reference: this.equal});
  }
}

/** 1 if a band proves that the first arm is above the second, -1 if it proves the opposite, and 0 otherwise. */
export const direction = (lower, upper, equal) => (lower !== null && lower > equal ? 1 : upper !== null && upper < equal ? -1 : 0);

/** What was decided (when, in which direction and by how much), and what is known now. */
export function verdict(answer, isKnown, now, decided, p, [first, second] = ["the first arm", "the second"]) {
  if (!isKnown) return answer.status === "too_few_reports" ? "One of the two has too few reports." : answer.status === "expired" ? "Part of it has expired." : "No reports yet.";
  const chance = p === null ? "" : ` If both were equal, a difference as clear as this would ever be seen with a probability of ${probability(p)} at most.`;
  if (!decided) return now ? `Decided by reports that are not final yet.${chance}` : `Not decided: both may be equal (p = ${probability(p)}). Look again as often as you like.`;
  const was = `Decided on ${decided.when}: ${first} was ${decided.before > 0 ? "above" : "below"} ${second}, by ${decided.far}.`;
  if (now && now !== decided.before) return `${was} Now it is ${now > 0 ? "above" : "below"} it.${chance}`;
  return now ? `${was}${chance}` : `${was} Now both may be equal (p = ${probability(p)}).`;
}
