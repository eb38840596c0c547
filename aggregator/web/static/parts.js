// Parts of the page that the card and the page of a metric share.

import {get, isAdministrator, Problem, withToken} from "./api.js";
import {announce, h, setText} from "./dom.js";
import {certainty, percent, probability, stretch, seconds, whole} from "./format.js";
import {explained} from "./guide.js";
import {address, metricAddress} from "./place.js";
import {shapeOf} from "./shapes.js";

export const POLICIES = {
  optimal: "least noise; right if values are independent of the level",
  paper: "the paper's weights, for comparison",
  uniform: "equal weights; right if values depend on the level",
  proportional: "in proportion to epsilon; a baseline",
  "uniform-minimum": "equal weights, with the noise of the strictest user",
  adpm: "least worst-case squared error",
};
const FAMILY = {
  a: "w ~ 1 - e^-epsilon; if values are independent of the level",
  c: "if values may depend on the level", u: "if they do not; for the users’ plain mean",
  ct: "as c, with another norm", ut: "as u, with another norm",
};
for (const kind of ["hpm", "hpf"]) for (const [key, meaning] of Object.entries(FAMILY)) POLICIES[`${kind}-${key}`] = meaning;

/** Whether devices send true values, so that only releases are shown. */
export const isTrusted = (definition) => definition.trust === "central";
const STATUS = {
  not_ready: ["waiting", "Waiting", "No report has been counted yet."],
  too_few_reports: ["waiting", "Too few reports", "Fewer reports than the minimum for an estimate."],
  provisional: ["provisional", "Still counting", "Provisional: more reports can still arrive in this window. Its band holds however often you look while the window grows; the final band is a separate statement."],
  final: ["final", "Final", "No more reports can arrive in this window."],
  expired: ["waiting", "Expired", "The metric's retention has deleted part of this window."],
};
const SEARCH_STATUS = {
  not_ready: ["waiting", "Waiting", "No round is open yet."],
  too_few_reports: ["waiting", "First round", "No round is decided yet."],
  provisional: ["provisional", "Searching", "Some rounds are not decided yet; the certified end holds at all times at once."],
  final: ["final", "Decided", "All rounds are decided; the result is final."],
};
const LONGEST_LABEL = 20; // characters of a label beside a number
const DIFFERENT = 1e-3; // the largest p-value that counts: a false warning for one metric in a thousand

const trustedFlag = (definition) => isTrusted(definition) && explained("status", {class: "chip trusted", title: "Devices send true values. Only releases are shown: each is drawn once, with noise."}, "Trusted");

/** The state of an answer, as a shape and a word instead of only a colour, and whether its collector is trusted. */
export class StatusChip {
  constructor(definition) {
    this.words = definition.rounds ? SEARCH_STATUS : STATUS;
    this.chip = explained("status", {class: "chip"});
    this.element = h("div", {class: "chips"}, trustedFlag(definition), this.chip);
  }
  show(status) {
    const [name, text, title] = this.words[status] ?? ["waiting", "Reading", "Waiting for the first answer."];
    this.chip.dataset.status = name;
    this.chip.title = title;
    setText(this.chip, text);
  }
}

/** The flags beside a card's title, one for each thing that is to be said. */
export class Flags {
  constructor(definition) {
    this.fixed = [trustedFlag(definition)].filter(Boolean);
    this.differs = h("a", {class: "flag", hidden: true, title: "The metric's page says what that means, and what to do."}, "depends on the level");
    this.status = new StatusChip(definition);
    Object.assign(this, {definition, byFeature: new Map(), element: h("div", {class: "flags"})});
    this.#fill();
  }
  put(feature, flag) {
    this.byFeature.set(feature, flag);
    this.#fill();
  }
  show({answer, isReady, name}) {
    this.differs.hidden = !isReady || !differs(answer);
    this.differs.setAttribute("href", metricAddress(name));
    this.status.show(answer?.status);
    this.status.chip.hidden = !answer || (isReady && !this.definition.rounds);
  }
  #fill() { this.element.replaceChildren(...this.fixed, ...[...this.byFeature.values()].filter(Boolean), this.differs, this.status.chip); }
}

/** The epsilon that each report of a metric with a crowd keeps, in words. */
export function crowdText({local, central}) {
  const kept = `Each report keeps ε = ${local}, whoever colludes; `;
  if (!central) return `${kept}nothing smaller is proved for its crowd.`;
  return `${kept}among ${whole(central.crowd)} others whom a relay shuffled, ε = ${central.epsilon} with δ = ${probability(central.delta)}, in one pane: times the panes for one person.`;
}

/** Whether values depend on the privacy level, so that the weights in force estimate another population. */
const differs = ({heterogeneity: p, policy}) => (p ?? null) !== null && p < DIFFERENT && policy !== "uniform";

