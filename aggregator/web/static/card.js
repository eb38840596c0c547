// A metric on the first page: its number in plain words, its history, its shares or its largest categories, and what has changed.

import {Change} from "./change.js";
import {FoundStrings} from "./discoveries.js";
import {announce, h, setText} from "./dom.js";
import {count} from "./format.js";
import {columns, History} from "./history.js";
import {Metric} from "./metric.js";
import {EmptyState, Flags, Headline, historyLabel, Notices} from "./parts.js";
import {metricAddress} from "./place.js";
import {barsOf, shapeOf} from "./shapes.js";

const TOP = 5;
const STEPS = 45;

export class Card {
  constructor(definition, place) {
    const shape = shapeOf(definition);
    this.hasChart = shape.hasHistory && (!shape.hasLabels || Boolean(definition.quantiles));
    this.metric = new Metric(definition, place, {top: TOP, steps: this.hasChart ? STEPS : 0, changed: () => this.show(), isOnScreen: false});
    const {scale, name, title} = this.metric;
    this.link = h("a", {}, title);
    this.flags = new Flags(definition);
    this.headline = new Headline({isBrief: true});
    this.change = new Change();
    this.empty = new EmptyState();
    this.notices = new Notices();
    this.history = this.hasChart ? new History({scale, isLogarithmic: definition.scale === "log"}) : null;
    this.bars = barsOf(this.metric, (label) => this.metric.choose(label), definition.shares && {isFunnel: this.metric.shares.isFunnel, hasLongNames: true});
    this.panel = shape.panel?.(definition);
    this.found = definition.domain?.discover ? new FoundStrings(this.metric) : null;
    this.more = h("a", {});
    this.body = h("div", {class: "body"}, this.bars?.element, h("p", {class: "note more"}, this.more), this.history && h("div", {class: "reading", tabindex: "0", role: "group", "aria-label": `History of ${title}: the arrow keys move through its steps`, onkeydown: (event) => this.#key(event)}, this.history.element));
    this.element = h("article", {class: "card", "aria-label": title},
      h("header", {}, h("h3", {title: definition.description}, this.link), this.flags.element, title !== name && h("code", {}, name)),
      this.notices.element, this.headline.element, this.change.element, this.empty.element, this.panel?.element, this.found?.element, this.body);
    this.show();
    this.screen = new IntersectionObserver((entries) => this.#onScreen(entries.at(-1).isIntersecting), {rootMargin: "25%"});
    this.screen.observe(this.element);
  }

  close() {
    this.screen.disconnect();
    this.metric.close();
    this.history?.close();
    this.found?.close();
  }

  #onScreen(isOnScreen) {
    this.metric.onScreen(isOnScreen);
    if (isOnScreen) this.element.dispatchEvent(new Event("seen", {bubbles: true}));
    this.found?.onScreen(isOnScreen);
  }

  go(place) {
    this.metric.show(place);
    this.show();
  }

  /** Show a flag if a feature has something to say about the metric, such as an alarm. */
  showFeature(feature, feed) {
    if (!feature.flagOf) return;
    const found = feed.of(this.metric.name);
    this.flags.put(feature, feature.flagOf(found));
    if (!feature.marks) return;
    this.marks = feature.marks(found, this.metric.leading()?.label);
    this.#draw();
  }

  show() {
    if (!this.element) return; // not built yet
    const {metric} = this;
    const {answer} = metric;
    for (const link of [this.link, this.more]) link.setAttribute("href", metricAddress(metric.name, {label: metric.chosen}));
    for (const part of [this.headline, this.change, this.empty, this.notices, this.flags, this.panel]) part?.show(metric);
    if (this.found) {
      this.found.element.hidden = !metric.isReady;
      if (metric.isReady) this.empty.element.hidden = true;
    }
    this.body.hidden = !metric.isReady || !metric.entries().length || Boolean(this.panel);
    this.element.classList.toggle("stale", Boolean(metric.problems.answer));
    if (!answer || this.body.hidden) return;
    const shares = metric.shareEntries();
    const entries = shares.length ? shares : metric.changedEntries();
    const leftOut = Math.max(0, entries.length - TOP) + (shares.length ? 0 : answer.left_out ?? 0);
    this.bars?.show(entries.slice(0, TOP), metric.leading().label);
    this.more.parentElement.hidden = !leftOut;
    setText(this.more, `${count(leftOut)} more`);
    this.#draw();
  }

  #key(event) {
    this.history.key(event);
    if (!this.history.tip.hidden) announce(this.history.tip.textContent);
  }

  #draw() {
    const {metric} = this;
    const index = metric.historyIndex();
    if (!this.history || this.body.hidden || index === undefined) return;
    const found = columns(metric.points, index, metric.definition.range);
    this.history.show(found, historyLabel(metric, found.rows), {marks: this.marks});
  }
}
