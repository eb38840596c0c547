// A metric on the wall: value, band, history, categories, mix of levels.

import {h, setText} from "./dom.js";
import {count, decimals, rate} from "./format.js";
import {explained} from "./guide.js";
import {columns, History} from "./history.js";
import {Metric} from "./metric.js";
import {Mix} from "./mix.js";
import {EmptyState, Headline, historyLabel, Notices, PolicyChoice, StatusChip} from "./parts.js";
import {address} from "./place.js";
import {barsOf, shapeOf} from "./shapes.js";

const TOP = 6;
const STEPS = {wide: 53, narrow: 28};

export class Card {
  constructor(definition, place) {
    const shape = shapeOf(definition);
    const steps = shape.hasLabels ? STEPS.narrow : STEPS.wide;
    this.metric = new Metric(definition, place, {top: TOP, steps, changed: () => this.show(), isOnScreen: false});
    const {scale, name} = this.metric;
    this.chip = new StatusChip(definition);
    this.headline = new Headline();
    this.empty = new EmptyState();
    this.notices = new Notices();
    this.history = new History({scale});
    this.bars = barsOf(this.metric, (label) => this.metric.choose(label));
    this.panel = shape.panel?.(definition);
    this.mix = new Mix();
    this.policy = new PolicyChoice(this.metric);
    this.link = h("a", {href: address({metric: name})}, name);
    this.leftOut = h("p", {class: "note left-out"});
    this.body = h("div", {class: shape.hasLabels ? "body split" : "body"}, this.bars && h("div", {}, this.bars.element, this.leftOut), this.history.element);
    this.facts = {reports: fact("reports"), worth: fact("worth", "Reports without privacy noise that would have the same worst-case variance", "worth"), rate: fact("/s", "Reports a second")};
    this.element = h("article", {class: "card", "aria-label": name},
      h("header", {}, h("div", {class: "titles"}, h("h2", {}, this.link), h("p", {class: "description", title: definition.description}, `${definition.description || definition.kind}${definition.by ? ` · by ${definition.by.join(", ")}` : ""}`)), this.chip.element),
      this.notices.element, this.headline.element, this.empty.element, this.panel?.element, this.body,
      h("footer", {}, this.mix.element, h("div", {class: "facts"}, h("dl", {}, Object.values(this.facts).map((one) => one.element)), this.policy.element)));
    this.show();
    this.screen = new IntersectionObserver((entries) => this.metric.onScreen(entries.at(-1).isIntersecting), {rootMargin: "25%"});
    this.screen.observe(this.element);
  }

  close() {
    this.screen.disconnect();
    this.metric.close();
    this.history.close();
  }

  go(place) {
    this.link.setAttribute("href", address({metric: this.metric.name}));
    this.metric.show(place);
  }

  show() {
    if (!this.policy) return; // not built yet
    const {metric} = this;
    const {answer} = metric;
    for (const part of [this.headline, this.empty, this.notices, this.policy, this.panel]) part?.show(metric);
    this.chip.show(answer?.status);
    this.body.hidden = !metric.isReady || !metric.entries().length || Boolean(this.panel);
    this.element.classList.toggle("stale", Boolean(metric.problems.answer));
    setText(this.facts.rate.value, rate(metric.rate));
    if (!answer) return;
    setText(this.facts.reports.value, count(answer.reports));
    setText(this.facts.worth.value, count(answer.effective_reports));
    this.mix.show(answer.levels);
    if (this.body.hidden) return;
    const leading = metric.leading();
    const entries = metric.entries();
    const leftOut = Math.max(0, entries.length - TOP) + (answer.left_out ?? 0);
    this.bars?.show(entries.slice(0, TOP), leading.label);
    const {radius} = answer;
    setText(this.leftOut, leftOut ? `and ${count(leftOut)} more` : radius ? `true vector within ${metric.scale.withUnit(radius, decimals(0, 2 * radius), 1)}` : "");
    const index = metric.historyIndex();
    if (index === undefined) return;
    const found = columns(metric.points, index);
    this.history.show(found, historyLabel(metric, found.rows), metric.reference());
  }
}

function fact(name, title, topic) {
  const value = h("dd", {}, "–");
  return {value, element: h("div", {title}, h("dt", {}, topic ? explained(topic, {title}, name) : name), value)};
}
