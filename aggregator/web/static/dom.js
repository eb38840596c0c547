// Elements from data. Text is always a text node: names and categories are strangers' strings.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An element: h("p", {class: "note", onclick: f}, "text", child, [more]). */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** An SVG element; the parameters are those of h(). */
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const MAX_ANNOUNCEMENTS = 5;

/** Set an element's text only if it differs, so that equal text is not laid out again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Announce a text to people who do not see the screen: results of what they did, and what they must know, but not changing numbers. */
export function announce(text) {
  const log = document.getElementById("announcer"); // a log: the next announcement does not replace one that is not read yet
  if (log.lastElementChild?.textContent === text) return;
  log.append(h("p", {}, text));
  if (log.childElementCount > MAX_ANNOUNCEMENTS) log.firstElementChild.remove();
}
