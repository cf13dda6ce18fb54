// The error messages for users: what happened, and what to do.
// docs/app/errors.md lists every code.

import type { Schemas } from './api';

/** An error with a message for the user. */
export class Trouble extends Error {
  constructor(
    message: string,
    readonly code = '',
    /** Whether doing the same again may work. */
    readonly again = false,
  ) {
    super(message);
  }
}

type Sentence = [text: string, again?: 'again'];

/** By the `error` of an answer. */
const answers: Record<string, Sentence> = {
  r2_disabled: ['This sandbox runs without an object store. Start it without --no-bucket.'],
  insufficient_credits: ['There are not enough credits. Buy some at the top of the page.'],
  unsupported_audio_format: ['This recording is not m4a, mp3 or wav.'],
  'sourceAssetKey names a file without readable sound': ['This recording has no sound that can be read. Choose another file.'],
  invalid_stem_url: ['These stems are gone. Separate the recording again.'],
  invalid_asset_key: ['One of the clips is gone. Remove it and add it again.'],
  rate_limited: ['That was a lot at once. Wait a minute, then try again.', 'again'],
  too_many_jobs: ['Too many of your jobs are waiting. Let one finish or delete one, then try again.', 'again'],
  storage_full: ['Your storage is full. Delete films or separations that you no longer need.'],
  unavailable: ['The service cannot reach its storage right now. Try again in a moment.', 'again'],
  paused: ['The service takes no new jobs right now. Try again in a few minutes.', 'again'],
  account_deleted: ['This account was deleted. Sign in again to start anew.'],
  receipt_invalid: ['The store did not confirm this purchase. Nothing was charged.'],
  receipt_verify_unavailable: ['The store does not answer. Your purchase is safe: try again.', 'again'],
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

/** The Trouble of an answer that is not a success. */
export function troubleOf(status: number, error: Schemas['Error'] | undefined): Trouble {
  const code = error?.error ?? '';
  const [text, again] = answers[code] ?? [code || `The service answered ${status}.`, status >= 500 ? 'again' : undefined];
  return new Trouble(text, code, again === 'again');
}

/** The Trouble of a job that failed. The service's own sentence names the file or the limit. */
export function failureOf(job: { error?: string | null; errorCode?: string | null }): Trouble {
  const code = job.errorCode ?? '';
  const [text, again] = failures[code] ?? ['Something went wrong.', 'again'];
  const detail = job.error && /^(segments|bgmClips|separationDirectives)/.test(job.error) ? ` (${job.error})` : '';
  return new Trouble(text + detail, code, again === 'again');
}
