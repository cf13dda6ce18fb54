// Renders and separations: submitted under a key that is kept until the answer arrives, and followed to their end.

import { bytesToHex } from '@noble/hashes/utils.js';
import type { components } from '../../api/schema.js';
import type { Cutroom } from './client.js';
import { pollSec, waitSec } from './contract.js';
import { CutroomError, JobFailed, signedOut } from './errors.js';
import { check, pause } from './pause.js';
import { firstUser } from './session.js';
import { read, write } from './store.js';

type Schemas = components['schemas'];
export type Render = Schemas['RenderStatus'];
export type Separation = Schemas['SeparationStatus'];
type Submit = '/api/v2/render/v3' | '/api/v2/separate/v3';

/** A submit that has no answer yet. The text of its body is kept: the server compares it. */
interface Open {
  path: Submit;
  key: string;
  text: string;
}

/** Where the open submit of a user's slot is kept. */
interface Place {
  user: string;
  key: string;
}

/** A job that the server has accepted. `reused` says that an earlier submit created it. */
export interface Submitted {
  jobId: string;
  reused: boolean;
}

interface Follow<S> {
  /** Is called with every state that differs from the last. */
  onState?: (state: S) => void;
  /** Is called with whether the server could be reached. */
  onReachable?: (yes: boolean) => void;
  signal?: AbortSignal;
}

/** A page of a list: `cursor` is the `nextCursor` of the page before. */
export interface Page {
  limit?: number;
  cursor?: string;
  signal?: AbortSignal;
}

/** The init of a request: without the signal if there is none, as exact optional types have it. */
const ends = (signal: AbortSignal | undefined) => (signal ? { signal } : {});

/** The query of a page, and its signal. */
export const pageOf = ({ signal, ...query }: Page) => ({ params: { query }, ...ends(signal) });

/** A key that no other submit has. Nobody gains by guessing it, so Math.random will do where there is no crypto. */
function newKey(): string {
  const bytes = new Uint8Array(16);
  const { crypto } = globalThis as { crypto?: Crypto };
  if (crypto) crypto.getRandomValues(bytes);
  else bytes.forEach((_, i) => (bytes[i] = Math.floor(Math.random() * 256)));
  return bytesToHex(bytes);
}

export class Jobs {
  constructor(private cutroom: Cutroom) {}

  /** Submits a render. `slot` names the draft: see `separate`. */
  render = (body: Schemas['RenderConfigV3'], slot = 'render', signal?: AbortSignal) => this.submit('/api/v2/render/v3', body, slot, signal);

  /**
   * Submits a separation of an uploaded file. The submit is kept in the store under `slot` until there is an answer.
   * A call with the same slot and body, even after a crash of the app or an abort, is the same submit: it is charged once.
   * Each user has separate slots.
   */
  separate = (body: Schemas['SeparationByReference'], slot = 'separate', signal?: AbortSignal) =>
    this.submit('/api/v2/separate/v3', body, slot, signal);

  private async submit(path: Submit, body: unknown, slot: string, signal?: AbortSignal): Promise<Submitted> {
    const { store } = this.cutroom;
    const place = await this.place(slot);
    if (!place) throw signedOut();
    const text = JSON.stringify(body);
    const before = await read<Open>(store, place.key);
    const open = before?.path === path && before.text === text ? before : { path, text, key: newKey() };
    await write(store, place.key, open);
    return this.resume(place, open, signal);
  }

  /**
   * Sends a submit of the signed-in user that got no answer, in this or an earlier run of the app. Undefined if there is
   * none in this slot.
   */
  async unanswered(slot: string, signal?: AbortSignal): Promise<Submitted | undefined> {
    const place = await this.place(slot);
    const open = place && (await read<Open>(this.cutroom.store, place.key));
    return open && this.resume(place, open, signal);
  }

  /**
   * The place of the signed-in user's slot. Earlier versions had one for all users: it belongs to the first user, so
   * that their submits are still found.
   */
  private async place(slot: string): Promise<Place | undefined> {
    const user = (await this.cutroom.session())?.user.sub;
    if (!user) return undefined;
    const first = (await read<string>(this.cutroom.store, firstUser)) ?? user;
    return { user, key: user === first ? `cutroom.submit.${slot}` : `cutroom.open.${user}.${slot}` };
  }

