// Randomizes a value in this browser, shows what is sent of it, and how the estimate changes.

import {authorization, get, metricPath, Problem, withToken} from "./api.js";
import {encodeBatch, post, randomize, randomizeAnswer, takeTurn} from "./dither.js";
import {announce, h, setText} from "./dom.js";
import {bound, certainty, moment, number, Scale, seconds, stretch, trimmed, whole} from "./format.js";
import {problemNotice} from "./parts.js";
import {place} from "./place.js";

const REPLAY = 86_400; // a metric whose newest event is older than this, beyond its lateness, is a replay
const NO_TURN = "Nothing was sent: this browser has answered this round, or it answers another one, which it drew at random for itself.";
const ATTEMPTS = 2; // few, because a person waits
const SENDING = 20_000; // milliseconds to wait for a silent server
const PATIENCE = 60_000; // milliseconds to wait until the report is counted
const SHOWN_BITS = 128;
const BITS = ["rappor", "oue", "subset_selection"]; // mechanisms whose report has a bit for each category
const MOST_FIELDS = 12; // coordinates with a field each
const LONGEST = 10_000; // characters of a string
const FINER = 3; // digits beyond the band's, so that one report shows

const root = document.getElementById("try");
const spent = new Map(); // metric: epsilons of the reports that were sent from this page

/** Whether the module can randomize the metric; nothing is sent. It can always answer rounds, with bits. */
function isOffered(definition) {
  if (definition.crowd) return false; // it needs a relay
  if (definition.rounds) return true;
  try {
    randomize(definition, anyValue(definition), definition.levels.at(-1));
    return true;
  } catch {
    return false; // it is collected in trust, or an extension's
  }
}

/** The smallest and the largest value of a metric of numbers. */
const endsOf = ({range, edges}) => range ?? (edges && [edges[0], edges.at(-1)]);
const isOpen = ({categories}) => categories === "open";
const anyValue = (definition) => isOpen(definition) ? "" : definition.coordinates?.map(() => 0) ?? endsOf(definition)?.[0] ?? 0;

