// Properties that only these modules read and write: the package shortens them. A name may be here
// if it is in no definition, round, option, answer or stored value, and is not a browser's own.
export const INTERNAL = [
  "advance", "blockBits", "checkRoom", "deleteThrough", "denominator", "hashBits",
  "numerator", "queued", "randomize", "transact", "variance", "width",
];
