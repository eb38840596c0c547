/**
 * The randomizer of `repetition`: several reports of a value, one after the other, each at a part
 * of a large epsilon.
 *
 * @module repetition
 */

import { wrongOptions } from "./checks.js";
import { LEVEL_UNITS, unitsOf } from "./sampling.js";

/** @import { Definition } from "./dither.js" */
/** @import { Mechanism } from "./mechanisms.js" */

const OF_MEANS = ["randomized_response"];
const OF_FREQUENCIES = [
  "rappor", "grr", "oue", "subset_selection", "projective_geometry_response", "projection",
];

/**
 * Returns which mechanism is repeated, and how often at each level.
 *
 * @param {Definition} definition
 * @returns {{of: string, repeats: number[]}}
 * @throws {TypeError} If the definition's options are invalid.
 */
export function repeatedBy(definition) {
  const known = definition.kind === "mean" ? OF_MEANS : OF_FREQUENCIES;
  const { of = known[0], ...others } = /** @type {{of?: string}} */ (definition.options ?? {});
  if (!known.includes(of) || Object.keys(others).length > 0) {
    throw wrongOptions(definition, `of: ${known.join(", ")}`);
  }
  return { of, repeats: definition.levels.map((epsilon) => Math.ceil(epsilon)) };
}

/**
 * @param {Definition} definition
 * @param {Record<string, (definition: Definition) => Mechanism>} mechanisms
 * @returns {Mechanism}
 */
export function repetition(definition, mechanisms) {
  const { of, repeats } = repeatedBy(definition);
  const parts = definition.levels.map((epsilon, level) => [
    unitsOf(epsilon), LEVEL_UNITS * BigInt(repeats[level]),
  ]);
  const one = mechanisms[of]({ ...definition, levels: /** @type {any} */ (parts), options: {} });
  const width = one.width * Math.max(...repeats);
  return {
    width,
    randomize(value, level, bits) {
      const report = new Uint8Array(width);
      for (let i = 0; i < repeats[level]; i += 1) {
        report.set(one.randomize(value, level, bits), one.width * i);
      }
      return report;
    },
  };
}
