// The change of a metric against the period before, in words: what is certain about it, or that nothing is.

import {h} from "./dom.js";
import {certainty, DAY, Scale, seconds, stretch} from "./format.js";
import {explained} from "./guide.js";
import {isTrusted} from "./parts.js";

/** The numbers of a label in a comparison; null if an arm has too few reports. */
export function changeIn(answer, label) {
  const labels = answer.categories ?? answer.coordinates ?? answer.quantiles;
  const index = labels?.indexOf(label);
  const at = (numbers) => (labels ? numbers?.[index] : numbers) ?? null;
  const value = at(answer.value);
  return value === null ? null : {value, lower: at(answer.lower), upper: at(answer.upper), p: at(answer.p_value), isCertain: at(answer.p_value) <= answer.beta, answer};
}

/** The scale of a difference. Differences of shares are in points: 5 points below 20 % is 15 %, not 19 %. */
export function differenceScale(kind, unit, range) {
  const scale = new Scale(kind, unit, range);
  if (scale.unit === "%") scale.unit = "points";
  return scale;
}

/** How much later the first arm begins than the second, in words such as "90 days". */
function lengthOf({answer: {a, b}}) {
  const span = seconds(a.from) - seconds(b.from);
  const [size, name] = span >= 2 * DAY ? [DAY, "days"] : [3600, "hours"];
  const count = Math.round(span / size);
  return count === 1 ? "hour" : `${count} ${name}`;
}

const signed = (x, text) => (x > 0 ? `+${text}` : text);

/** A change in short: {amount: "+2.1 min", interval: "+0.4 to +3.8", direction}. */
export function amountOf({value, lower, upper}, {definition}) {
  const scale = differenceScale(definition.kind, definition.unit, definition.range);
  const digits = scale.digits(lower, upper);
  return {
    amount: signed(value, scale.withUnit(value, digits)),
    interval: `${signed(lower, scale.text(lower, digits, -1))} to ${signed(upper, scale.text(upper, digits, 1))}`,
    direction: value > 0 ? "more" : "less",
  };
}

/** Which windows are compared, and how certain the change is. */
function promiseOf({answer}) {
  const [now, before] = [answer.a, answer.b].map(({from, to}) => stretch(seconds(from), seconds(to)));
  return `${now} against ${before} (UTC), closed panes. What this page calls a change holds with ${certainty(answer.beta)} for all metrics and periods together, at one look.`;
}

/** A card's line about the change of the number in front, or else of the number whose change is surest, with its interval. The line says so if there is no evidence of a change; it is empty if nothing can be compared. */
export class Change {
  constructor() { Object.assign(this, {element: h("p", {class: "delta"}), shown: ""}); }

  show(metric) {
    const found = metric.isReady ? metric.toldChange() : null;
    const key = JSON.stringify(found);
    if (key === this.shown) return;
    this.shown = key;
    this.element.hidden = !found;
    if (!found) return this.element.replaceChildren();
    const length = lengthOf(found);
    const isRelease = isTrusted(metric.definition);
    const before = ` against the ${isRelease ? `release ${length.replace(/^hour/, "an hour")}` : length} before`;
    const last = isRelease || metric.place.window ? "" : ` in the last ${length},`;
    const title = promiseOf(found);
    if (!found.isCertain) return this.element.replaceChildren(explained("change", {title}, "no evidence of a change"), last, before);
    const {amount, interval, direction} = amountOf(found, metric);
    this.element.replaceChildren(found.name ? `${found.name}: ` : "", explained("change", {class: `change ${direction}`, title}, amount), `${last}${before} `, h("em", {}, `(${interval})`));
  }
}
