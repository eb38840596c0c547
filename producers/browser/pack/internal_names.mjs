// Properties that only these modules read and write: the package shortens them. A name may be here
// if it is in no definition, round, option, answer or stored value, and is not a browser's own.
export const INTERNAL = [
  "advance", "begin", "blockBits", "charge", "checkRoom", "deleteThrough", "denominator",
  "hashBits", "look", "numerator", "queued", "randomize", "tell", "total", "transact", "variance",
  "width",
];
