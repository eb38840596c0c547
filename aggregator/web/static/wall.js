// The first page: the metrics in groups that fold, and a filter for all of them.

import {get, metricPath} from "./api.js";
import {Card} from "./card.js";
import {announce, h, setText} from "./dom.js";
import {isComparable} from "./metric.js";
import {address, metricAddress, place} from "./place.js";

const MOST_CARDS = 12; // of a group, before a button shows the others
const MOST_OPEN = 16; // cards that are open at first, in whole groups
const LEAST_WITH_BUTTON = 12; // metrics, to show only those that have changed
const OTHERS = "Other metrics";
const TOGETHER = 3; // changes that are read at the same time

/** Definitions by group, in the order in which groups first occur; definitions without a group come last. */
function grouped(definitions) {
  const groups = new Map();
  for (const one of definitions) groups.set(one.group, [...(groups.get(one.group) ?? []), one]);
  const others = groups.get("");
  if (others) { groups.delete(""); groups.set("", others); }
  return [...groups];
}

/** Whether texts contain all words of a filter. */
export function haveWords(texts, words) {
  const text = texts.flat().join("\n").toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

/** The words by which a person may search for a metric. */
const textOf = ({name, title, description, group, unit, watch, categories, coordinates}) => [name, title, description, group, unit, watch, categories, coordinates];

/** Reads on request which metrics have changed, including those in closed groups. `shown(names)` is called with the metrics to show; null for all. */
class Changes {
  constructor(definitions, shown) {
    Object.assign(this, {names: definitions.filter(isComparable).map(({name}) => name), shown, turn: 0, isOn: false});
    this.button = h("button", {type: "button", class: "button quiet small", "aria-pressed": "false", onclick: () => { location.hash = address({changed: this.isOn ? null : "only"}); }}, "Show only what has changed");
    this.note = h("span", {class: "note"});
    this.element = h("p", {class: "changes", hidden: this.names.length < LEAST_WITH_BUTTON}, this.button, this.note);
  }

  /** Take the address: another period has other changes, and a custom window has none. */
  go({window, from, to, changed}) {
    this.button.disabled = Boolean(from || to);
    this.button.title = this.button.disabled ? "Choose a period such as 7 d: only these are compared with the one before." : "";
    const isOn = changed === "only" && !this.button.disabled;
    const isSame = isOn === this.isOn && window === this.window;
    Object.assign(this, {window, isOn});
    if (!isSame) this.#show();
  }

  close() { this.turn += 1; }

  async #show() {
    const turn = ++this.turn;
    this.button.setAttribute("aria-pressed", String(this.isOn));
    setText(this.note, "");
    this.shown(null);
    if (!this.isOn) return;
    const [waiting, changed] = [[...this.names], new Set()];
    let failed = 0;
    const read = async () => {
      while (waiting.length && turn === this.turn) {
        const name = waiting.shift();
        setText(this.note, `Comparing: ${waiting.length} more to read`);
        const {comparisons} = await get(`${metricPath(name)}/change`, {period: this.window}).catch(() => ({}));
        if (!comparisons) failed += 1;
        else if (comparisons.some(({p_value: p, beta}) => [p].flat().some((x) => x !== null && x <= beta))) changed.add(name);
      }
    };
    await Promise.all(Array.from({length: TOGETHER}, read));
    if (turn !== this.turn) return;
    const problem = failed ? ` ${failed} could not be read.` : "";
    setText(this.note, `${changed.size} of ${this.names.length} metrics have changed against the period before, with 95\u00a0% for all together. There is no evidence of a change in the others.${problem}`);
    announce(this.note.textContent);
    this.shown(changed);
  }
}

class Group {
  constructor(name, definitions, isOnly, isOpen, wall) {
    Object.assign(this, {definitions, wall, cards: new Map(), wanted: MOST_CARDS, isOpen});
    this.grid = h("div", {class: "cards"});
    this.more = h("button", {type: "button", class: "button quiet small", onclick: () => { this.wanted = Infinity; this.show(); }});
    this.count = h("small", {});
    this.heading = h("h2", {}, h("bdi", {}, name || OTHERS), " ", this.count);
    this.fold = h("details", {class: "group", open: isOpen || isOnly}, h("summary", {hidden: isOnly}, this.heading), this.grid, this.more);
    this.fold.addEventListener("toggle", () => { if (!this.wall.isFiltered) this.isOpen = this.fold.open; this.show(); });
  }

