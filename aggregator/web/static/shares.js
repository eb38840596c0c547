// The shares among that a definition names: a funnel if each is a step in the list of categories, else bars.

import {Bars} from "./bars.js";
import {h, setText} from "./dom.js";
import {certainty} from "./format.js";

const EVERYBODY = 0; // the first category and all after it

/** The indices [from, to] of the categories of a funnel's step: of the people who came at least as far as `from`, the share who came at least as far as `to`; null for any other share. */
function stepOf(share, categories) {
  const last = categories.length - 1;
  const place = (text) => (categories.includes(text) ? (text === categories[last] ? last : -1) : categories.findIndex((name) => text === `${name}..`));
  const [to, from = EVERYBODY, ...rest] = share.split(" / ").map(place);
  return !rest.length && from >= 0 && to > from ? [from, to] : null;
}

/** "cart + paid / visit.." as "cart or paid, of visit or later"; a category with a slash in its name stays as it is. */
function inWords(share) {
  const sets = share.split(" / ");
  return sets.length > 2 ? share : sets.map((set) => set.replace(/\.\.(?=$|,| \+)/g, " or later").replaceAll(" + ", " or ").replaceAll("=", " = ")).join(", of ");
}

/** The shares of a definition as {label, name}, and whether they form a funnel: each step follows the step before, or all begin at the same category. */
export function sharesOf({shares = [], categories}) {
  const steps = Array.isArray(categories) ? shares.map((share) => stepOf(share, categories)) : [];
  const isNext = ([from, to], index) => !index || from === steps[index - 1][1] || (from === steps[0][0] && to >= steps[index - 1][1]);
  const isFunnel = steps.length > 0 && steps.every(Boolean) && steps.every(isNext);
  const nameOf = ([from, to]) => `${from === EVERYBODY ? "all" : categories[from]} → ${categories[to]}`;
  return {isFunnel, names: shares.map((label, index) => ({label, name: isFunnel ? nameOf(steps[index]) : inWords(label)}))};
}

/** The panel of shares on a metric's page; the history and the slices of the chosen share are shown. */
export class Shares {
  constructor(metric) {
    const {name, scale, shares: {isFunnel}} = metric;
    this.bars = new Bars({label: `${name}: choose which share's history is shown`, scale, onChoose: (label) => metric.choose(label), hasIntervals: true, isFunnel, hasLongNames: true});
    this.note = h("p", {class: "note"});
    this.element = h("section", {class: "panel"}, h("h3", {}, isFunnel ? "Funnel" : "Shares among"), this.bars.element, this.note);
    this.meaning = isFunnel ? "Of those who came as far as the first, how many came as far as the second: the rest of each bar dropped out. " : "“A, of B”: of those in B, how many are in A. ";
  }

  show(metric) {
    const entries = metric.isReady ? metric.shareEntries() : [];
    this.bars.show(entries, metric.leading()?.label);
    const missing = metric.isReady ? "These shares have no bounds at all times with these weights: choose others, or a window that is final." : "No shares yet.";
    setText(this.note, entries.length ? `${this.meaning}All these intervals hold at once with ${certainty(metric.answer.beta)}; those of the categories are another statement.` : missing);
  }
}
