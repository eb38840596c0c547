/**
 * Sealed reports: only the holder of the service's private key can open them, not the relay
 * (`producers.sealing` in Python).
 *
 * HPKE in base mode (RFC 9180) over WebCrypto: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256,
 * AES-128-GCM. A report's label is bound to it: another label does not open it.
 *
 * @module sealing
 */

import { wrong } from "./checks.js";
import { fingerprintOf } from "./definition.js";

/** @import { Definition } from "./dither.js" */

const [KEM, KDF, AEAD] = [[0, 0x20], [0, 1], [0, 1]]; // the standard's numbers of the algorithms
const KEM_SUITE = [...bytesOf("KEM"), ...KEM];
const HPKE_SUITE = [...bytesOf("HPKE"), ...KEM, ...KDF, ...AEAD];
const HASH_BYTES = 32;
const POST_MULTIPLE = 128;
const PURPOSE = [...bytesOf("dither sealed report 1"), 0];

/** @param {string} text */
function bytesOf(text) {
  return new TextEncoder().encode(text);
}

/** @typedef {Uint8Array<ArrayBuffer>} Bytes */

/** Returns a number in two bytes. @param {number} number */
function inTwo(number) {
  return [number >> 8, number & 255];
}

/** @param {string} digits 64 hexadecimal digits. @throws {TypeError} @internal */
export function publicKeyOf(digits) {
  if (typeof digits !== "string" || !/^[0-9a-f]{64}$/i.test(digits)) {
    throw wrong(`key = ${digits}`, "the 64 hexadecimal digits of a public key");
  }
  return fromHex(digits);
}

/** @param {string} digits */
function fromHex(digits) {
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

/** @param {Bytes} key @param {number[]} message */
async function hmac(key, message) {
  const hash = { name: "HMAC", hash: "SHA-256" };
  const imported = await crypto.subtle.importKey("raw", key, hash, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", imported, Uint8Array.from(message)));
}

/**
 * The standard's LabeledExtract.
 *
 * @param {number[]} suite @param {Bytes} salt @param {string} label
 * @param {Iterable<number>} secret
 */
function extracted(suite, salt, label, secret) {
  return hmac(salt, [...bytesOf("HPKE-v1"), ...suite, ...bytesOf(label), ...secret]);
}

/**
 * The standard's LabeledExpand, for at most 32 bytes.
 *
 * @param {number[]} suite @param {Bytes} key @param {string} label
 * @param {Iterable<number>} info @param {number} length
 */
async function expanded(suite, key, label, info, length) {
  const purpose = [...bytesOf("HPKE-v1"), ...suite, ...bytesOf(label)];
  return (await hmac(key, [...inTwo(length), ...purpose, ...info, 1])).slice(0, length);
}

/**
 * Returns the key and the nonce for the only message to a receiver.
 *
 * @param {Bytes} agreed The shared secret of both keys (Diffie-Hellman).
 * @param {Bytes} enc The sender's public key, drawn for this message.
 * @param {Bytes} publicKey The receiver's public key.
 * @param {Iterable<number>} info
 * @returns {Promise<{key: Bytes, nonce: Bytes}>}
 */
async function keySchedule(agreed, enc, publicKey, info) {
  const empty = new Uint8Array(HASH_BYTES); // for HMAC, a key of zeros is an empty key
  const both = await extracted(KEM_SUITE, empty, "eae_prk", agreed);
  const shared = await expanded(KEM_SUITE, both, "shared_secret", [...enc, ...publicKey], 32);
  const context = [
    0,
    ...(await extracted(HPKE_SUITE, empty, "psk_id_hash", [])),
    ...(await extracted(HPKE_SUITE, empty, "info_hash", info)),
  ];
  const secret = await extracted(HPKE_SUITE, shared, "secret", []);
  return {
    key: await expanded(HPKE_SUITE, secret, "key", context, 16),
    nonce: await expanded(HPKE_SUITE, secret, "base_nonce", context, 12),
  };
}

/**
 * Returns a sealed message: the sender's public key, the ciphertext and its tag.
 *
 * @param {Bytes} message @param {Iterable<number>} info @param {Bytes} publicKey
 * @throws {TypeError} If the browser has no X25519, or the key is invalid.
 */
async function seal(message, info, publicKey) {
  const x25519 = { name: "X25519" };
  let [agreed, enc] = [new Uint8Array(), new Uint8Array()];
  try {
    const receiver = await crypto.subtle.importKey("raw", publicKey, x25519, false, []);
    const drawn = /** @type {CryptoKeyPair} */ (
      await crypto.subtle.generateKey(x25519, false, ["deriveBits"])
    );
    const agreement = { ...x25519, public: receiver };
    agreed = new Uint8Array(await crypto.subtle.deriveBits(agreement, drawn.privateKey, 256));
    enc = new Uint8Array(await crypto.subtle.exportKey("raw", drawn.publicKey));
  } catch (error) {
    throw wrong(
      `sealing fails (${String(error)})`,
      "a page over https, a browser with X25519 (Chrome 133, Firefox 130, Safari 17 or later), " +
        "and a public key; nothing was reported",
    );
  }
  const { key, nonce } = await keySchedule(agreed, enc, publicKey, info);
  const aes = await crypto.subtle.importKey("raw", key, "AES-GCM", false, ["encrypt"]);
  const sealed = await crypto.subtle.encrypt({ name: "AES-GCM", iv: nonce }, aes, message);
  return Uint8Array.from([...enc, ...new Uint8Array(sealed)]);
}

/**
 * Returns a report as it is stored and posted to a relay: sealed, with its label. The length is the
 * same for all values of a metric.
 *
 * @param {Definition} definition
 * @param {number} paneStart Milliseconds since the epoch.
 * @param {Uint8Array} report
 * @param {Bytes} publicKey
 * @returns {Promise<Bytes>}
 * @throws {TypeError} If the browser has no X25519, or the key is invalid.
 * @internal
 */
export async function sealedPost(definition, paneStart, report, publicKey) {
  const start = new DataView(new ArrayBuffer(8));
  start.setBigInt64(0, BigInt(paneStart));
  const name = bytesOf(definition.name);
  const label = [
    1,
    ...new Uint8Array(await crypto.subtle.digest("SHA-256", publicKey)),
    ...fromHex(fingerprintOf(definition)),
    ...new Uint8Array(start.buffer),
    ...inTwo(name.length),
    ...name,
  ];
  const sealed = await seal(Uint8Array.from(report), [...PURPOSE, ...label], publicKey);
  const post = [...inTwo(label.length), ...label, ...inTwo(sealed.length), ...sealed];
  const padded = new Uint8Array(Math.ceil(post.length / POST_MULTIPLE) * POST_MULTIPLE);
  padded.set(post);
  return padded;
}
