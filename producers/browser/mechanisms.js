/**
 * The mechanisms by name, and the choice of a definition's mechanism.
 *
 * @module mechanisms
 */

import { chosenFor } from "./auto.js";
import { checkAxes } from "./axes.js";
import {
  grr, hadamardResponse, oue, projection, projectiveGeometryResponse, rappor, recursiveHadamard,
  subsetSelection,
} from "./categories.js";
import { countSketch } from "./count_sketch.js";
import { checkLevels } from "./definition.js";
import { dyadicHadamard } from "./dyadic_hadamard.js";
import { LARGEST_REPORT, checkLimits, conversion, outside, shown, wrong } from "./checks.js";
import { laplace, randomizedResponse, roundAnswers } from "./means.js";
import { prefixTree } from "./prefix_tree.js";
import { projectiveSketch } from "./projective_sketch.js";
import { repetition } from "./repetition.js";
import { caps, hemisphere } from "./vectors.js";
import { windows } from "./windows.js";

/** @import { Definition } from "./dither.js" */
/** @import { Bits } from "./sampling.js" */

/**
 * A mechanism at the levels of one definition.
 *
 * @typedef {object} Mechanism
 * @property {number} width The number of bytes of a report.
 * @property {(value: unknown, level: number, bits: Bits) => Uint8Array} randomize
 */

/** @type {Record<string, (definition: Definition) => Mechanism>} */
const MECHANISMS = {
  randomized_response: randomizedResponse,
  windows,
  laplace,
  dyadic_hadamard: dyadicHadamard,
  grr,
  rappor,
  oue,
  subset_selection: subsetSelection,
  hadamard_response: hadamardResponse,
  recursive_hadamard: recursiveHadamard,
  projective_geometry_response: projectiveGeometryResponse,
  projection,
  count_sketch: countSketch,
  projective_sketch: projectiveSketch,
  prefix_tree: prefixTree,
  hemisphere,
  caps,
  lifted_caps: caps,
  repetition: (definition) => repetition(definition, MECHANISMS),
  auto: (definition) => (definition.kind === "mean" ? windows(definition) : auto(definition)),
};

/**
 * For categories: combines the mechanisms of the levels; reports are padded to the widest.
 *
 * @param {Definition} definition
 * @returns {Mechanism}
 */
function auto(definition) {
  const children = chosenFor(definition).map((name, level) =>
    MECHANISMS[name]({ ...definition, levels: [definition.levels[level]], options: {} }),
  );
  const width = Math.max(...children.map((child) => child.width));
  return {
    width,
    randomize(value, level, bits) {
      const report = new Uint8Array(width);
      report.set(children[level].randomize(value, 0, bits));
      return report;
    },
  };
}

/** @type {WeakMap<Definition, Mechanism>} Thresholds are computed once for each definition. */
const built = new WeakMap();

/** @param {Definition} definition @returns {Mechanism} @internal */
export function mechanismOf(definition) {
  let mechanism = built.get(definition);
  if (mechanism === undefined) {
    if (definition.trust !== undefined && definition.trust !== "local") {
      throw wrong(
        `${definition.name} is collected in trust`,
        "a metric that is randomized here; this module never sends true values",
      );
    }
    checkLimits(definition);
    checkLevels(definition);
    checkAxes(definition);
    if (!Object.hasOwn(MECHANISMS, definition.mechanism)) {
      throw new TypeError(
        `mechanism ${definition.mechanism} of ${definition.name}: this module has ` +
          Object.keys(MECHANISMS).join(", "),
      );
    }
    mechanism =
      definition.rounds === undefined
        ? MECHANISMS[definition.mechanism](definition)
        : roundAnswers(definition, definition.rounds);
    if (mechanism.width > LARGEST_REPORT) {
      throw outside(`${definition.name}, ${definition.mechanism}`, "reports of at most 64 KiB");
    }
    built.set(definition, mechanism);
  }
  return mechanism;
}

/**
 * Returns the index of the largest level that is at most epsilon.
 *
 * @param {Definition} definition
 * @param {number} epsilon
 * @returns {number}
 * @throws {RangeError} If epsilon is below the lowest level: then nothing is reported.
 */
export function levelOf(definition, epsilon) {
  if (typeof epsilon !== "number" || !(epsilon > 0)) {
    throw outside(
      `epsilon = ${shown(epsilon)}`,
      `a number above 0, the privacy that the value's owner demands${conversion(epsilon)}`,
    );
  }
  const level = definition.levels.findLastIndex((offered) => offered <= epsilon);
  if (level < 0) {
    throw new RangeError(
      `epsilon = ${epsilon}: metric ${definition.name} offers ${definition.levels.join(", ")}; ` +
        "a stricter demand cannot be met, do not report",
    );
  }
  return level;
}
