// The guide explains the dashboard's words. Words on the page open the guide at their explanation.

import {h} from "./dom.js";

const TOPICS = {
  estimate: ["The number and its band", [
    "Devices add noise to each value before they send it. Nobody knows the true value, and the large number is an estimate of it.",
    "The band beside it is where the true value lies. “95 %” is how sure that is: of many bands, at most 5 in 100 do not contain the truth.",
    "“At all times” means that this holds at every moment at once. You may look as often as you like, and stop when you like.",
    "“For this window” means that it holds for each window by itself. Who looks at a hundred windows has to expect some wrong bands among them.",
  ]],
  wide: ["Why a band is wide", [
    "A band is wide because few people reported, because they chose much privacy, or because there are many categories or coordinates.",
    "Four times as many reports make it half as wide. A longer window has more reports. So has a metric with fewer slices.",
    "A band that covers the whole range says nothing yet. That is no fault: wait for more reports.",
  ]],
  levels: ["Privacy levels (ε)", [
    "Each person chose a level on their own device. The smaller ε is, the more noise the device adds.",
    "A report changes the odds between any two values of a person by a factor of at most e to the power of ε: 1.3 for ε = 0.25, 2.8 for ε = 1, 55 for ε = 4.",
    "The upper bar is each level's share of the reports. The lower bar is its share of the weight: reports with less noise tell more.",
  ]],
  status: ["Provisional, final, trusted", [
    "Times are those of the events, not those of the reports' arrival. A window is provisional as long as late reports may still come into it. It is final once none can.",
    "A metric marked “Trusted” is different: its devices send true values, and this page shows only releases, which have noise.",
  ]],
  worth: ["Reports, and what they tell", [
    "“Reports” is how many were counted. “As precise as” is how many reports without any noise would tell as much.",
    "The difference is the price of privacy. It is smaller where people choose a larger ε.",
  ]],
  weights: ["Weights", [
    "Weights say how much the reports of each level count. “Optimal” gives the least noise. It is right if people's values have nothing to do with the level that they chose.",
    "If they have, the dashboard warns. “Uniform” is right then, too, with a wider band.",
    "Weights change the estimate for everybody who looks, at once. Nothing is counted again. It takes the right to administer.",
  ]],
  change: ["What has changed", [
    "The last period is compared with the one before it, of panes that are closed; of a metric marked “Trusted”, the latest release with an older one. The interval says how much larger or smaller the true value is. “No evidence of a change” does not say that nothing changed.",
    "At one look, everything that this page calls a change is one, with 95 %, for all metrics and periods together: choose and filter as you like. Who looks every day has to expect false ones over the year. Alarms hold over all looks.",
  ]],
  alarms: ["Alarms and comparisons", [
    "An alarm says that a value has moved away from its baseline. How many false alarms to expect is written below it. That no alarm is raised does not say that nothing moved. It looks at days or hours; “no evidence of a change” is about a whole period against another, in which some days may have moved.",
    "A comparison is decided once its band excludes that both arms are equal. “Not decided” does not say that they are equal.",
  ]],
  operations: ["Lag, dead letters, duplicates", [
    "Lag is how many messages wait in Kafka to be counted. Dead letters are messages that could not be counted, kept with their reason. Duplicates arrived twice and were counted once.",
  ]],
};

let opened = null;

function build() {
  const here = h("p", {class: "guide-here"});
  const parts = Object.fromEntries(Object.entries(TOPICS).map(([name, [title, texts]]) =>
    [name, h("section", {tabindex: "-1", "aria-label": title}, h("h3", {}, title), texts.map((text) => h("p", {}, text)))]));
  const dialog = h("dialog", {class: "dialog guide", id: "guide", "aria-labelledby": "guide-title", onclick: ({target}) => { if (target === dialog) dialog.close(); }},
    h("header", {}, h("h2", {id: "guide-title"}, "What the words mean"), h("button", {type: "button", class: "button quiet small", onclick: () => dialog.close()}, "Close")),
    here, Object.values(parts));
  document.body.append(dialog);
  return {dialog, here, parts};
}

/** Open the guide at a topic; `special` is a text about the present metric, which comes first. */
export function openGuide(topic = "estimate", special = "") {
  opened ??= build();
  const {dialog, here, parts} = opened;
  here.textContent = special;
  here.hidden = !special;
  for (const [name, part] of Object.entries(parts)) part.classList.toggle("asked", name === topic);
  dialog.append(...Object.values(parts));
  here.after(parts[topic]); // the topic that was asked for comes first
  dialog.showModal();
  dialog.scrollTop = 0;
  parts[topic].focus();
}

/** A word that opens the guide at a topic; its title is the text about the present metric. */
export function explained(topic, attributes, ...children) {
  const open = ({currentTarget}) => openGuide(topic, currentTarget.title);
  return h("button", {type: "button", ...attributes, class: `explained ${attributes.class ?? ""}`.trim(), "aria-haspopup": "dialog", onclick: open}, children);
}
