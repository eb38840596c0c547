/**
 * A device's storage: one IndexedDB object store, whose keys are lists, and its transactions.
 *
 * A transaction is done as a whole or not at all, and other pages of the same origin wait for it.
 * So a report is charged, randomized and queued together.
 *
 * @module database
 */

/** @typedef {(string | number)[]} Key */

const STORE = "kept";

/** Thrown if the browser cannot store what a device must remember. Nothing was reported. */
export class StorageError extends Error {
  /** @param {string} message */
  constructor(message) {
    super(`${message}; nothing was reported`);
    this.name = "StorageError";
  }
}

/** Returns the range of the keys that begin with `prefix`. @param {Key} prefix */
function under(prefix) {
  return IDBKeyRange.bound(prefix, [...prefix, []]); // lists come after all numbers and texts
}

/**
 * Returns the result of a request.
 *
 * @template T
 * @param {IDBRequest<T>} request
 * @returns {Promise<T>}
 */
function answerOf(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/**
 * One transaction. Between its beginning and its end nothing else may be awaited.
 *
 * @internal
 */
export class Transaction {
  #store;

  /** @param {IDBObjectStore} store */
  constructor(store) {
    this.#store = store;
  }

  /** @param {Key} key @returns {Promise<any>} The value; undefined if there is none. */
  get(key) {
    return answerOf(this.#store.get(key));
  }

  /** @param {Key} key @param {unknown} value */
  async put(key, value) {
    await answerOf(this.#store.put(value, key));
  }

  /** @param {Key} key */
  async delete(key) {
    await answerOf(this.#store.delete(key));
  }

  /** Deletes the keys with a prefix through `last`. @param {Key} prefix @param {Key} last */
  async deleteThrough(prefix, last) {
    await answerOf(this.#store.delete(IDBKeyRange.bound(prefix, [...last, []])));
  }

  /**
   * Returns the keys and values with a prefix, in the order of the keys.
   *
   * @param {Key} prefix
   * @param {number} [most]
   * @returns {Promise<{key: Key, value: any}[]>}
   */
  async all(prefix, most) {
    const range = under(prefix);
    const [keys, values] = await Promise.all([
      answerOf(this.#store.getAllKeys(range, most)),
      answerOf(this.#store.getAll(range, most)),
    ]);
    return keys.map((key, i) => ({ key: /** @type {Key} */ (key), value: values[i] }));
  }

  /** Returns the last parts of the keys with a prefix, in order. @param {Key} prefix */
  async numbers(prefix) {
    const keys = await answerOf(this.#store.getAllKeys(under(prefix)));
    return /** @type {Key[]} */ (keys).map((key) => Number(key[key.length - 1]));
  }

  /** Returns a number that it did not return before. @returns {Promise<number>} */
  async next() {
    const number = 1 + ((await this.get(["setting", "number"])) ?? 0);
    await this.put(["setting", "number"], number);
    return number;
  }
}

/** @internal */
export class Database {
  #database;

  /** @param {IDBDatabase} database */
  constructor(database) {
    this.#database = database;
    database.onversionchange = () => database.close();
  }

  /**
   * @param {string} name
   * @returns {Promise<Database>}
   * @throws {StorageError}
   */
  static async open(name) {
    try {
      if (!globalThis.indexedDB) throw new TypeError("there is no IndexedDB");
      const request = indexedDB.open(name, 1); // in a sandboxed frame this throws, too
      request.onupgradeneeded = () => request.result.createObjectStore(STORE);
      return new Database(await answerOf(request));
    } catch (error) {
      const told = `the database ${name} cannot be opened (${String(error)})`;
      throw new StorageError(`${told}: expected a page that may store; \`report\` needs none`);
    }
  }

  close() {
    this.#database.close();
  }

  /**
   * Runs `work` in a transaction; if it throws, the whole transaction is undone.
   *
   * @template T
   * @param {(transaction: Transaction) => Promise<T>} work
   * @returns {Promise<T>} What `work` returned, once the transaction is on disk.
   * @throws {StorageError}
   */
  transact(work) {
    return new Promise((resolve, reject) => {
      /** @type {IDBTransaction} */
      let transaction;
      try {
        transaction = this.#database.transaction(STORE, "readwrite", { durability: "strict" });
      } catch (error) {
        return reject(new StorageError(`the database is closed (${String(error)})`));
      }
      /** @type {T} */
      let result;
      /** @type {unknown} */
      let failure;
      transaction.oncomplete = () => resolve(result);
      transaction.onabort = () =>
        reject(failure ?? new StorageError(`the browser stores nothing (${transaction.error})`));
      work(new Transaction(transaction.objectStore(STORE))).then(
        (done) => {
          result = done;
        },
        (error) => {
          failure = error instanceof DOMException ? undefined : error;
          try {
            transaction.abort();
          } catch {
            reject(failure ?? new StorageError(String(error))); // it has ended by itself
          }
        },
      );
    });
  }
}
