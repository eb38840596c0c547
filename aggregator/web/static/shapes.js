// How answers of each shape are shown. Cards, pages and headlines choose by shape here, and never by a metric's kind.

import {Bars} from "./bars.js";
import {certain, Search} from "./search.js";

/**
 * hasLabels: whether numbers have names, of which one is in front; hasHistory: whether there is a series;
 * hasShares: whether it has the share below each value; panel: what is shown in place of a history; headline: the figure in front, where it is not a number with its band.
 */
const SHAPES = {
  number: {hasLabels: false, hasHistory: true},
  "named numbers": {hasLabels: true, hasHistory: true},
  distribution: {hasLabels: true, hasHistory: true, hasShares: true},
  search: {hasLabels: false, hasHistory: false, panel: (definition) => new Search(definition), headline: certain},
};

export const shapeOf = ({shape}) => SHAPES[shape];

/** The bars of a metric whose numbers have names; null for any other. */
export const barsOf = ({name, scale, definition, isDetailed: hasIntervals}, onChoose, options = {}) =>
  shapeOf(definition).hasLabels ? new Bars({label: `${name}: choose whose history is shown`, scale, onChoose, hasIntervals, ...options}) : null;
