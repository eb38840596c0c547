// Global names that the package uses often: as variables of this module they are shortened to one
// letter.
export const {
  Array, BigInt, Error, Map, Math, Number, Object, Promise, RangeError, Set, String, TypeError,
  Uint8Array, clearTimeout, encodeURIComponent,
} = globalThis;
export const { from: Array_from, isArray: Array_isArray } = Array;
export const { ceil: Math_ceil, floor: Math_floor, max: Math_max, min: Math_min } = Math;
export const { isInteger: Number_isInteger, isSafeInteger: Number_isSafeInteger } = Number;
export const { entries: Object_entries, keys: Object_keys } = Object;
