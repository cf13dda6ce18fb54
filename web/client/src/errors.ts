// Every error of the API as a value, with what an app should do next. docs/app/errors.md lists the codes.

import type { components } from '../../api/schema.js';
import { next as byCode, type Next } from './contract.js';

type Body = components['schemas']['Error'] & { field?: string; required?: number; balance?: number };

function nextOf(status: number, { error = '', field = '' }: Partial<Body>): Next {
  const known = byCode[error];
  if (known) return known;
  if (status === 401) return 'signIn';
  if (status === 404 && /AssetKey$/i.test(field)) return 'uploadAgain';
  return status === 0 || status === 429 || status >= 500 ? 'again' : 'fix';
}

/** An unsuccessful answer, or none at all (status 0). */
export class CutroomError extends Error {
  /** The machine code, or an English sentence where the API has no code. */
  readonly code: string;
  readonly detail: string | undefined;
  /** The path of the field that a sentence is about, such as `segments[1].speedScale`. */
  readonly field: string | undefined;
  /** The credits that `insufficient_credits` requires, and those that the account has. */
  readonly required: number | undefined;
  readonly balance: number | undefined;
  readonly next: Next;

  constructor(
    readonly status: number,
    body: Partial<Body>,
    /** Seconds after which the same request may succeed. */
    readonly retryAfterSec: number | undefined = undefined,
    /** The id by which support finds the request. */
    readonly requestId: string | undefined = undefined,
  ) {
    super(body.error ?? (status ? `the server answered ${status}` : 'the server does not answer'));
    this.name = 'CutroomError';
    this.code = body.error ?? '';
    this.detail = body.detail ?? undefined;
    this.field = body.field;
    this.required = body.required;
    this.balance = body.balance;
    this.next = nextOf(status, body);
  }
}

/** The answer to a request of a user who is no longer signed in. */
export const signedOut = () => new CutroomError(401, { error: 'unauthorized' });

/** A job that ended in FAILED. The credits of a separation have been refunded. */
export class JobFailed extends Error {
  constructor(
    readonly jobId: string,
    /** One of the API's error codes; `internal` if the server gave none. */
    readonly code: string,
    sentence: string,
    /** The path of the field to blame, such as `segments[1].sourceAssetKey`, if the server knows one. */
    readonly field: string | undefined = undefined,
  ) {
    super(sentence);
    this.name = 'JobFailed';
  }
}
