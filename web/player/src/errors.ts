// The error messages for users: what happened, and what to do.
// docs/app/errors.md lists every code.

import type { CutroomError } from '../../client/src';

/** An error with a message for the user. */
export class Trouble extends Error {
  constructor(
    message: string,
    readonly code = '',
    /** Whether doing the same again may work. */
    readonly again = false,
    /** The status of the answer, if there was one. */
    readonly status = 0,
  ) {
    super(message);
  }
}

type Sentence = [text: string, again?: 'again'];

/** By the `error` of an answer. */
const answers: Record<string, Sentence> = {
  r2_disabled: ['This sandbox runs without an object store. Start it without --no-bucket.'],
  insufficient_credits: ['There are not enough credits. Buy some at the top of the page, then try again.', 'again'],
  unsupported_audio_format: ['This recording is not m4a, mp3 or wav.'],
  invalid_stem_url: ['These stems are gone. Separate the recording again.'],
  invalid_asset_key: ['One of the clips is gone. Remove it and add it again.'],
  rate_limited: ['That was a lot at once. Wait a minute, then try again.', 'again'],
  too_many_jobs: ['Too many of your jobs are waiting. Let one finish or delete one, then try again.', 'again'],
  storage_full: ['Your storage is full. Delete films and stems that you no longer need, or unused uploads under Account at the top, then try again.', 'again'],
  unavailable: ['The service cannot reach its storage right now. Try again in a moment.', 'again'],
  paused: ['The service takes no new jobs right now. Your draft is kept: try again in a few minutes.', 'again'],
  account_deleted: ['This account was deleted. Sign in again to start anew.'],
  receipt_invalid: ['The store did not confirm this purchase. Nothing was charged.'],
  receipt_verify_unavailable: ['The store does not answer. Your purchase is kept: press Buy again later, and it is credited without another payment.'],
  iap_unconfigured: ['This store is not set up here.'],
  provider_unavailable: ['The sign-in provider does not answer. Try again.', 'again'],
  invalid_id_token: ['The sign-in was refused. Try again.', 'again'],
  provider_b_disabled: ['Sign-in with provider B is switched off here.'],
  'Internal server error': ['Something broke on the server. Try again.', 'again'],
};

/** By the `errorCode` of a job that failed. */
const failures: Record<string, Sentence> = {
  source_missing: ['A file was gone before it was read. Add it again.'],
  source_unreadable: ['A file is damaged or in a format that cannot be read. Replace it.'],
  source_protected: ['A file is copy-protected and cannot be used.'],
  source_too_large: ['This is more than one job may be. Shorten it, or use smaller pictures.'],
  no_media: ['There is nothing to see or hear in one of the files.'],
  timed_out: ['This took too long. Try again, or make it shorter.', 'again'],
  provider_quota: ['Separation is not available right now. Try again later.', 'again'],
  provider_rejected: ['The recording could not be separated. Try another one.'],
  provider_unavailable: ['The separation service does not answer. Try again later.', 'again'],
  price_mismatch: ['The recording is longer than it seemed. Separate it again at its real price.', 'again'],
  stale: ['This waited too long. Try again.', 'again'],
  interrupted: ['This was interrupted too often. Try again.', 'again'],
  internal: ['Something broke on the server. Try again.', 'again'],
};

/** By the status of an answer that has a sentence, or nothing, in place of a known code. */
const statuses: Record<number, Sentence> = {
  404: ['This is gone: it was deleted or has expired.'],
  413: ['This file is too large. Choose a smaller one, or export it again at a lower quality.'],
};

/** Names the fields in a sentence of the service as the page does: segments[0].trimEndMs is in Segment 1. */
const plain = (sentence: string): string =>
  sentence
    .replace(/^\w*assetKey names a file that /i, 'This file ')
    .replace(/^\w*assetKey names a file without /i, 'This file has no ')
    .replace(/segments\[(\d+)\](\.\w+)*/g, (_, i) => `Segment ${Number(i) + 1}`)
    .replace(/bgmClips\[\d+\](\.\w+)*/g, 'The music')
    .replace(/separationDirectives\[\d+\](\.\w+|\[\d+\])*/g, 'The speech');

/** An upload that the object store no longer has. The same file has the same key, so its cuts stay. */
function goneAsset({ next, field = '' }: CutroomError): Sentence | undefined {
  if (next !== 'uploadAgain') return undefined;
  const place = field.includes('[') ? ` of ${plain(field).replace('The', 'the')}` : '';
  return [`The file${place} is gone. Add the same file again: your cuts stay.`];
}

/** The service's own sentence. A code that this page does not know does not count as one. */
const saidBy = ({ code, next, status }: CutroomError): Sentence =>
  !code.includes(' ') ? [`The service answered ${status}. Try again.`, 'again'] : next === 'again' ? [`${plain(code)}.`, 'again'] : [`${plain(code)}.`];

/** The Trouble of an unsuccessful answer, or of a missing one. */
export function troubleOf(e: CutroomError): Trouble {
  if (e.status === 0 && !e.code) return new Trouble('The service cannot be reached. Check the connection and try again.', '', true);
  const [sentence, again] = answers[e.code] ?? goneAsset(e) ?? statuses[e.status] ?? saidBy(e);
  return new Trouble(sentence, e.code, again === 'again', e.status);
}

/** The Trouble of a job that failed. The service's own sentence names the segment or the limit. */
export function failureOf({ code, message }: { code: string; message: string }): Trouble {
  const [text, again] = failures[code] ?? ['Something went wrong.', 'again'];
  const detail = /^(segments|bgmClips|separationDirectives)\[/.test(message) ? ` (${plain(message)})` : '';
  return new Trouble(text + detail, code, again === 'again');
}
