// The frequent strings of an open vocabulary that nobody listed: what was found, what is new, and a search on request.

import {get, metricPath, request} from "./api.js";
import {Bars} from "./bars.js";
import {announce, h, setText} from "./dom.js";
import {certainty, count, DAY, moment, seconds, share, whole} from "./format.js";
import {explained} from "./guide.js";
import {windowText} from "./parts.js";
import {isEverything, metricAddress, isSameWindow, windowQuery} from "./place.js";

const BETWEEN = 1_000; // milliseconds between two looks
const RARELY = 60_000;
const WEEK = 7 * DAY; // before the end of all panes: strings that were found since are new
const SHOWN_STRINGS = 5; // strings on a card
const MOST_LOOKED_UP = 100; // strings, the most frequent ones
const FIND_TEXT = "Find strings, and which are new";
const COMMON = 0.1; // the share of people of which a forecast speaks where nothing can be found yet

/** A stranger's string; characters that are invisible, or change the direction of text, are written as their numbers. */
export const visible = (text) => text.replace(/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);

const percent = (x) => (x >= 0.1 ? share(x) : `${(100 * x).toFixed(x >= 0.01 ? 1 : 2)}\u00a0%`);

/** Asks for the frequent strings of a window, and which of them were not frequent a period before. */
class Question {
  /** changed: called with the found strings, the progress of a search, or a problem. */
  constructor({name, pane_seconds: pane}, changed) { Object.assign(this, {path: metricPath(name), pane, changed, timer: 0, asked: 0, found: null, query: null}); }

  /** Read the strings that were found last, or search; then read again while a search goes on. */
  async look(query, search) {
    clearTimeout(this.timer);
    const asked = ++this.asked;
    try {
      const found = await get(`${this.path}/discoveries`, {...query, search});
      if (asked !== this.asked) return;
      if (!found.strings) {
        if (found.status !== "not_searched") this.timer = setTimeout(() => this.look(query, search), BETWEEN);
        return this.changed(found);
      }
      const isSame = this.found && ["from", "to", "reports"].every((key) => this.found[key] === found[key]);
      Object.assign(this, {query, found: isSame ? this.found : {...found, before: null}});
      this.changed(this.found);
      if (search && !isSame) await this.lookBefore();
    } catch (problem) {
      if (asked === this.asked) this.changed({problem});
    }
  }

  /** Read the shares of the found strings in the period before: the window before, or all panes up to a week before the end. */
  async lookBefore() {
    const {found, query} = this;
    if (found.status !== "final" || !found.strings.length) return;
    const [start, end] = [found.from, found.to].map(seconds);
    const iso = (at) => new Date(1000 * at).toISOString();
    const window = isEverything(query) ? {to: iso(end - Math.max(WEEK, this.pane))} : {from: iso(2 * start - end), to: found.from};
    let before;
    try {
      const {to, value, upper, categories} = await get(`${this.path}/estimate`, {...window, category: found.strings.slice(0, MOST_LOOKED_UP).map(({string}) => string).filter(Boolean)});
      const lookedUp = categories.filter((_, i) => typeof value?.[i] === "number"); // none if there are too few reports
      before = {to, lookedUp, held: categories.filter((_, i) => 2 * value?.[i] > upper?.[i])}; // by the estimate: where hashes are few, every lower bound is 0
    } catch ({message}) {
      before = {message};
    }
    if (found !== this.found) return; // another window, or more panes
    this.found = {...found, before};
    this.changed(this.found);
  }

  close() {
    clearTimeout(this.timer);
    this.asked += 1;
  }
}

/** The found strings whose share in the period before is not above its margin of error. */
const newOf = ({strings, before}) => strings.filter(({string}) => before?.lookedUp?.includes(string) && !before.held.includes(string));
/** What "new" means for these strings, in a few words. */
function newsOf(found) {
  const {before} = found;
  if (!before || before.message) return before?.message ?? "";
  if (!before.lookedUp.length) return "Before, there were too few reports to compare.";
  const fresh = newOf(found).length;
  return `${fresh ? whole(fresh) : "none"} new since ${moment(seconds(before.to))}`;
}
/** A button that asks which strings are new. */
function newsButton(question) {
  const button = h("button", {type: "button", class: "button quiet small", hidden: true, onclick: () => { button.disabled = true; question.lookBefore(); }}, "What is new?");
  return {button, show({status, strings, before}) { [button.hidden, button.disabled] = [status !== "final" || !strings?.length || Boolean(before), false]; }};
}