/** The question, the value and the privacy that its owner demands. */
class Question {
  constructor(definitions) {
    this.select = h("select", {id: "metric", onchange: () => this.#choose()},
      definitions.map(({name, title}) => h("option", {value: name}, title || name)));
    this.definitions = new Map(definitions.map((one) => [one.name, one]));
    const wanted = place().metric;
    if (this.definitions.has(wanted)) this.select.value = wanted;
    this.about = h("p", {class: "description"});
    this.value = h("div", {class: "value-field"});
    this.levels = h("fieldset", {class: "segments"});
    this.meaning = h("p", {class: "note"});
    this.button = h("button", {type: "submit", class: "button"}, "Randomize and send");
    this.result = h("section", {class: "result", "aria-label": "What was sent", hidden: true});
    this.form = h("form", {class: "question", onsubmit: (event) => { event.preventDefault(); this.#send(); }},
      step(1, "The question", h("label", {for: "metric", class: "hidden"}, "Metric"), this.select, this.about),
      step(2, "Your value", this.value, h("p", {class: "note"}, "It stays in this browser.")),
      step(3, "Your privacy", this.levels, this.meaning), this.button);
    this.#choose();
  }

  get definition() { return this.definitions.get(this.select.value); }

  #choose() {
    const {definition} = this;
    const isAsked = definition.rounds ? `It is asked in ${definition.rounds} rounds, each about a limit.` : "";
    setText(this.about, [definition.description || definition.kind, isAsked].filter(Boolean).join(". "));
    this.value.replaceChildren(...(isOpen(definition) ? this.#string(definition) : definition.coordinates ? this.#vector(definition) : endsOf(definition) ? this.#number(definition) : this.#categories(definition)));
    const middle = definition.levels[Math.floor((definition.levels.length - 1) / 2)];
    this.levels.replaceChildren(h("legend", {class: "hidden"}, "Epsilon"), ...definition.levels.flatMap((epsilon, index) => {
      const input = h("input", {type: "radio", name: "epsilon", id: `level-${index}`, value: String(epsilon), checked: epsilon === middle, onchange: () => this.#explain()});
      return [input, h("label", {for: input.id}, `ε ${epsilon}`)];
    }));
    this.#explain();
    this.result.hidden = true;
  }

  #number(definition) {
    const {unit} = definition;
    const [low, high] = endsOf(definition);
    const step = high - low > 20 ? 1 : (high - low) / 100;
    const initial = String(Math.round((low + high) / 2 / step) * step);
    const box = h("input", {type: "number", id: "value", min: low, max: high, step: "any", value: initial, required: true, oninput: () => { slider.value = box.value; }});
    const slider = h("input", {type: "range", min: low, max: high, step, value: initial, "aria-label": "Value", oninput: () => { box.value = slider.value; }});
    this.read = () => Number(box.value);
    return [h("label", {for: "value", class: "hidden"}, "Value"), slider, h("span", {class: "with-unit"}, box, unit && h("span", {}, unit))];
  }

  /** A field for each coordinate, or one field for all if there are many. */
  #vector({coordinates, radius, unit}) {
    const isLong = coordinates.length > MOST_FIELDS;
    const first = String(Number((radius / 2).toPrecision(3)));
    const boxes = (isLong ? ["Value"] : coordinates).map((name, index) => h("input", {type: isLong ? "text" : "number", step: "any", required: true, "aria-label": name, id: index ? undefined : "value",
      value: isLong ? coordinates.map(() => 0).join(" ") : index ? "0" : first}));
    const texts = () => isLong ? boxes[0].value.trim().split(/[\s,]+/) : boxes.map((box) => box.value);
    this.read = () => texts().map(Number);
    this.nameOf = (vector) => `${vector.slice(0, MOST_FIELDS).map((each, i) => `${coordinates[i]} ${trimmed(number(each, 3))}`).join(", ")}${isLong ? ", …" : ""}${unit ? ` ${unit}` : ""}`;
    return isLong
      ? [h("label", {for: "value", class: "note"}, `${coordinates.length} numbers, with spaces between them`), ...boxes]
      : boxes.map((box, i) => h("label", {class: "with-unit"}, h("span", {}, coordinates[i]), box, unit && h("span", {}, unit)));
  }

  #string({watch = []}) {
    const box = h("input", {type: "text", id: "value", maxlength: LONGEST, autocomplete: "off", spellcheck: "false", list: "watched"});
    this.read = () => box.value;
    this.nameOf = (text) => text;
    return [h("label", {for: "value", class: "hidden"}, "Value"), box, h("datalist", {id: "watched"}, watch.map((text) => h("option", {value: text})))];
  }

  #categories({categories: names}) {
    const select = h("select", {id: "value"}, names.map((name, index) => h("option", {value: String(index)}, name)));
    this.read = () => Number(select.value);
    this.nameOf = (index) => names[index];
    return [h("label", {for: "value", class: "hidden"}, "Value"), select];
  }

  get epsilon() { return Number(this.form.elements.epsilon.value); }

  #explain() {
    const {epsilon} = this;
    setText(this.meaning, `Any report is at most e^${epsilon} = ${bound(Math.exp(epsilon), 2, 1)} times as likely with your value as with any other.`);
  }

  async #send() {
    const {definition, epsilon} = this;
    this.button.disabled = true;
    try {
      const value = this.read();
      const round = definition.rounds && await openRound(definition);
      const {level, report, denied} = round ? randomizeAnswer(definition, round, value, epsilon) : randomize(definition, value, epsilon);
      if (round && !(await isTurn(definition, round))) return this.#tell(NO_TURN);
      const sent = {round, definition, epsilon, report, denied, own: endsOf(definition) ? `${number(value, value % 1 ? 2 : 0)}${definition.unit ? ` ${definition.unit}` : ""}` : this.nameOf(value), index: value};
      const [before, time] = round ? [null, null] : await Promise.all([estimateOf(definition), eventTime(definition)]);
      const body = encodeBatch(definition, [level], [report], {time: time ?? Date.now(), round: round?.number});
      const outcome = new Outcome(sent, time, before);
      showWith(this.result, ...outcome.elements);
      await outcome.deliver(body);
    } catch (error) {
      showWith(this.result, problemNotice(error));
      announce(error.message);
    } finally {
      this.button.disabled = false;
    }
  }

