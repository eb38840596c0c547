// One metric: a large history, all numbers as tables, the levels, and the definition.

import {Change, differenceScale} from "./change.js";
import {Discoveries} from "./discoveries.js";
import {Distribution} from "./distribution.js";
import {announce, h, setText} from "./dom.js";
import {Downloads} from "./download.js";
import {FEATURES} from "./features.js";
import {count, DAY, decimals, duration, loss, moment, monthName, number, quantileName, rate, seconds, share, whole} from "./format.js";
import {HeatMap, ROWS} from "./heatmap.js";
import {columns, History} from "./history.js";
import {Metric} from "./metric.js";
import {levelClass, Mix} from "./mix.js";
import {crowdText, EmptyState, Headline, historyLabel, Notices, isTrusted, POLICIES, PolicyChoice, StatusChip, widerText, windowText} from "./parts.js";
import {address, metricAddress} from "./place.js";
import {barsOf, shapeOf} from "./shapes.js";
import {Shares} from "./shares.js";
import {Slices} from "./slices.js";
import {cellsOf, hasTable, TwoWay} from "./two_way.js";

const TOP = 20;
const ALL = 10_000; // the most categories that a request may ask for
const STEP_WIDTH = 11; // pixels
const MONTH = 28 * DAY;
const MOST_MONTHS = 24; // the most months with links
const QUANTILES = ["0.5", "0.75", "0.9", "0.95", "0.99"]; // that can be chosen besides those of the definition

