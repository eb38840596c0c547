// The mix of privacy levels: above, each level's share of the reports; below, its share of the weight; between them, how the first becomes the second.

import {h, setText, svg} from "./dom.js";
import {decimalsOf, number, share} from "./format.js";
import {explained} from "./guide.js";

const [TOP, BAND, BOTTOM] = [9, 12, 9];
const HEIGHT = TOP + BAND + BOTTOM;

/** The class of a level's colour, by its rank: more private levels are darker on a light page, and lighter on a dark page. */
export const levelClass = (index, count) => `level-${Math.round((index * 6) / Math.max(1, count - 1))}`;

export class Mix {
  constructor() {
    this.drawing = svg("svg", {class: "mix-chart", viewBox: `0 0 100 ${HEIGHT}`, preserveAspectRatio: "none", height: HEIGHT, "aria-hidden": "true"});
    this.legend = h("ul", {class: "mix-legend"});
    this.element = h("div", {class: "mix"},
      h("div", {class: "mix-sides", "aria-hidden": "true"}, h("span", {}, "reports"), h("span", {}, "weight")),
      h("div", {class: "mix-body"}, this.drawing, this.legend));
    this.parts = [];
  }

  /** Show levels {epsilon, reports, weight}. */
  show(levels) {
    const reports = levels.reduce((sum, level) => sum + level.reports, 0);
    const weights = levels.reduce((sum, level) => sum + (level.weight ?? 0), 0);
    while (this.parts.length < levels.length) this.#add(this.parts.length, levels.length);
    let [above, below] = [0, 0];
    levels.forEach((level, index) => {
      const part = this.parts[index];
      const wide = reports ? (100 * level.reports) / reports : 0;
      const heavy = weights ? (100 * (level.weight ?? 0)) / weights : 0;
      const at = (element, attributes) => { for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value); };
      at(part.reports, {x: above, width: wide});
      at(part.weight, {x: below, width: heavy});
      at(part.flow, {points: `${above},${TOP} ${above + wide},${TOP} ${below + heavy},${TOP + BAND} ${below},${TOP + BAND}`});
      setText(part.epsilon, number(level.epsilon, decimalsOf(level.epsilon)));
      const told = `ε = ${level.epsilon}: ${share(wide / 100)} of the reports, ${share(heavy / 100)} of the weight`;
      setText(part.words, told);
      part.entry.title = told;
      above += wide;
      below += heavy;
    });
  }

  #add(index, count) {
    const name = levelClass(index, count);
    const part = {
      reports: svg("rect", {class: name, y: 0, height: TOP}),
      flow: svg("polygon", {class: `${name} flow`}),
      weight: svg("rect", {class: name, y: TOP + BAND, height: BOTTOM}),
      epsilon: h("span", {"aria-hidden": "true"}),
      words: h("span", {class: "hidden"}),
    };
    part.entry = h("li", {}, h("i", {class: `swatch ${name}`, "aria-hidden": "true"}), part.epsilon, part.words);
    if (!index) part.entry.prepend(explained("levels", {class: "symbol", "aria-label": "What a privacy level is"}, "ε"));
    this.drawing.append(part.reports, part.flow, part.weight);
    this.legend.append(part.entry);
    this.parts.push(part);
  }
}
