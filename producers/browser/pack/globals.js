// Names that the package repeats often: as variables of its own they become one letter each.
export const {
  Array, BigInt, Error, Map, Math, Number, Object, Promise, RangeError, Set, String, TypeError,
  Uint8Array,
} = globalThis;
