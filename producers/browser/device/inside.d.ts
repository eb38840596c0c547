// What the parts of a device need of each other; nothing of it is public.
import type { Definition } from "../dither.js";
import type { Transaction } from "./database.js";
import type { ReportOptions, Value } from "./device.js";
import type { Ledger } from "./ledger.js";
import type { Failure } from "./queue.js";

/** What is left to do when a transaction is done. */
export interface Put {
  queued: () => void | Promise<void>; // what has a crowd is sealed and stored then
  denied: number;
}

/** What a roll-up needs of its device. */
export interface Inside {
  clock: () => number;
  ledger: Ledger;
  tell: (failure: Failure) => void;
  transact: <T>(work: (transaction: Transaction) => Promise<T>) => Promise<T>;
  put: (
    transaction: Transaction,
    definition: Definition,
    values: Value[],
    epsilons: number[],
    options: ReportOptions,
    ledger?: Ledger | null, // null: it is paid
  ) => Promise<Put>;
}

/** A batch that waits. */
export interface Batch {
  id: string;
  metric: string;
  body: Uint8Array;
  reports: number;
  refusals: number;
  /** How often the gateway has answered with an error that is of this batch alone. */
  errors?: number;
  /** When it first did: milliseconds since the epoch. */
  failing?: number;
}

/** Who takes what waits in a queue, and what its answers mean. */
export interface Receiver {
  path: string;
  /** What waits, in the database; and until when no posts are wanted. */
  stored: string;
  until: string;
  /** The answers to a post that can never be taken, and how many of them give it up. */
  refused: number[];
  mostRefusals: number;
  /** Whether an answer is the receiver's own acknowledgement. */
  isAccepted: (answer: { status: number; told: any }, batch: Batch) => boolean;
  headers?: Record<string, string>;
}

/** What is stored about the windows of a roll-up. No value decides it: only when it is looked at. */
export interface Course {
  /** The start of the first window that is not over. */
  open: number;
  missed: number;
  /**
   * Windows that are over, from and to: none is reported twice, also if the clock went forward and
   * then back.
   */
  closed: [number, number][];
  /** The starts of windows that are over and not reported yet, in order. */
  due: number[];
  /** How long after their end they are reported; all pages know it. */
  delay: number;
}
