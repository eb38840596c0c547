// The first page: the metrics by their groups, which fold, and a filter over all of them.

import {Card} from "./card.js";
import {h, setText} from "./dom.js";
import {address, metricAddress, place} from "./place.js";

const MOST_CARDS = 12; // of a group, before a button shows the others
const MOST_OPEN = 12; // cards that are open at first, in whole groups
const OTHERS = "Other metrics";

/** Definitions by group, in the order in which groups first occur; those without one come last. */
function grouped(definitions) {
  const groups = new Map();
  for (const one of definitions) groups.set(one.group, [...(groups.get(one.group) ?? []), one]);
  const others = groups.get("");
  if (others) { groups.delete(""); groups.set("", others); }
  return [...groups];
}

/** Whether a metric has all words of a filter in what a person may know of it. */
export function matches({name, title, description, group, unit, watch, categories, coordinates}, words) {
  const text = [name, title, description, group, unit, watch, categories, coordinates].flat().join("\n").toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

class Group {
  constructor(name, definitions, isOnly, isOpen, wall) {
    Object.assign(this, {definitions, wall, cards: new Map(), wanted: MOST_CARDS, isOpen});
    this.grid = h("div", {class: "cards"});
    this.more = h("button", {type: "button", class: "button quiet small", onclick: () => { this.wanted = Infinity; this.show(this.words); }});
    this.count = h("small", {});
    this.heading = h("h2", {}, name || OTHERS, " ", this.count);
    this.fold = h("details", {class: "group", open: isOpen || isOnly}, h("summary", {hidden: isOnly}, this.heading), this.grid, this.more);
    this.fold.addEventListener("toggle", () => { if (!this.words) this.isOpen = this.fold.open; this.show(this.words); });
  }

  /** Show the cards that have the words of a filter; a closed group makes none. */
  show(words) {
    this.words = words;
    const found = this.definitions.filter((one) => matches(one, words));
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
  /** `made(card)` is called for each card that a person opens, so that it catches up with what is known. */
  constructor(definitions, here, made) {
    Object.assign(this, {here, made, cards: []});
    const groups = grouped(definitions);
    let open = 0;
    this.groups = groups.map(([name, ones], index) => {
      open += Math.min(MOST_CARDS, ones.length);
      return new Group(name, ones, groups.length === 1 && !name, !index || open <= MOST_OPEN, this);
    });
    this.nothing = h("p", {class: "loading", hidden: true});
    this.element = h("div", {class: "wall"}, this.groups.map(({fold}) => fold), this.nothing);
    this.filter(here.q ?? "");
  }

  cardOf(definition) {
    const card = new Card(definition, this.here);
    this.cards.push(card);
    this.made(card);
    return card;
  }

  filter(words) {
    for (const group of this.groups) {
      if (words) group.fold.open = true;
      else if (this.words) group.fold.open = group.isOpen;
    }
    this.words = words;
    for (const group of this.groups) group.show(words);
    this.nothing.hidden = this.groups.some(({fold}) => !fold.hidden);
    setText(this.nothing, `No metric has “${words}” in its title, name, description or categories.`);
  }

  /** The metrics that have the words of the filter. */
  get found() { return this.groups.flatMap(({definitions}) => definitions.filter((one) => matches(one, this.words))); }

  go(here) {
    this.here = here;
    for (const card of this.cards) card.go(here);
    if ((here.q ?? "") !== this.words) this.filter(here.q ?? "");
  }

  close() { for (const card of this.cards) card.close(); }
}

/** The field that filters what `wall()` returns, or goes to the first page: its words are in the address, and Enter opens the only metric that has them. */
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