export class Discoveries {
  /** metric: see metric.js; follow: called with a string that a person asks for. */
  constructor(metric, follow) {
    Object.assign(this, {metric, follow, place: metric.place});
    this.question = new Question(metric.definition, (found) => this.#show(found));
    this.find = h("button", {type: "button", class: "button small", onclick: () => this.#look(true)}, FIND_TEXT);
    this.fresh = newsButton(this.question);
    this.stop = h("button", {type: "button", class: "button small", hidden: true, onclick: () => this.#cancel()}, "Cancel");
    this.bar = h("progress", {max: "1", hidden: true, "aria-label": "Search"});
    this.state = h("span", {class: "note"});
    this.news = h("p", {class: "news", hidden: true});
    this.note = h("p", {class: "note"});
    this.outlook = h("p", {class: "note"});
    this.body = h("tbody");
    this.table = h("div", {class: "table", tabindex: "0", role: "region", "aria-label": "Strings that were found", hidden: true},
      h("table", {}, h("thead", {}, h("tr", {}, ["String", "Share of people", "From", "To"].map((name) => h("th", {scope: "col"}, name)), h("td", {}))), this.body));
    this.element = h("section", {class: "panel discoveries"}, h("h3", {}, "Frequent strings that nobody listed"),
      h("div", {class: "ask"}, this.find, this.fresh.button, this.stop, this.bar, this.state), this.news, this.table, this.note, this.outlook);
    this.#look(false);
  }

  /** Ask again if the window has changed. */
  show({place}) {
    if (isSameWindow(place, this.place)) return;
    this.place = place;
    this.question.found = null;
    [this.table.hidden, this.news.hidden] = [true, true];
    setText(this.outlook, "");
    setText(this.find, FIND_TEXT);
    this.#look(false);
  }

  close() { this.question.close(); }

  #look(search) { this.question.look(windowQuery(this.place), search); }

  async #cancel() {
    this.question.close();
    this.#show({status: "cancelled"});
    const query = new URLSearchParams(Object.entries(windowQuery(this.place)).filter(([, value]) => value));
    try {
      await request(`${metricPath(this.metric.name)}/discoveries?${query}`, {method: "DELETE"});
    } catch { /* it was over already, or ends by itself since nobody asks for it */ }
  }

  #show(found) {
    const {problem, strings, status, share: done, before: queued} = found;
    const isSearching = !problem && !strings && ["waiting", "searching"].includes(status);
    [this.find.disabled, this.stop.hidden, this.bar.hidden] = [isSearching, !isSearching, !isSearching];
    if (done) this.bar.value = done;
    else this.bar.removeAttribute("value");
    setText(this.state, isSearching ? (queued ? `${whole(queued)} ${queued === 1 ? "search comes" : "searches come"} first` : "searching") : "");
    this.fresh.show(found);
    if (!strings) return setText(this.note, problem ? [problem.message, problem.remedy].filter(Boolean).join(" ") : isSearching ? "" : status === "cancelled" ? "The search was cancelled." : "Nobody has searched this window yet. A search takes some seconds; only closed panes count.");
    setText(this.find, "Search again");
    setText(this.note, aboutOf(found));
    setText(this.outlook, outlookOf(found));
    const fresh = newOf(found);
    setText(this.news, `${newsOf(found)}${fresh.length ? ": before, its share was not above the margin of error, which does not prove that nobody had it." : ""}`);
    this.news.hidden = !this.news.textContent;
    this.body.replaceChildren(...strings.map((one) => this.#row(one, fresh.includes(one))));
    this.table.hidden = !strings.length;
    announce(`${whole(strings.length)} frequent strings found${newsOf(found) && `, ${newsOf(found)}`}.`);
  }

  #row({string, value, lower, upper}, isNew) {
    const name = h("button", {type: "button", class: "link", title: "Show its history, and put it on watch", onclick: () => this.follow(string)}, h("bdi", {class: "stranger"}, visible(string) || "(empty)"));
    return h("tr", {}, h("th", {scope: "row"}, name, isNew && h("span", {class: "new"}, "new")), [percent(value), lower ? percent(lower) : "above 0", percent(upper)].map((text) => h("td", {}, text)));
  }
}

/** The strings on a metric's card, which were found last. The server searches again if somebody asks, or if a pane was closed since. */
export class FoundStrings {
  constructor({definition, name, scale}) {
    Object.assign(this, {timer: 0});
    this.question = new Question(definition, (found) => this.#show(found));
    this.value = h("span", {class: "value"});
    this.unit = h("span", {class: "unit"});
    this.promise = explained("estimate", {class: "band", hidden: true});
    this.news = h("p", {class: "delta"});
    this.find = h("button", {type: "button", class: "button small", hidden: true, onclick: () => this.question.look({}, true)}, FIND_TEXT);
    this.fresh = newsButton(this.question);
    this.bars = new Bars({label: `${definition.title || name}: strings that were found`, scale, onChoose: (label) => { location.hash = metricAddress(name, {label}); }});
    this.more = h("a", {href: metricAddress(name)});
    this.element = h("div", {class: "found"},
      h("div", {class: "headline"}, h("p", {class: "figure"}, this.value, this.unit), h("p", {class: "limits"}, this.promise)), this.news, this.find, this.fresh.button,
      h("div", {class: "body"}, this.bars.element, h("p", {class: "note more", hidden: true}, this.more)));
    setText(this.unit, "Reading …");
  }

  close() {
    clearInterval(this.timer);
    this.question.close();
  }

  /** Ask only while the card can be seen. */
  onScreen(isOnScreen) {
    this.close();
    if (!isOnScreen) return;
    this.question.look({}, false);
    this.timer = setInterval(() => this.question.look({}, false), RARELY);
  }

  #show(found) {
    const {problem, strings, status, beta} = found;
    this.find.hidden = Boolean(strings) || status !== "not_searched";
    this.fresh.show(found);
    if (problem || !strings) {
      setText(this.unit, problem ? problem.message : status === "not_searched" ? "Not searched yet" : "searching …");
      return;
    }
    setText(this.value, status === "final" ? whole(strings.length) : "");
    setText(this.unit, status === "final" ? (strings.length === 1 ? "string found" : "strings found") : "No pane is closed yet");
    setText(this.promise, strings.length ? `in all closed panes, whatever period is chosen; each is real, with ${certainty(beta)} for all together` : "");
    this.promise.title = aboutOf(found);
    this.promise.hidden = !strings.length;
    setText(this.news, newsOf(found));
    this.more.parentElement.hidden = strings.length <= SHOWN_STRINGS;
    setText(this.more, `${whole(strings.length - SHOWN_STRINGS)} more`);
    const fresh = newOf(found);
    const shown = [...fresh, ...strings.filter((one) => !fresh.includes(one))].slice(0, SHOWN_STRINGS).sort((a, b) => b.value - a.value);
    this.bars.show(shown.map((one) => ({label: one.string, name: `${visible(one.string) || "(empty)"}${fresh.includes(one) ? " (new)" : ""}`, value: one.value, lower: one.lower, upper: one.upper})));
  }
}

/** What was searched, and what is certain about the found strings. */
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
  const needed = (one) => count(reports * (from / one) ** 2);
  if (from > 1) return `Nothing can be found yet: strings that ${percent(COMMON)} of people hold need about ${needed(COMMON)} reports.`;
  return `Strings that ${percent(from)} of people hold are found nearly always. Those of ${percent(from / 2)} need about ${needed(from / 2)} reports. Strings whose code words have more than ${bits} bits are not found: ask for them by name.`;
}