export class Detail {
  constructor(definition, place) {
    const shape = shapeOf(definition);
    this.metric = new Metric(definition, place, {top: Math.max(TOP, cellsOf(definition)), steps: Math.min(120, Math.round(innerWidth / STEP_WIDTH)), bins: shape.hasShares ? ROWS : null, isDetailed: true, changed: () => this.show()});
    const {scale, name, title} = this.metric;
    this.chip = new StatusChip(definition);
    this.headline = new Headline();
    this.empty = new EmptyState();
    this.notices = new Notices({explain: true});
    this.panel = shape.panel?.(definition);
    this.shares = definition.shares && new Shares(this.metric);
    this.slices = definition.by && new Slices(this.metric);
    this.twoWay = hasTable(definition) && new TwoWay(this.metric);
    this.discoveries = definition.domain?.discover && new Discoveries(this.metric, (label) => this.#follow(label));
    this.distribution = shape.hasShares && new Distribution(this.metric);
    this.heatMap = shape.hasShares && new HeatMap(this.metric);
    this.panels = new Map(FEATURES.map((feature) => [feature, new feature.Panel(feature.section(), () => [definition])]));
    this.marked = new Map(); // what the history shows, by feature
    this.mix = new Mix();
    this.policy = new PolicyChoice(this.metric);
    this.policyMeaning = h("p", {class: "note"});
    this.saturation = h("p", {class: "note"});
    this.crowd = h("p", {class: "note"});
    this.change = new Change();
    this.readout = h("p", {class: "hidden", id: "readout"});
    this.history = new History({scale, large: true, isLogarithmic: definition.scale === "log", onZoom: (from, to) => this.#zoom(from, to)});
    this.history.onPick = (row) => this.#read(row);
    this.hint = h("p", {class: "note"});
    this.months = h("p", {class: "note months", hidden: true});
    this.chart = h("div", {class: "chart", tabindex: "0", role: "group", "aria-label": "History: the arrow keys move through its steps, + shows what is around one, − shows everything", "aria-describedby": "readout",
      onkeydown: (event) => this.#key(event), ondblclick: () => this.#zoom(null, null), onfocus: () => this.readout.setAttribute("aria-live", "polite"), onblur: () => this.readout.removeAttribute("aria-live")}, this.history.element, this.months, this.hint);
    this.bars = barsOf(this.metric, (label) => this.metric.choose(label));
    this.all = h("button", {type: "button", class: "button small", hidden: true, onclick: () => { this.metric.top = ALL; this.metric.again(); }});
    this.back = h("a", {href: metricAddress(null)}, "All metrics");
    this.only = h("p", {class: "only", hidden: true});
    this.levels = table(["ε", "Reports", "Share", "Weight", isTrusted(definition) && "Loss of a report"].filter(Boolean), "Privacy levels and their weights");
    this.outcomes = table(["Outcome", "Reports"], "Outcomes of all reports since the beginning");
    this.numbers = table(["From (UTC)", "To (UTC)", "Estimate", "Lower", "Upper", "Reports", "Status"], "", "The history as a table");
    this.current = shape.hasLabels ? table([labelName(definition), "Estimate", "Lower", "Upper"], "", "All numbers as a table") : null;
    this.about = h("dl", {class: "definition"});
    this.tables = [shape.hasHistory && this.#folded("The history as a table", this.numbers), this.current && this.#folded("All numbers as a table", this.current)];
    const asked = definition.categories === "open" && this.#question();
    this.element = h("article", {class: "detail", "aria-label": title},
      h("p", {class: "crumbs"}, this.back, definition.group && [" / ", h("bdi", {}, definition.group)]),
      h("header", {}, h("div", {class: "titles"}, h("h2", {}, title), h("p", {class: "description"}, title !== name && h("code", {}, name), definition.description || definition.kind.replaceAll("_", " "))), this.chip.element),
      this.notices.element, this.only,
      h("div", {class: "over"}, h("div", {class: "lede"}, this.headline.element, this.change.element), definition.quantiles && this.#quantiles()),
      this.empty.element, this.panel?.element, this.chart, this.readout,
      this.discoveries?.element, this.shares?.element, this.twoWay?.element,
      this.bars && h("section", {class: "panel"}, h("h3", {}, heading(definition)), asked, this.bars.element, this.all),
      this.slices?.element, [...this.panels.values()].map(({element}) => element),
      this.distribution?.element, this.heatMap?.element,
      this.tables,
      h("details", {class: "panel rests"}, h("summary", {}, "What this rests on"), h("div", {class: "columns-3"},
        h("section", {}, h("h3", {}, "Privacy levels"), this.mix.element, this.crowd, this.levels.element, this.saturation, this.policy.element, this.policyMeaning),
        h("section", {}, h("h3", {}, "Reports"), this.outcomes.element),
        h("section", {}, h("h3", {}, "Definition"), this.about))),
      new Downloads(this.metric).element);
    this.show();
  }

  close() {
    this.metric.close();
    this.history.close();
    this.discoveries?.close();
    this.twoWay?.close?.();
    this.slices?.close();
    this.heatMap?.close();
    for (const panel of this.panels.values()) panel.show([], {});
  }

  /** Show the state of a feature. */
  showFeature(feature, feed) {
    const found = feed.of(this.metric.name);
    this.panels.get(feature).show(found, feed);
    if (!feature.marks) return;
    this.marked.set(feature, found);
    this.#history();
  }

  go(place) {
    this.back.setAttribute("href", metricAddress(null));
    const isOther = place.where !== this.metric.place.where;
    this.metric.show(place);
    if (isOther) scrollTo(0, 0);
  }

  show() {
    if (!this.element) return; // not built yet
    const {metric} = this;
    const {answer} = metric;
    for (const part of [this.headline, this.change, this.empty, this.notices, this.policy, this.panel, this.shares, this.slices, this.distribution, this.heatMap, this.discoveries, this.twoWay]) part?.show?.(metric);
    if (metric.isReady) this.empty.element.hidden = true; // what can be asked is below
    this.chip.show(answer?.status);
    const effect = isTrusted(metric.definition) ? "It takes effect with the next release." : "It takes effect for all readers at once; no report is read again.";
    setText(this.policyMeaning, `${metric.definition.policy}: ${POLICIES[metric.definition.policy] ?? ""}. ${effect}`);
    this.only.hidden = !metric.where.length;
    if (metric.where.length) this.only.replaceChildren("Only devices with ", h("b", {}, metric.where.map((one) => one.replace("=", " = ")).join(", ")), h("span", {class: "wider"}, widerText(metric, answer)), h("a", {class: "button small", href: address({where: null})}, "Show all"));
    this.#months();
    setText(this.hint, ["Drag to zoom, double-click for everything", windowText(answer), metric.beside && this.hasPale && `grey: ${metric.beside.text}`, ...[...this.marked].map(([{caption}, found]) => found.length && caption), this.found?.rows.some(({isVague}) => isVague) && "pale: its interval says little"].filter(Boolean).join(" · "));
    this.policyMeaning.hidden = Boolean(this.panel);
    this.chart.hidden = !metric.isReady || !metric.entries().length || Boolean(this.panel);
    this.#definition();
    this.#outcomes();
    if (!answer) return;
    this.mix.show(answer.levels);
    const total = answer.levels.reduce((sum, level) => sum + level.reports, 0);
    const swatch = (index) => h("i", {class: `swatch ${levelClass(index, answer.levels.length)}`, "aria-hidden": "true"});
    this.levels.fill(answer.levels.map((level, index) => [[swatch(index), String(level.epsilon)], whole(level.reports), total ? share(level.reports / total) : "–", level.weight === null ? "–" : share(level.weight), ...(level.loss === undefined ? [] : [loss(level.loss)])]));
    setText(this.crowd, answer.privacy ? crowdText(answer.privacy) : "");
    setText(this.saturation, typeof answer.saturation === "number" ? `Saturation: levels above ε = ${loss(answer.saturation)} do not improve the release; their loss is no larger.` : "");
    const entries = metric.changedEntries();
    for (const one of this.quantiles ?? []) one.checked = one.value === metric.leading()?.label;
    this.bars?.show(metric.isReady ? entries : [], metric.leading()?.label);
    this.all.hidden = !answer.left_out;
    setText(this.all, `Show the other ${count(answer.left_out ?? 0)}`);
    this.#history();
    for (const fold of this.tables) if (fold?.open) fold.render();
  }

  #history() {
    const {metric} = this;
    const index = metric.historyIndex();
    if (this.chart.hidden || index === undefined) return;
    this.found = columns(metric.points, index, metric.definition.range);
    this.hasPale = 2 * this.found.rows.filter(({isVague}) => isVague).length <= this.found.rows.length; // else the line behind is noise, too
    this.history.show(this.found, historyLabel(metric, this.found.rows), {reference: metric.beside && this.hasPale ? null : metric.reference(), marks: metric.where.length ? undefined : this.#marks(), pale: this.hasPale ? metric.besideSteps() : []});
    this.#read(null);
  }

  /** The marks of all features in the history. */
  #marks() {
    const all = [...this.marked].map(([feature, found]) => feature.marks(found, this.metric.leading()?.label));
    return {moves: all.flatMap(({moves}) => moves), baselines: all.flatMap(({baselines}) => baselines)};
  }

  #read(row) {
    const shown = row ?? this.found?.rows.findLast((one) => one.value !== null);
    setText(this.readout, shown ? this.history.textOf(shown) : "");
  }

  /** Put a stretch of event time into the address, so that it is shown; without a stretch, all is shown. */
  #zoom(from, to) { location.hash = addressOf(from, to); }

  /** A link to each month, if the history has several. */
  #months() {
    const {place: here, definition, reached} = this.metric;
    const points = this.metric.points.filter(({reports}) => reports);
    if (!points.length || definition.pane_seconds > MONTH) return;
    const monthOf = (iso) => { const at = new Date(Date.parse(iso) - 1); return 12 * at.getUTCFullYear() + at.getUTCMonth(); };
    const beside = here.from && here.to ? 1 : 0; // of a month alone, those beside it
    const latest = reached ? monthOf(reached) : Infinity;
    const first = Math.min(monthOf(points[0].to) - beside, this.firstMonth ?? Infinity);
    const last = Math.max(Math.min(monthOf(points.at(-1).to) + beside, latest), this.lastMonth ?? 0);
    if (!beside) Object.assign(this, {firstMonth: first, lastMonth: last});
    const months = Array.from({length: last - first + 1}, (_, index) => first + index);
    const key = JSON.stringify([months, location.hash]); // a link keeps what is chosen
    if (key === this.monthsShown) return;
    this.monthsShown = key;
    this.months.hidden = months.length < 2 || months.length > MOST_MONTHS;
    if (this.months.hidden) return;
    const start = (month) => Date.UTC(Math.floor(month / 12), month % 12) / 1000;
    this.months.replaceChildren(...months.map((month) => h("a", {href: addressOf(start(month), start(month + 1)), "aria-current": seconds(here.from) === start(month) ? "true" : null}, monthName(start(month), {year: month === first || month % 12 === 0}))));
  }

  #key(event) {
    this.history.key(event);
    if (!["+", "-"].includes(event.key)) return;
    event.preventDefault();
    if (event.key === "+") this.history.zoom();
    else this.#zoom(null, null);
  }

  /** A choice of quantiles; the server is asked for a quantile that the definition lacks. */
  #quantiles() {
    const names = [...new Set([...this.metric.definition.quantiles.map(String), ...QUANTILES])].sort((a, b) => a - b);
    this.quantiles = names.map((q) => h("input", {type: "radio", name: "quantile", value: q, id: `quantile-${q}`, onchange: () => this.metric.ask(q)}));
    return h("fieldset", {class: "segments"}, h("legend", {class: "hidden"}, "Quantile"), this.quantiles.map((one) => [one, h("label", {for: one.id}, quantileName(one.value))]));
  }

  #folded(title, shown) {
    const fold = h("details", {class: "panel"}, h("summary", {}, title), shown.element);
    fold.render = () => {
      const {metric} = this;
      const {scale} = metric;
      const cells = ({value, lower, upper}) => {
        const digits = scale.digits(lower, upper);
        return [[value, 0], [lower, -1], [upper, 1]].map(([x, side]) => (x === null ? "–" : scale.withUnit(x, digits, side)));
      };
      if (shown === this.numbers) {
        shown.caption(metric.leading()?.name ? `${metric.name}, ${metric.leading().name}` : metric.name);
        shown.fill([...(this.found?.rows ?? [])].reverse().map((row) => [moment(row.from), moment(row.to), ...cells(row), whole(row.reports), row.status.replaceAll("_", " ")]));
      } else {
        shown.caption(`${metric.name}, ${windowText(metric.answer)}`);
        const hidden = {value: null, lower: null, upper: null}; // below the number of reports from which it is shown
        shown.fill([...metric.shareEntries(), ...metric.entries()].map((entry) => [entry.name, ...cells(metric.isReady ? entry : hidden)]));
      }
    };
    fold.addEventListener("toggle", () => { if (fold.open) fold.render(); });
    return fold;
  }

  /** Ask for a string, and scroll to its number and its history. */
  #follow(label) {
    this.metric.ask(label);
    this.headline.element.closest(".over").scrollIntoView({block: "center"});
    announce(`${label} is in front.`);
  }

  #question() {
    const input = h("input", {id: "ask", autocomplete: "off", spellcheck: "false", required: true});
    return h("form", {class: "ask", onsubmit: (event) => { event.preventDefault(); this.#follow(input.value); input.value = ""; }},
      h("label", {for: "ask"}, "Ask for any string"), input, h("button", {type: "submit", class: "button small"}, "Ask"));
  }

  #outcomes() {
    const known = Object.entries(this.metric.outcomes ?? {}).sort((a, b) => b[1] - a[1]);
    this.outcomes.fill([...known.map(([name, n]) => [name.replaceAll("_", " "), whole(n)]), ["per second now", rate(this.metric.rate)]]);
  }

  #definition() {
    const {definition: one, answer} = this.metric;
    const key = JSON.stringify([one, this.metric.isReady, answer?.radius, answer?.heterogeneity, answer?.effective_reports]);
    if (key === this.defined) return;
    this.defined = key;
    const rows = [
      ["Kind", one.kind.replaceAll("_", " ")],
      isTrusted(one) && ["Trust", "devices send true values; only releases are shown, each drawn once"],
      ["Mechanism", Object.keys(one.options ?? {}).length ? `${one.mechanism} (${Object.entries(one.options).map(([k, v]) => `${k} = ${v}`).join(", ")})` : one.mechanism],
      one.range && ["Range", `${one.range.map((x) => number(x, x % 1 ? 2 : 0)).join(" to ")}${one.unit ? ` ${one.unit}` : ""}`],
      one.radius && ["Radius", `${one.radius}${one.unit ? ` ${one.unit}` : ""}`],
      one.rounds && ["Rounds", `${one.rounds}, splitting the ${one.split}`],
      one.axes && ["Axes", Object.keys(one.axes).join(", ")],
      one.categories && ["Categories", one.categories === "open" ? "any string" : whole(one.categories.length)],
      one.bins && ["Bins", `${whole(one.bins)}${one.scale ? `, ${one.scale} steps` : ""}`],
      one.edges && ["Bins", whole(one.edges.length - 1)],
      one.coordinates && ["Coordinates", whole(one.coordinates.length)],
      one.by && ["Sliced by", one.by.join(", ")],
      !one.rounds && ["Pane", duration(one.pane_seconds)],
      ["Lateness", duration(one.lateness_seconds)],
      !one.rounds && ["Shown from", `${whole(one.minimum_reports)} reports`],
      ["Revision", typeof one.revision === "number" ? (one.revision >>> 0).toString(16).padStart(8, "0") : one.revision],
      answer?.effective_reports > 0 && ["As precise as", `${whole(answer.effective_reports)} reports without noise`],
      (answer?.influence?.shift ?? null) !== null && [`If ${share(answer.influence.share)} of the reports were fabricated`, `off by up to ${differenceScale(one.quantiles ? "frequency" : one.kind, one.unit, one.range).withUnit(answer.influence.shift, 1, 1)}`],
      answer?.heterogeneity !== null && answer?.heterogeneity !== undefined && ["Values alike at all levels (Cochran's Q)", `p = ${answer.heterogeneity < 1e-3 ? answer.heterogeneity.toExponential(1) : number(answer.heterogeneity, 3)}`],
      this.metric.isReady && answer.radius !== null && answer.radius !== undefined && ["True vector", `within ${this.metric.scale.withUnit(answer.radius, decimals(0, 2 * answer.radius), 1)} (l2)`],
      answer?.updated && ["Last report", `${moment(Math.floor(seconds(answer.updated)))} UTC`],
    ];
    this.about.replaceChildren(...rows.filter(Boolean).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
  }
}

/** The address of a stretch of event time. */
function addressOf(from, to) {
  const iso = (at) => at && new Date(at * 1000).toISOString().replace(".000Z", "Z");
  return address({window: null, from: iso(from), to: iso(to)});
}

const labelName = ({coordinates, quantiles}) => (coordinates ? "Coordinate" : quantiles ? "Quantile" : "Category");

const heading = ({coordinates, categories, quantiles}) => (quantiles ? "Quantiles" : coordinates ? "Coordinates" : categories === "open" ? "Strings on watch or in your query" : "Largest categories");

/** A table whose rows are replaced again and again; a wide table scrolls within its box. */
function table(head, title, label = title) {
  const caption = h("caption", {class: title ? "hidden" : null}, title);
  const body = h("tbody");
  const element = h("div", {class: "table", tabindex: "0", role: "region", "aria-label": label},
    h("table", {}, caption, h("thead", {}, h("tr", {}, head.map((name) => h("th", {scope: "col"}, name)))), body));
  let before = "";
  return {
    element,
    caption(text) { setText(caption, text); },
    fill(rows) {
      const key = JSON.stringify(rows.map((row) => row.map((cell) => (Array.isArray(cell) ? cell.at(-1) : cell))));
      if (key === before) return;
      before = key;
      body.replaceChildren(...rows.map((row) => h("tr", {}, row.map((cell, index) => h(index ? "td" : "th", index ? {} : {scope: "row"}, cell)))));
    },
  };
}