/** What the bounds of an answer cover, in a few words and in full sentences. */
function coverage({covers, bound, beta, chosen_among: among}) {
  const share = `${percent(beta)} in 100`;
  const both = 2 * beta < 1 ? `The band of a growing window and that of the final one are two statements: each holds with ${certainty(beta)}, both with ${certainty(2 * beta)}.` : "";
  const wrong = bound === "anytime" ? `For each start by itself, however often you look while the window grows: of many starts at most ${share} ever show a wrong band. ${both}` : `For each window by itself: of many windows at most ${share} are wrong. ${both}`;
  const [text, title] = covers.startsWith("all times") ? ["at all times", `The band covers the truth at ${covers}, however often you look.`]
    : covers === "this window" ? ["for this window", wrong]
      : covers.endsWith(" windows") ? [`for ${covers} together`, both] : [`for ${covers}`, ""];
  return {text: among ? `${text}, chosen among ${among}` : text, title: among ? `${title} The weights were chosen, or changed, after looking: ${among} policies share the ${share}. The band before the change is not among them.` : title};
}

/** The number in front and its interval in plain words; in the brief form, the interval's title has the rest. */
export class Headline {
  constructor({isBrief = false} = {}) {
    this.isBrief = isBrief;
    this.label = h("span", {class: "label"});
    this.value = h("span", {class: "value"});
    this.unit = h("span", {class: "unit"});
    this.band = explained("estimate", {class: "band"});
    this.about = explained("estimate", {class: "about"});
    this.element = h("div", {class: "headline"},
      h("p", {class: "figure"}, this.label, this.value, this.unit),
      h("p", {class: "limits"}, this.band, this.about));
  }
  show(metric) {
    const {answer, scale} = metric;
    const leading = metric.leading();
    this.element.hidden = !metric.isReady || !leading || leading.value === null;
    if (this.element.hidden) return;
    const figure = shapeOf(metric.definition).headline?.(metric);
    if (figure) return this.#put({...figure, band: ""});
    const {lower, upper} = leading;
    const digits = scale.digits(lower, upper);
    const {text, title} = coverage(answer);
    const window = answer.from || answer.to ? `${windowText(answer)} · ` : "";
    const about = `${window}${certainty(answer.beta)} ${text}`;
    const all = leading.label ? " The intervals of all of them hold at once." : "";
    this.#put({
      label: leading.name, value: scale.text(leading.value, digits), unit: scale.unit, about,
      band: `between ${scale.text(lower, digits, -1)} and ${scale.text(upper, digits, 1)}`,
      title: `${this.isBrief ? `${about}. ${whole(answer.reports)} ${answer.reports === 1 ? "report" : "reports"}. ` : ""}${title}${all}`,
    });
  }
  #put({label, value, unit, band, about, title}) {
    for (const [part, text] of Object.entries({label, value, unit, band, about})) setText(this[part], text);
    this.label.title = label ?? "";
    this.label.classList.toggle("long", (label ?? "").length > LONGEST_LABEL);
    this.band.hidden = !band;
    this.about.hidden = this.isBrief && Boolean(band);
    for (const part of [this.band, this.about]) part.title = part.hidden ? "" : title;
  }
}

/** Why there is no number yet, and how far away it is; hidden once there is a number. */
export class EmptyState {
  constructor() {
    this.text = h("p");
    this.hint = h("p", {class: "note"});
    this.meter = h("progress", {"aria-label": "Reports until an estimate is shown"});
    this.element = h("div", {class: "empty", hidden: true}, this.text, this.meter, this.hint);
  }
  show(metric) {
    const {answer, definition} = metric;
    const open = metric.isReady && !metric.entries().length;
    this.element.hidden = metric.isReady && !open;
    if (this.element.hidden) return;
    const few = answer?.status === "too_few_reports" && !definition.rounds;
    this.meter.hidden = !few;
    if (few) [this.meter.max, this.meter.value] = [definition.minimum_reports, answer.reports];
    const [text, ...hint] = emptyWords(metric, open, few);
    setText(this.text, text);
    this.hint.replaceChildren(...hint);
  }
}

/** Why there is no number, and what to do, in words. */
function emptyWords({answer, definition, problems}, isOpen, isFew) {
  if (isOpen) return ["You can ask for any string.", "Ask on the metric's page. Strings that the definition has on “watch” are always shown."];
  if (!answer) return [problems.answer ? "No answer" : "Reading …"];
  const more = Math.max(1, definition.minimum_reports - answer.reports);
  if (isFew) return [`${whole(more)} more ${more === 1 ? "report" : "reports"} until an estimate is shown`, `${whole(answer.reports)} of ${whole(definition.minimum_reports)} reports are counted.`];
  if (definition.rounds) return answer.search ? ["The first round is open", "The estimate appears once it is decided."] : ["No round is open yet", "“dither coordinate” opens the first one."];
  if (answer.status === "expired") return ["Part of this window has expired", "The metric's retention has deleted it. Choose a window that begins later."];
  if (isTrusted(definition)) return ["No release yet", "Devices send true values. A pane is released, with noise, once it is closed in all partitions."];
  if (definition.crowd) return ["No crowd yet", `A relay posts the reports of a pane some time after its end, if there are ${whole(definition.crowd.minimum)} or more.`];
  return ["No reports yet", "Send the first one from ", h("a", {href: `/try${address({metric: definition.name})}`}, "the page “Try it”"), ", with ", h("code", {}, `dither produce ${definition.name} --csv FILE`), ", or from a device with ", h("code", {}, "Reporter"), "."];
}