  /** Say why nothing was sent. */
  #tell(text) {
    showWith(this.result, h("p", {class: "delivery"}, text));
    announce(text);
  }
}

/** What became of a report: what stayed on the device, what was sent, and how the estimate moved. */
class Outcome {
  constructor(sent, time, before) {
    Object.assign(this, {sent, before, elements: []});
    const {definition, epsilon, report, own, denied} = sent;
    this.state = h("p", {class: "delivery"}, "Sending …");
    this.move = h("div", {class: "move", hidden: true});
    this.again = h("button", {type: "button", class: "button small", hidden: true}, "Send the same report again");
    this.elements = [
      h("div", {class: "sides"},
        h("div", {class: "side kept"}, h("h3", {}, "Stays here"), h("p", {class: "own"}, own), h("p", {class: "note"}, "The true value. No request contains it.", denied ? " The metric's rule denies it: the report is one of \"other\"." : "")),
        h("div", {class: "side sent"}, h("h3", {}, "Sent"), picture(sent),
          h("p", {class: "note"}, `${report.length} ${report.length === 1 ? "byte" : "bytes"}: `, h("code", {}, hex(report)), `, level ε = ${epsilon}`, time === null ? "" : `, as of ${moment(time / 1000)}, the time of this replay`))),
      this.state, this.again, this.move,
    ];
    this.definition = definition;
  }

  async deliver(body) {
    setText(this.state, "Sending …");
    try {
      await withToken(() => this.#post(body));
    } catch (error) {
      this.state.replaceChildren(problemNotice(error));
      this.again.hidden = error.body === undefined;
      this.again.onclick = () => { this.again.hidden = true; this.deliver(body); };
      return announce(error.message);
    }
    const {definition, sent: {epsilon}} = this;
    spent.set(definition.name, [...(spent.get(definition.name) ?? []), epsilon]);
    const all = spent.get(definition.name);
    const total = all.reduce((sum, one) => sum + one, 0);
    setText(this.state, `Kafka has the report.${all.length > 1 ? ` It was report ${all.length} of ${definition.name} from this page; their epsilons add up to ${trimmed(number(total, 4))}.` : ""}`);
    announce("Kafka has the report.");
    if (!this.sent.round) return this.#watch();
    showWith(this.move,
      h("p", {class: "note"}, "The round is decided when enough devices have answered it. This browser does not answer it again."),
      h("a", {class: "button quiet small", href: `/#metric=${encodeURIComponent(definition.name)}`}, "Its rounds on the dashboard"));
  }

  /** Post a report; turn a refusal for lack of a token into a Problem, so that the person is asked for one. */
  async #post(body) {
    const token = authorization().Authorization?.replace("Bearer ", "");
    try {
      return await post("/v1/reports", body, {token, attempts: ATTEMPTS, signal: AbortSignal.timeout(SENDING)});
    } catch (error) {
      if (error.message === "aborted") error.message = "The server does not answer, so it may or may not have the report. You can send the same report again.";
      if (error.status === 401 || error.status === 403) throw Object.assign(new Problem(error.status, error.message), {body});
      throw error;
    }
  }

  async #watch() {
    const {definition, before} = this;
    const deadline = performance.now() + PATIENCE;
    while (performance.now() < deadline) {
      const now = await estimateOf(definition).catch(() => null); // Redis may be away; Kafka has the report
      if (now && now.reports > (before?.reports ?? 0)) return this.#moved(now);
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
    showWith(this.move, h("p", {class: "note"}, `Not counted within ${PATIENCE / 1000} s. Check that a worker runs (dither aggregate) and that the event time is not too late.`));
  }

