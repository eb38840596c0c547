// The window of event time: the last N up to the newest event time, all, or from-to.

import {h} from "./dom.js";
import {DAY} from "./format.js";
import {address, isEverything, place, WINDOWS} from "./place.js";

const CUSTOM = "custom";
const WEEK = 7 * DAY;
const minutes = (moment) => (moment ? new Date(moment).toISOString().slice(0, 16) : "");

/** Fill the form of the window; the form follows the address, and the address follows the form. */
export function rangePicker(form) {
  const radio = (value, text) => {
    const input = h("input", {type: "radio", name: "window", value, id: `window-${value || "all"}`});
    return [input, h("label", {for: input.id}, text)];
  };
  const from = h("input", {type: "datetime-local", id: "from", step: 60});
  const to = h("input", {type: "datetime-local", id: "to", step: 60});
  const complaint = h("p", {class: "complaint", role: "alert"});
  const custom = h("div", {class: "custom", hidden: true},
    h("label", {for: "from"}, "From (UTC)"), from, h("label", {for: "to"}, "To (UTC)"), to,
    h("button", {type: "submit", class: "button"}, "Show"), complaint);
  form.append(
    h("fieldset", {class: "segments"}, h("legend", {class: "hidden"}, "Window of event time, up to the newest event"),
      WINDOWS.map(([value, text]) => radio(value, text)), radio(CUSTOM, "Custom")), custom);

  const follow = () => {
    const here = place();
    const value = here.from || here.to ? CUSTOM : isEverything(here) ? "" : here.window;
    for (const input of form.elements.window) input.checked = input.value === value;
    custom.hidden = value !== CUSTOM;
    if (value === CUSTOM) [from.value, to.value] = [minutes(here.from), minutes(here.to)];
  };

  form.addEventListener("change", (event) => {
    if (event.target.name !== "window") return;
    if (event.target.value === CUSTOM) {
      custom.hidden = false;
    } else {
      location.hash = address({window: event.target.value || null, from: null, to: null});
    }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    complaint.textContent = !from.value && !to.value ? "Enter a begin, an end, or both."
      : from.value && to.value && from.value >= to.value ? "The end has to be after the begin." : "";
    if (complaint.textContent) return;
    const utc = (input) => (input.value ? `${input.value}Z` : null);
    location.hash = address({window: null, from: utc(from), to: utc(to)});
  });
  addEventListener("hashchange", follow);
  follow();
  return {
    /** Set what the custom fields show when somebody opens them: the week that ends at an event time, in seconds. */
    suggest(newest) {
      if (!custom.hidden || !newest) return;
      const end = Math.ceil(newest / DAY) * DAY;
      [from.value, to.value] = [end - WEEK, end].map((at) => minutes(at * 1000));
    },
  };
}