  /** Show the cards of the metrics that pass the filter; a closed group makes no cards. */
  show() {
    const found = this.definitions.filter((one) => this.wall.shows(one));
    this.fold.hidden = !found.length;
    const isFull = found.length === this.definitions.length;
    setText(this.count, `${isFull ? "" : `${found.length} of `}${this.definitions.length} ${this.definitions.length === 1 ? "metric" : "metrics"}`);
    if (!this.fold.open) return;
    const shown = found.slice(0, this.wanted);
    for (const one of shown) if (!this.cards.has(one.name)) this.cards.set(one.name, this.wall.cardOf(one));
    for (const [name, card] of this.cards) card.element.hidden = !shown.some((one) => one.name === name);
    const order = this.definitions.map(({name}) => this.cards.get(name)?.element).filter(Boolean);
    if (order.length !== this.grid.children.length) this.grid.replaceChildren(...order);
    this.more.hidden = found.length <= shown.length;
    setText(this.more, `Show the other ${found.length - shown.length}`);
  }
}

export class Wall {
  /** `made(card)` is called for each new card, so that it gets the newest answer; `filtered()` is called when other metrics are shown. */
  constructor(definitions, here, made, filtered) {
    Object.assign(this, {here, made, filtered, cards: [], words: "", only: null});
    this.changes = new Changes(definitions, (only) => this.#show(this.words, only));
    const groups = grouped(definitions);
    let open = 0;
    this.groups = groups.map(([name, ones], index) => {
      open += Math.min(MOST_CARDS, ones.length);
      return new Group(name, ones, groups.length === 1 && !name, !index || open <= MOST_OPEN, this);
    });
    this.nothing = h("p", {class: "loading", hidden: true});
    this.element = h("div", {class: "wall"}, this.changes.element, this.groups.map(({fold}) => fold), this.nothing);
    this.filter(here.q ?? "");
    this.changes.go(here);
  }

  /** Whether a metric has the words of the filter and, if only changed metrics are asked for, has changed. */
  shows(definition) { return haveWords(textOf(definition), this.words) && (this.only?.has(definition.name) ?? true); }
  get isFiltered() { return Boolean(this.words || this.only); }

  cardOf(definition) {
    const card = new Card(definition, this.here);
    this.cards.push(card);
    this.made(card);
    return card;
  }

  filter(words) { this.#show(words, this.only); }

  #show(words, only) {
    const wasFiltered = this.isFiltered;
    Object.assign(this, {words, only});
    for (const group of this.groups) {
      if (this.isFiltered) group.fold.open = true;
      else if (wasFiltered) group.fold.open = group.isOpen;
      group.show();
    }
    this.nothing.hidden = this.groups.some(({fold}) => !fold.hidden);
    setText(this.nothing, words ? `No metric${only ? " that has changed" : ""} has “${words}” in its title, name, description or categories.` : "");
    this.filtered();
  }

  /** The metrics that have the words of the filter. */
  get found() { return this.groups.flatMap(({definitions}) => definitions.filter((one) => this.shows(one))); }

  go(here) {
    this.here = here;
    for (const card of this.cards) card.go(here);
    this.changes.go(here);
    if ((here.q ?? "") !== this.words) this.filter(here.q ?? "");
  }

  close() {
    this.changes.close();
    for (const card of this.cards) card.close();
  }
}

/** The field that filters the wall, if `wall()` returns one, or else goes to the first page. Its words are in the address, and Enter opens the only metric that has them. */
export function filterField(input, wall) {
  const follow = () => { if (document.activeElement !== input) input.value = place().q ?? ""; };
  input.addEventListener("input", () => {
    history.replaceState(null, "", address({q: input.value.trim()}));
    wall()?.filter(input.value.trim());
  });
  input.form.addEventListener("submit", (event) => {
    event.preventDefault();
    const found = wall()?.found ?? [];
    if (!wall()) location.hash = metricAddress(null, {q: input.value.trim()});
    else if (found.length === 1) location.hash = metricAddress(found[0].name);
  });
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest?.("input:not([type=radio]), select, textarea, dialog")) return;
    event.preventDefault();
    input.focus();
    input.select();
  });
  addEventListener("hashchange", follow);
  follow();
}