  /** Show that the report is counted, without its estimate: to ask for an unlisted string would tell the server what it was. */
  #unasked(now) {
    const {definition} = this;
    showWith(this.move,
      h("p", {class: "note"}, `${definition.name} has ${whole(now.reports)} reports. This page does not ask how frequent your string is: the question would tell the server what it was.`),
      h("a", {class: "button quiet small", href: `/#metric=${encodeURIComponent(definition.name)}`}, "Its history on the dashboard"));
    announce("The report is counted.");
  }

  #moved(now) {
    const {definition, before, sent} = this;
    const scale = new Scale(definition.kind, definition.unit, definition.range);
    const pick = (answer) => {
      const index = answer?.quantiles || answer?.coordinates ? 0 : answer?.categories?.indexOf(sent.own) ?? -1;
      const at = (list) => (Array.isArray(list) ? list[index] : list) ?? null;
      return answer && {value: at(answer.value), lower: at(answer.lower), upper: at(answer.upper), reports: answer.reports, isShown: answer.status !== "too_few_reports"};
    };
    const [was, is] = [pick(before), pick(now)];
    if (isOpen(definition) && is.value === null) return this.#unasked(now);
    const digits = is.lower === null ? 2 : scale.digits(is.lower, is.upper) + FINER;
    const column = (title, one) => h("div", {}, h("p", {class: "note"}, title),
      h("p", {class: "moved"}, one?.value === null || !one?.isShown ? "–" : scale.withUnit(one.value, digits)),
      h("p", {class: "note"}, one ? `${whole(one.reports)} reports` : "no reports"));
    showWith(this.move,
      h("h3", {}, `The ${now.quantiles ? `quantile ${now.quantiles[0]}` : "estimate"} of ${endsOf(definition) ? "" : `${definition.coordinates?.[0] ?? sent.own} in `}${definition.name}`),
      h("div", {class: "sides"}, column("Before", was), column("Now", is)),
      h("p", {class: "note"}, now.status === "too_few_reports" ? `Shown from ${whole(definition.minimum_reports)} reports.` : is.lower === null ? "" : `The band is ${scale.interval(is.lower, is.upper)}; it covers the truth with probability ${certainty(now.beta)}, ${stretch(seconds(now.from), seconds(now.to))}.`),
      h("a", {class: "button quiet small", href: `/#metric=${encodeURIComponent(definition.name)}`}, "Its history on the dashboard"));
    announce("The report is counted.");
  }
}

/** Show an element with these children. */
function showWith(element, ...children) {
  element.replaceChildren(...children);
  element.hidden = false;
}

function step(count, title, ...children) {
  return h("section", {class: "step"}, h("h2", {}, h("span", {class: "count", "aria-hidden": "true"}, String(count)), title), ...children);
}

/** The round that is open; a problem if there is none. */
async function openRound(definition) {
  const round = await withToken(() => get(`${metricPath(definition.name)}/round`));
  if (round.threshold === null) throw new Problem(409, "All rounds are decided: nobody is asked any more.");
  return round;
}

/** Take this browser's turn to answer a round, if it has not answered; two pages of a browser wait for each other. */
function isTurn(definition, round) {
  const turn = () => takeTurn(definition, round);
  return navigator.locks ? navigator.locks.request(`dither:${definition.name}`, turn) : turn();
}