/** What a person should know: failures with their remedies and, with `explain`, whether values depend on the privacy level. */
export class Notices {
  constructor({explain = false} = {}) { Object.assign(this, {element: h("div", {class: "notices"}), explain, shown: ""}); }
  show(metric) {
    const failures = Object.values(metric.problems).filter(Boolean);
    const isWarning = this.explain && metric.isReady && differs(metric.answer);
    const key = JSON.stringify([failures.map((one) => one.message), isWarning && [probability(metric.answer.heterogeneity), metric.answer.policy]]);
    if (key === this.shown) return;
    this.shown = key;
    this.element.replaceChildren(
      ...[...new Map(failures.map((one) => [one.message, one])).values()].map((one) => problemNotice(one)),
      ...(isWarning ? [this.#warning(metric, metric.answer.heterogeneity)] : []));
  }
  #warning(metric, p) {
    const change = () => choosePolicy(metric, "uniform");
    return h("div", {class: "notice warning"},
      h("p", {},
        h("strong", {}, "The values depend on the privacy level"), ` (p = ${probability(p)}): the weights “${metric.answer.policy}” estimate another population.`,
        " People who chose more privacy have other values than those who chose less. All weights except uniform give them less weight, so the estimate is for a population with fewer of them. With uniform weights every report has the same weight; the band is wider, and covers everybody who reported."),
      h("button", {type: "button", class: "button small", onclick: change}, "Use uniform"));
  }
}

/** The notice of a failure: what was wrong, what to do, and a button {text, press} that does it. */
export const problemNotice = (problem, action = null) =>
  h("div", {class: "notice danger"}, h("p", {}, h("strong", {}, problem.message), problem.remedy ? ` ${problem.remedy}` : ""),
    action && h("button", {type: "button", class: "button small", onclick: action.press}, action.text));

/** The choice of how much each level counts, which takes effect for all readers. */
export class PolicyChoice {
  constructor(metric) {
    this.select = h("select", {"aria-label": `Weights of ${metric.name}`, onchange: () => choosePolicy(metric, this.select.value)},
      metric.definition.policies.map((name) => h("option", {value: name, title: POLICIES[name]}, name)));
    this.name = h("span", {class: "policy-name"});
    this.change = h("button", {type: "button", class: "button quiet small", onclick: () => becomeAdministrator(metric)}, "Change");
    this.element = h("div", {class: "policy"}, explained("weights", {}, "Weights"), this.select, this.name, this.change);
  }
  show(metric) {
    if (document.activeElement !== this.select || this.shown !== metric.definition.policy) this.select.value = metric.definition.policy;
    this.shown = metric.definition.policy;
    setText(this.name, this.shown);
    const mayChange = isAdministrator();
    [this.select.hidden, this.name.hidden, this.change.hidden] = [!mayChange, mayChange, mayChange];
    this.element.hidden = Boolean(metric.definition.rounds); // each round is decided with the best
  }
}

/** Ask the person for a token that may change weights; then the choice appears. */
async function becomeAdministrator(metric) {
  await withToken(async () => {
    await get("/v1/status");
    if (!isAdministrator()) throw new Problem(403, "Changing weights needs a token with scope admin.", "`dither tokens new NAME --scope admin` makes one.");
  }).catch(({message}) => announce(message));
  metric.changed(metric);
}

async function choosePolicy(metric, policy) {
  try {
    await metric.setPolicy(policy);
    announce(`${metric.name} now has ${policy} weights.`);
  } catch (error) {
    announce(`${metric.name} keeps its ${metric.definition.policy} weights: ${error.message}`);
  }
}

/** What the chart shows, in words. */
export function historyLabel(metric, rows) {
  const known = rows.filter((row) => row.value !== null);
  const leading = metric.leading()?.name;
  const what = leading ? `${metric.name}, ${leading}` : metric.name;
  if (!known.length) return `History of ${what}: no data yet`;
  const values = known.map((row) => row.value);
  const digits = metric.scale.digits(known.at(-1).lower, known.at(-1).upper);
  const text = (x) => metric.scale.withUnit(x, digits);
  return `History of ${what}, ${known.length} ${known.length === 1 ? "step" : "steps"}, ${stretch(rows[0].from, rows.at(-1).to)}: from ${text(Math.min(...values))} to ${text(Math.max(...values))}, last ${text(values.at(-1))}`;
}

/** The window that an answer is about. */
export const windowText = (answer) => (answer ? stretch(seconds(answer.from), seconds(answer.to)) : "");

/** A sentence if slices are about a longer window than the chosen one; else empty. */
export const widerText = (metric, answer) => (answer && metric.isWider(answer) ? `${windowText(answer)}: slices are kept in longer steps than the window that you chose` : "");
