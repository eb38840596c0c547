// Buttons that save what a metric's page shows as CSV: the tables of `?format=csv`.

import {getFile, withToken} from "./api.js";
import {h, setText} from "./dom.js";

const SOON = 10_000; // milliseconds after which a file that was handed over is let go

export class Downloads {
  constructor(metric) {
    this.metric = metric;
    this.problem = h("p", {class: "complaint", role: "alert"});
    const button = (what, text) => h("button", {type: "button", class: "button small quiet", onclick: (event) => this.#save(what, event.currentTarget)}, text);
    this.element = h("div", {class: "downloads"},
      metric.hasHistory && button("series", "Download the history (CSV)"), button("estimate", "Download the window (CSV)"), this.problem);
  }

  async #save(what, button) {
    button.disabled = true;
    setText(this.problem, "");
    try {
      const [path, parameters] = this.metric.tableOf(what);
      const file = URL.createObjectURL(await withToken(() => getFile(path, parameters)));
      h("a", {href: file, download: `${this.metric.name}-${what}.csv`}).click();
      setTimeout(() => URL.revokeObjectURL(file), SOON);
    } catch (error) {
      setText(this.problem, [error.message, error.remedy].filter(Boolean).join(" "));
    }
    button.disabled = false;
  }
}