/** A picture of a report: yes or no, a bit, a bit for each category, or a symbol. */
function picture({definition, report, index, round, epsilon}) {
  if (round) {
    const unit = definition.unit ? ` ${definition.unit}` : "";
    const asked = `Round ${round.number} of ${round.rounds}: is it ${definition.kind === "minimum" ? "at most" : "at least"} ${number(round.threshold, round.threshold % 1 ? 2 : 0)}${unit}?`;
    return h("p", {class: "own"}, report[0] === 1 ? "yes" : "no", h("span", {class: "note"}, ` ${asked} The answer is turned round at random.`));
  }
  const numbers = definition.constants?.z?.[definition.levels.indexOf(epsilon)];
  if (definition.mechanism === "randomized_response" || numbers?.length === 2) {
    const [low, high] = definition.range;
    const up = report[0] === 1;
    return h("p", {class: "own"}, up ? `${high}` : `${low}`, h("span", {class: "note"}, up ? " the upper end: one bit, 1" : " the lower end: one bit, 0"));
  }
  if (numbers) return h("p", {class: "own"}, `symbol ${report[0] + 1} of ${numbers.length}`, h("span", {class: "note"}, ` in a row from ${definition.range.join(" to ")}; those near your value are more likely`));
  if (definition.mechanism === "laplace") {
    const [low, high] = definition.range;
    const noisy = new DataView(report.buffer).getInt32(0, true) / (definition.options?.grid ?? 1024);
    return h("p", {class: "own"}, `${number(low + (noisy + 1) * (high - low) / 2, 2)}${definition.unit ? ` ${definition.unit}` : ""}`, h("span", {class: "note"}, " your value with noise"));
  }
  if (BITS.includes(definition.mechanism) && definition.categories.length <= SHOWN_BITS) {
    const bit = (i) => (report[i >> 3] >> (i & 7)) & 1;
    const set = definition.categories.filter((_, i) => bit(i)).length;
    return h("div", {}, h("div", {class: "bits", role: "img", "aria-label": `${set} of ${definition.categories.length} bits are set; that of your own category is ${bit(index) ? "set" : "not set"}`},
      definition.categories.map((name, i) => h("i", {class: `${bit(i) ? "set" : ""}${i === index ? " yours" : ""}`, title: name}))),
      h("p", {class: "note"}, `${set} of ${definition.categories.length} bits are set, at random; yours is outlined.`));
  }
  if (definition.coordinates) {
    const {length} = definition.coordinates;
    const [each, usual] = report.length === length ? [new Int8Array(report.buffer), 127] : report.length === 2 * length ? [new Int16Array(report.buffer), 2 ** 14] : [new Int32Array(report.buffer), 2 ** 15];
    const grid = definition.options?.grid ?? usual;
    const shown = [...each.slice(0, MOST_FIELDS)].map((one) => number(one / grid, 3)).join(", ");
    return h("p", {class: "own"}, `(${shown}${each.length > MOST_FIELDS ? ", …" : ""})`, h("span", {class: "note"}, " a direction, drawn at random; it leans to yours"));
  }
  if (definition.mechanism === "repetition") {
    const times = Math.ceil(epsilon);
    return h("p", {class: "own"}, `${times} ${times === 1 ? "report" : "reports"}`, h("span", {class: "note"}, ` each at ε = ${trimmed(number(epsilon / times, 4))}; together they have all of it`));
  }
  const symbol = [...report].reduceRight((sum, byte) => sum * 256 + byte, 0);
  return h("p", {class: "own"}, report.length > 4 ? `${report.length} bytes` : `symbol ${symbol}`);
}

const hex = (bytes) => [...bytes.slice(0, 32)].map((byte) => byte.toString(16).padStart(2, "0")).join("") + (bytes.length > 32 ? "…" : "");

async function estimateOf(definition) {
  const answer = await get(`${metricPath(definition.name)}/estimate`, {}, {signal: AbortSignal.timeout(SENDING)});
  return answer.status === "not_ready" ? null : answer;
}

/** The event time of the report in milliseconds; null for the present. The report of a replay gets the replay's newest event time. */
async function eventTime(definition) {
  const status = await get("/v1/status", {}, {signal: AbortSignal.timeout(SENDING)});
  const newest = seconds(status.metrics[definition.name]?.event_time);
  const old = newest !== null && Date.now() / 1000 - newest > REPLAY + definition.lateness_seconds;
  return old ? newest * 1000 : null;
}

async function start() {
  try {
    const definitions = (await withToken(() => get("/v1/metrics"))).metrics;
    const offered = definitions.filter(isOffered);
    const others = definitions.filter((one) => !offered.includes(one)).map(({name}) => name);
    const note = others.length ? [h("p", {class: "note"}, `Not offered: ${others.join(", ")}. They are collected in trust, and this page never sends a true value; or through a relay; or their mechanism is an extension's.`)] : [];
    if (!offered.length) return root.replaceChildren(...note);
    const question = new Question(offered);
    root.replaceChildren(question.form, question.result, ...note);
  } catch (error) {
    root.replaceChildren(problemNotice(error));
  }
}

start();