  private async resume(place: Place, { path, key, text }: Open, signal?: AbortSignal): Promise<Submitted> {
    const { api, answer } = this.cutroom;
    const fetch = (request: Request) => this.cutroom.request(request, place.user);
    const init = { params: { header: { 'Idempotency-Key': key } }, body: {} as never, bodySerializer: () => text, fetch, ...ends(signal) };
    try {
      const { jobId, ...rest } = await answer<{ jobId: string; reused?: boolean }>(
        path === '/api/v2/render/v3' ? api.POST('/api/v2/render/v3', init) : api.POST('/api/v2/separate/v3', init),
      );
      await this.forget(place, key);
      return { jobId, reused: rest.reused ?? false };
    } catch (e) {
      // A refusal by the service is an answer. Without one, the same submit must be sent again: an earlier try may have
      // been accepted, and neither a 401 nor a 429 nor a proxy's page rules that out.
      const refused = e instanceof CutroomError && e.code && e.status >= 400 && e.status < 500 && ![401, 408, 429].includes(e.status);
      if (refused) await this.forget(place, key);
      throw e;
    }
  }

  /** Removes an answered submit, unless another one has taken its slot. */
  private async forget(place: Place, key: string): Promise<void> {
    const { store } = this.cutroom;
    if ((await read<Open>(store, place.key))?.key === key) await write(store, place.key, undefined);
  }

  /** Follows a render until it is COMPLETED. Throws JobFailed if it fails. */
  film = async (jobId: string, follow: Follow<Render> = {}): Promise<Schemas['RenderCompleted']> => {
    const end = await this.follow(
      (header) => this.cutroom.api.GET('/api/v2/render/{jobId}/status', { params: { path: { jobId }, header }, ...ends(follow.signal) }),
      ['COMPLETED', 'FAILED'],
      follow,
    );
    if (end.status === 'FAILED') throw failed(jobId, end);
    return end as Schemas['RenderCompleted'];
  };

  /** Follows a separation until it is READY. Throws JobFailed if it fails, and a CutroomError if its stems are gone. */
  stems = async (jobId: string, follow: Follow<Separation> = {}): Promise<Separation> => {
    const end = await this.follow(
      (header) => this.cutroom.api.GET('/api/v2/separate/{jobId}', { params: { path: { jobId }, header }, ...ends(follow.signal) }),
      ['READY', 'DISPOSED', 'FAILED'],
      follow,
    );
    if (end.status === 'FAILED') throw failed(jobId, end);
    if (end.status === 'DISPOSED') throw new CutroomError(404, { error: 'invalid_stem_url' });
    return end;
  };

  /** The bytes of a film that is COMPLETED. */
  download = async (jobId: string, signal?: AbortSignal): Promise<Blob> =>
    (await this.cutroom.answer(this.cutroom.api.GET('/api/v2/render/{jobId}/download', { params: { path: { jobId } }, parseAs: 'blob', ...ends(signal) }))) as Blob;

  /** A picture of a film that is COMPLETED. */
  poster = async (jobId: string, signal?: AbortSignal): Promise<Blob> =>
    (await this.cutroom.answer(this.cutroom.api.GET('/api/v2/render/{jobId}/poster', { params: { path: { jobId } }, parseAs: 'blob', ...ends(signal) }))) as Blob;

  /** The user's films, the newest first. */
  films = (page: Page = {}) => this.cutroom.answer(this.cutroom.api.GET('/api/v2/render', pageOf(page)));

  /** The user's separations, the newest first. */
  separations = (page: Page = {}) => this.cutroom.answer(this.cutroom.api.GET('/api/v2/separate', pageOf(page)));

  /** Asks at once, then again and again: each answer comes as soon as the state differs from the last. */
  private async follow<S extends { status: string }>(
    ask: (header: { Prefer?: string; 'If-None-Match'?: string }) => Promise<{ data?: S; error?: unknown; response: Response }>,
    final: string[],
    { onState, onReachable, signal }: Follow<S>,
  ): Promise<S> {
    for (let tag = ''; ; ) {
      check(signal);
      const call = ask(tag ? { Prefer: `wait=${waitSec}`, 'If-None-Match': tag } : {});
      const response = await call.then((a) => a.response).catch((e: unknown) => {
        if (signal?.aborted) throw e;
        return undefined;
      });
      const lost = !response || response.status >= 500 || response.status === 429;
      onReachable?.(!lost);
      if (!lost && response.status !== 304) {
        const state = await this.cutroom.answer<S>(call);
        onState?.(state);
        if (final.includes(state.status)) return state;
      }
      const waited = !lost && (response.headers.has('Preference-Applied') || (!tag && response.headers.has('ETag')));
      if (!lost) tag = response.headers.get('ETag') ?? tag;
      if (!waited) await pause(1000 * pollSec, signal);
    }
  }
}

const failed = (jobId: string, { errorCode, error, field }: { errorCode?: string | null; error?: string | null; field?: string | null }) =>
  new JobFailed(jobId, errorCode ?? 'internal', error ?? 'the job failed', field ?? undefined);
