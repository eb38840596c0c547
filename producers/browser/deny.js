/**
 * Deny rules: which strings a device replaces by "other".
 *
 * They are evaluated as by the Python package (`estimators.metrics.denial`), string for string.
 *
 * @module deny
 */

import { wrong } from "./checks.js";

/** @import { Definition } from "./dither.js" */
/**
 * @typedef {(text: string) => boolean} Deny Whether a string, in normal form C, is not reported.
 */

/**
 * The rule of a definition; a string is denied if one of these denies it.
 *
 * @typedef {object} Rule
 * @property {number} [longer_than] The most code points of a string that is not denied.
 * @property {string[]} [presets]
 * @property {string[]} [patterns] `*` stands for any characters, `?` for one.
 * @property {string[]} [strings]
 */

/** What is reported in place of a denied string. */
const OTHER = "other";
const MOST = 1000; // patterns, and strings, of a rule
const LONGEST_PATTERN = 200;
const LONGEST_LENGTH = 2 ** 20;
const KEYS = ["longer_than", "presets", "patterns", "strings"];
const [FEWEST_CARD_DIGITS, MOST_CARD_DIGITS] = [13, 19];

/** @type {Record<string, Deny>} */
const PRESETS = {
  email: (text) => /[^ @]@[^ @]*\.[^ @.0-9]/u.test(text.replaceAll("%40", "@")),
  card: hasCard,
  digits: (text) => /[0-9](?:[ ./()+-]{0,2}[0-9]){8}/u.test(text),
  query: (text) => /\?[^ ]|#[^ #]*=/u.test(text),
};

/**
 * Returns a string's normal form C, with A to Z in lower case.
 *
 * @param {string} text
 */
function folded(text) {
  return text.normalize("NFC").replace(/[A-Z]/g, (letter) => letter.toLowerCase());
}

/**
 * Returns a definition's rule as a function. A rule that this module does not know in full is an
 * error: nothing is reported then.
 *
 * @param {Rule} rule
 * @returns {Deny}
 * @throws {TypeError}
 */
export function denyRule(rule) {
  const isRule = typeof rule === "object" && rule !== null && !Array.isArray(rule);
  const keys = isRule ? Object.keys(rule) : [];
  if (!isRule || !keys.every((key) => KEYS.includes(key))) {
    throw wrong("deny", `only ${KEYS.join(", ")}`);
  }
  const { longer_than: longest = Infinity, presets = [], patterns = [], strings = [] } = rule;
  const isLength = Number.isInteger(longest) && longest >= 0 && longest <= LONGEST_LENGTH;
  if (longest !== Infinity && !isLength) {
    throw wrong("deny.longer_than", `0 to ${LONGEST_LENGTH} characters`);
  }
  for (const [name, list] of Object.entries({ presets, patterns, strings })) {
    const isList = Array.isArray(list) && list.every((text) => typeof text === "string");
    if (!isList || list.length > MOST) {
      throw wrong(`deny.${name}`, `a list of strings, at most ${MOST}`);
    }
  }
  const known = presets.every((name) => Object.hasOwn(PRESETS, name));
  if (!known) throw wrong("deny.presets", `${Object.keys(PRESETS).join(", ")}`);
  if (!patterns.every((text) => text !== "" && [...text].length <= LONGEST_PATTERN)) {
    throw wrong("deny.patterns", `1 to ${LONGEST_PATTERN} characters each`);
  }
  if (longest === Infinity && [...presets, ...patterns, ...strings].length === 0) {
    throw wrong("deny", `one or more of ${KEYS.join(", ")}`);
  }
  const globs = patterns.map((pattern) => [...folded(pattern)]);
  const listed = new Set(strings.map(folded));
  return (text) => {
    const given = folded(text);
    const characters = [...given];
    return (
      characters.length > longest ||
      listed.has(given) ||
      presets.some((name) => PRESETS[name](given)) ||
      globs.some((glob) => matches(glob, characters))
    );
  };
}

/**
 * Returns whether a pattern matches a whole text, in time proportional to the product of their
 * lengths.
 *
 * @param {string[]} glob
 * @param {string[]} text
 */
function matches(glob, text) {
  let [place, at, star, from] = [0, 0, -1, 0];
  while (at < text.length) {
    if (glob[place] === "*") {
      [star, from] = [place, at];
      place += 1;
    } else if (glob[place] === "?" || glob[place] === text[at]) {
      place += 1;
      at += 1;
    } else if (star >= 0) {
      from += 1;
      [place, at] = [star + 1, from];
    } else return false;
  }
  return glob.slice(place).every((character) => character === "*");
}

/**
 * Returns whether a text has 13 to 19 digits with a card's check digit (Luhn), in whole groups that
 * a single space, dot or hyphen may separate.
 *
 * @param {string} text
 */
function hasCard(text) {
  return (text.match(/[0-9]+(?:[ .-][0-9]+)*/gu) ?? []).some((run) => {
    const groups = run.split(/[ .-]/u);
    return groups.some((_, first) => {
      let digits = "";
      for (const group of groups.slice(first, first + MOST_CARD_DIGITS)) {
        digits += group;
        if (digits.length > MOST_CARD_DIGITS) return false;
        if (digits.length >= FEWEST_CARD_DIGITS && isCard(digits)) return true;
      }
      return false;
    });
  });
}

/** @param {string} digits */
function isCard(digits) {
  const sum = [...digits].reverse().reduce((total, digit, place) => {
    const doubled = Number(digit) * (1 + (place % 2));
    return total + (doubled > 9 ? doubled - 9 : doubled);
  }, 0);
  return sum % 10 === 0;
}

/** @type {WeakMap<Definition, Deny[]>} */
const known = new WeakMap();

/**
 * Returns the value to report: "other" if the definition's rule or the page's own denies the value.
 *
 * @param {Definition} definition
 * @param {unknown} value
 * @param {Deny} [own] The page's own rule, which nothing that a server sends switches off.
 * @returns {{value: unknown, denied: boolean}}
 * @throws {TypeError} If there is a rule for a metric whose values are not strings, or the rule is
 *   unknown.
 * @internal
 */
export function withoutDenied(definition, value, own) {
  const { name, categories, deny } = definition;
  if (own === undefined && deny === undefined) return { value, denied: false };
  if (categories !== "open") {
    throw wrong(`deny for ${name}`, 'a metric of strings, with categories "open"');
  }
  if (own !== undefined && typeof own !== "function") {
    throw wrong(`deny for ${name}`, "a function of a string");
  }
  let rules = known.get(definition);
  if (rules === undefined) {
    rules = deny === undefined ? [] : [denyRule(deny)];
    known.set(definition, rules);
  }
  if (typeof value !== "string") return { value, denied: false };
  const text = value.normalize("NFC");
  const denied = [...rules, ...(own === undefined ? [] : [own])].some((rule) => rule(text));
  return { value: denied ? OTHER : value, denied };
}
