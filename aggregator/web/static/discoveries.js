// The frequent strings of an open vocabulary that nobody listed: a search on request, and what it found.

import {get, metricPath, request} from "./api.js";
import {Bars} from "./bars.js";
import {announce, h, setText} from "./dom.js";
import {certainty, share, whole} from "./format.js";
import {explained} from "./guide.js";
import {windowText} from "./parts.js";
import {address, isEverything, isSameWindow, windowQuery} from "./place.js";

const BETWEEN = 1_000; // milliseconds between two looks
const RARELY = 60_000;
const SHOWN_STRINGS = 5; // on a card
const COMMON = 0.1; // the share of people of which a forecast speaks where nothing can be found yet

/** A stranger's string: what is not visible, or would turn the text around it, is written as its number. */
export const visible = (text) => text.replace(/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);

const percent = (x) => (x >= 0.1 ? share(x) : `${(100 * x).toFixed(x >= 0.01 ? 1 : 2)}\u00a0%`);

export class Discoveries {
  /** metric: see metric.js; follow: takes a string that a person puts on watch. */
  constructor(metric, follow) {
    Object.assign(this, {metric, follow, place: metric.place, searching: false, timer: 0});
    this.find = h("button", {type: "button", class: "button small", onclick: () => this.#begin()}, "Find frequent strings");
    this.stop = h("button", {type: "button", class: "button small", hidden: true, onclick: () => this.#cancel()}, "Cancel");
    this.bar = h("progress", {max: "1", hidden: true, "aria-label": "Search"});
    this.state = h("span", {class: "note"});
    this.note = h("p", {class: "note"}, "Strings that nobody listed, in the panes that are closed. A search takes some seconds.");
    this.outlook = h("p", {class: "note"});
    this.body = h("tbody");
    this.table = h("div", {class: "table", tabindex: "0", role: "region", "aria-label": "Strings that were found", hidden: true},
      h("table", {}, h("thead", {}, h("tr", {}, ["String", "Share of people", "From", "To"].map((name) => h("th", {scope: "col"}, name)), h("td", {}))), this.body));
    this.element = h("section", {class: "panel discoveries"}, h("h3", {}, "Frequent strings that nobody listed"),
      h("div", {class: "ask"}, this.find, this.stop, this.bar, this.state), this.note, this.table, this.outlook);
  }

  /** Another window has another answer. */
  show({place}) {
    if (isSameWindow(place, this.place)) return;
    this.place = place;
    this.#end();
    this.table.hidden = true;
    setText(this.note, "");
    setText(this.outlook, "");
  }

  close() { this.#end(); }

  /** Search at once, where that is of all closed panes: the server has mostly done it. */
  begin() { if (isEverything(this.place)) this.#begin(); }

  async #begin() {
    const place = this.place;
    this.#end();
    this.searching = true;
    [this.find.disabled, this.stop.hidden, this.bar.hidden] = [true, false, false];
    await this.#look(place);
  }

  async #look(place) {
    try {
      const found = await get(`${metricPath(this.metric.name)}/discoveries`, windowQuery(place));
      if (!this.searching || place !== this.place) return;
      if (found.strings) return this.#found(found);
      if (found.share) this.bar.value = found.share;
      else this.bar.removeAttribute("value");
      setText(this.state, found.before ? `${whole(found.before)} ${found.before === 1 ? "search comes" : "searches come"} first` : "searching");
      this.timer = setTimeout(() => this.#look(place), BETWEEN);
    } catch (problem) {
      if (!this.searching || place !== this.place) return;
      this.#end();
      setText(this.note, [problem.message, problem.remedy].filter(Boolean).join(" "));
    }
  }

  async #cancel() {
    const query = new URLSearchParams(Object.entries(windowQuery(this.place)).filter(([, value]) => value));
    this.#end();
    setText(this.note, "The search was cancelled.");
    try {
      await request(`${metricPath(this.metric.name)}/discoveries?${query}`, {method: "DELETE"});
    } catch { /* it was over already, or ends by itself since nobody asks for it */ }
  }

  #end() {
    clearTimeout(this.timer);
    this.searching = false;
    [this.find.disabled, this.stop.hidden, this.bar.hidden] = [false, true, true];
    setText(this.state, "");
  }

  #found(found) {
    this.#end();
    setText(this.find, "Search again");
    setText(this.note, aboutOf(found));
    setText(this.outlook, outlookOf(found));
    this.body.replaceChildren(...found.strings.map((one) => this.#row(one)));
    this.table.hidden = !found.strings.length;
    announce(`${whole(found.strings.length)} frequent strings found.`);
  }

  #row({string, value, lower, upper}) {
    const follow = h("button", {type: "button", class: "button small quiet", onclick: () => { this.follow(string); follow.disabled = true; }}, "Watch");
    follow.setAttribute("aria-label", `Watch ${visible(string)}`);
    return h("tr", {}, h("th", {scope: "row"}, h("bdi", {class: "stranger"}, visible(string) || "(empty)")), [percent(value), lower ? percent(lower) : "above 0", percent(upper)].map((text) => h("td", {}, text)), h("td", {}, follow));
  }
}

/** What a metric's card shows: the strings that a search of all closed panes has found. The server keeps its answer until another pane is closed. */
export class FoundStrings {
  constructor({definition, name, scale}) {
    Object.assign(this, {name, scale, timer: 0, controller: new AbortController()});
    this.value = h("span", {class: "value"});
    this.unit = h("span", {class: "unit"});
    this.promise = explained("estimate", {class: "band"});
    this.bars = new Bars({label: `${definition.title || name}: strings that were found`, scale, onChoose: (label) => { this.chosen = label; this.#draw(); }});
    this.more = h("a", {href: address({metric: name, q: null})});
    this.element = h("div", {class: "found"},
      h("div", {class: "headline"}, h("p", {class: "figure"}, this.value, this.unit), h("p", {class: "limits"}, this.promise)),
      h("div", {class: "body"}, this.bars.element, h("p", {class: "note more"}, this.more)));
    setText(this.unit, "searching …");
    this.promise.hidden = this.more.parentElement.hidden = true;
  }

  close() {
    clearTimeout(this.timer);
    this.controller.abort();
  }

  /** Ask as long as somebody can see it. */
  onScreen(isOnScreen) {
    clearTimeout(this.timer);
    if (isOnScreen) this.#look();
  }

  async #look() {
    let next = RARELY;
    try {
      const found = await get(`${metricPath(this.name)}/discoveries`, {}, {signal: this.controller.signal});
      if (!found.strings) next = BETWEEN;
      else this.#show(found);
    } catch (problem) {
      if (this.controller.signal.aborted) return;
      setText(this.unit, "");
      setText(this.promise, problem.message);
      this.promise.hidden = false;
    }
    this.timer = setTimeout(() => this.#look(), next);
  }

  #show(found) {
    this.found = found;
    const {strings, status, beta} = found;
    setText(this.value, status === "final" ? whole(strings.length) : "");
    setText(this.unit, status === "final" ? (strings.length === 1 ? "string found" : "strings found") : "No pane is closed yet");
    setText(this.promise, strings.length ? `each is real, with ${certainty(beta)} for all together` : "");
    this.promise.title = aboutOf(found);
    this.promise.hidden = !strings.length;
    this.more.parentElement.hidden = strings.length <= SHOWN_STRINGS;
    setText(this.more, `${whole(strings.length - SHOWN_STRINGS)} more`);
    this.#draw();
  }

  #draw() {
    const entries = this.found.strings.slice(0, SHOWN_STRINGS).map(({string, value, lower, upper}) => ({label: string, name: visible(string) || "(empty)", value, lower, upper}));
    this.bars.show(entries, entries.some(({label}) => label === this.chosen) ? this.chosen : entries[0]?.label);
  }
}

/** What was searched, and what is promised. */
function aboutOf({status, reports, candidates, beta, covers, strings, ...found}) {
  if (status !== "final") return `${status.replaceAll("_", " ")}: only panes that every partition has closed are searched.`;
  const promise = covers === "this window" ? "" : " (for all readings at the ends of panes together)";
  const text = `${windowText({...found, status})} · ${whole(reports)} reports · ${whole(strings.length)} found among ${whole(candidates)} candidates`;
  const watched = strings.length ? " Intervals of strings on watch do not allow for their having been found here." : "";
  return `${text}. With ${certainty(beta)}, each of these is held by somebody and all intervals hold${promise}.${watched}`;
}

/** How frequent a string has to be, and how many reports would find rarer ones. */
function outlookOf({status, found_from: from, reports, longest_code: bits}) {
  if (status !== "final" || from === null) return "";
  const needed = (one) => whole(reports * (from / one) ** 2);
  if (from > 1) return `Nothing can be found yet: strings that ${percent(COMMON)} of people hold need about ${needed(COMMON)} reports.`;
  return `Strings that ${percent(from)} of people hold are found nearly always. Those of ${percent(from / 2)} need about ${needed(from / 2)} reports. Strings whose code words have more than ${bits} bits are not found: ask for them by name.`;
}
