// The client of the API: every request passes through here. It adds the bearer token, waits as long as the service asks,
// repeats what may be repeated, and ends the session when the service no longer accepts it.

import createClient, { type Client } from 'openapi-fetch';
import type { components, paths } from '../../api/schema.js';
import { lasting, longestWaitSec, missingRetryAfterSec, repeatable, requestTimeoutSec, tries } from './contract.js';
import { CutroomError } from './errors.js';
import { Jobs } from './jobs.js';
import { onAbort, pause, unlessAborted } from './pause.js';
import { Purchases } from './purchases.js';
import { Sessions, type Session } from './session.js';
import { memory, type Store } from './store.js';
import { Assets } from './upload.js';

/** Why a session ended: the account is gone, or the user has to sign in again. */
export type Reason = 'account_deleted' | 'signed_out';

export interface Options {
  /** The server's address without `/api/v2`. */
  baseUrl: string;
  /** Where to keep the session, submits and purchases; by default in memory. */
  store?: Store;
  fetch?: typeof fetch;
  /** The device's clock, in milliseconds. */
  now?: () => number;
  /** Resolves once the device has a network: no request is sent earlier. By default a browser is asked; elsewhere there always is one. */
  online?: () => Promise<unknown>;
  /**
   * How long the server may take to answer a request, in milliseconds: 60 000 by default. A request with `Prefer: wait=N`
   * has N + 15 seconds. The bytes of a film may take longer; a signal ends them.
   */
  timeoutMs?: number;
  /** Whether a misspelt field is an error. On by default. */
  strict?: boolean;
  /** Called when the server ends the session. */
  onSignedOut?: (reason: Reason) => void;
  /**
   * Called with the time that the client waits before it repeats a request, and with undefined once it has an answer. `lost`
   * says that the server did not answer; otherwise it answered that it is busy.
   */
  onWait?: (seconds: number | undefined, lost: boolean) => void;
}

type Answer<T> = Promise<{ data?: T; error?: unknown; response: Response }>;

/** How much longer an answer may take than the server promises to wait, in milliseconds. */
const waitedLonger = 15_000;

/** Resolves at once, or when a browser that is offline says that it is back. */
const inBrowser = async (): Promise<void> => {
  if (globalThis.navigator?.onLine === false) await new Promise((back) => addEventListener('online', back, { once: true }));
};

/** The value of an answer. Throws a CutroomError if it is not a success, or a page that does not come from the service. */
export async function answer<T>(call: Answer<T>): Promise<T> {
  const { data, error, response } = await call.catch((e: unknown) => {
    throw e instanceof SyntaxError ? new CutroomError(0, {}) : e;
  });
  if (response.ok) return data as T;
  throw errorOf(response, error);
}

function errorOf(response: Response, body: unknown): CutroomError {
  const after = response.headers.get('Retry-After');
  return new CutroomError(
    response.status,
    typeof body === 'object' && body ? body : {},
    after ? Number(after) : undefined,
    response.headers.get('X-Request-Id') ?? undefined,
  );
}

/** A client of one server, for one user at a time. */
export class Cutroom {
  /** The typed API, signed, with retries. Its answers are `{data, error, response}`; `answer` unwraps them. */
  readonly api: Client<paths>;
  readonly assets: Assets;
  readonly jobs: Jobs;
  readonly purchases: Purchases;
  readonly store: Store;
  /** Resolves once the device has a network. */
  readonly online: () => Promise<unknown>;
  private sessions: Sessions;
  private send: typeof fetch;

  constructor(private options: Options) {
    this.store = options.store ?? memory();
    this.online = options.online ?? inBrowser;
    this.send = options.fetch ?? ((...call) => fetch(...call));
    this.sessions = new Sessions(this.store, options.now ?? Date.now, (session) => this.refresh(session));
    this.api = createClient<paths>({ baseUrl: options.baseUrl, fetch: (request) => this.request(request) });
    this.assets = new Assets(this);
    this.jobs = new Jobs(this);
    this.purchases = new Purchases(this);
  }

  answer = answer;

  /** The current session, undefined if nobody is signed in. */
  session = (): Promise<Session | undefined> => this.sessions.get();

  async signIn(provider: 'provider_a' | 'provider_b', idToken: string, fullName = ''): Promise<Session> {
    await this.sessions.keep(undefined);
    const session = await (provider === 'provider_a'
      ? answer(this.api.POST('/api/v2/auth/provider_a', { body: { idToken } }))
      : answer(this.api.POST('/api/v2/auth/provider_b', { body: { idToken, fullName } })));
    await this.sessions.keep(session);
    return session;
  }

  /** Forgets the session on this device. */
  signOut = (): Promise<void> => this.sessions.keep(undefined);

  /** Registers this phone for push messages when a job ends: at each start of the app, and for each new token. */
  registerDevice = async (device: components['schemas']['Device']): Promise<void> => void (await answer(this.api.PUT('/api/v2/devices', { body: device })));

  /** Removes this phone from push messages, before a sign-out. */
  unregisterDevice = async (device: components['schemas']['Device']): Promise<void> => void (await answer(this.api.DELETE('/api/v2/devices', { body: device })));

  private async refresh(session: Session): Promise<Session> {
    const request = new Request(`${this.options.baseUrl}/api/v2/auth/refresh`, { method: 'POST', headers: { Authorization: `Bearer ${session.accessToken}` } });
    const response = await this.timed(request);
    this.sessions.heard(response.headers.get('Date'));
    if (!response.ok) throw errorOf(response, await response.json().catch(() => ({})));
    return (await response.json()) as Session;
  }

  /** Sends a request once, and gives up after its time-out. A JSON answer has arrived whole. */
  private async timed(request: Request): Promise<Response> {
    const waits = /\bwait=(\d+)/.exec(request.headers.get('Prefer') ?? '')?.[1];
    const limit = waits ? 1000 * Number(waits) + waitedLonger : (this.options.timeoutMs ?? 1000 * requestTimeoutSec);
    const control = new AbortController();
    const forget = onAbort(request.signal, () => control.abort(request.signal.reason));
    const timer = setTimeout(() => control.abort(), limit);
    // A fetch that the app provides may ignore the signal.
    const over = new Promise<never>((_, failed) => void onAbort(control.signal, () => failed(new CutroomError(0, {}))));
    over.catch(() => {});
    try {
      const response = await Promise.race([this.send(new Request(request.clone(), { signal: control.signal })), over]);
      if (!response.headers.get('Content-Type')?.includes('json')) return response; // the request's signal still ends it
      await Promise.race([response.clone().arrayBuffer(), over]);
      forget();
      return response;
    } catch (e) {
      forget();
      throw e;
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * Sends a request, signed, and repeats it by the rules of docs/app/errors.md. If a `user` is named, it is sent as
   * theirs or not at all.
   */
  async request(request: Request, user?: string): Promise<Response> {
    const { signal } = request;
    await unlessAborted(this.online(), signal);
    const signIn = request.url.includes('/api/v2/auth/provider_');
    const token = signIn ? undefined : await unlessAborted(this.sessions.token(user), signal);
    if (token) request.headers.set('Authorization', `Bearer ${token}`);
    if (request.method === 'POST' && this.options.strict !== false) request.headers.append('Prefer', 'handling=strict');
    const safe = request.method !== 'POST' || request.headers.has('Idempotency-Key') || repeatable.some((path) => request.url.split('?')[0]?.endsWith(`/api/v2${path}`));
    for (let attempt = 1; ; attempt++, await unlessAborted(this.online(), signal)) {
      const response = await this.timed(request).catch((e: unknown) => {
        if (signal?.aborted) throw (signal.reason as unknown) ?? e;
        if (!safe || attempt === tries) throw new CutroomError(0, {});
        return undefined;
      });
      if (response) this.sessions.heard(response.headers.get('Date'));
      const wait = response ? await waitBefore(response, safe, attempt) : backoff(attempt);
      if (wait === undefined && response) {
        this.options.onWait?.(undefined, false);
        if (response.status === 401 && token) await this.ended(token, response);
        return response;
      }
      this.options.onWait?.(wait, !response);
      await pause(1000 * (wait ?? 0), signal);
    }
  }

  private async ended(token: string, response: Response): Promise<void> {
    // A renewal or another sign-in may have replaced the token while the request was under way.
    if ((await this.sessions.get())?.accessToken !== token) return;
    const { error } = (await response.clone().json().catch(() => ({}))) as Partial<components['schemas']['Error']>;
    await this.sessions.keep(undefined);
    this.options.onSignedOut?.(error === 'account_deleted' ? 'account_deleted' : 'signed_out');
  }
}

/** The seconds to wait before the request is repeated, undefined if its answer is final. */
async function waitBefore(response: Response, safe: boolean, attempt: number): Promise<number | undefined> {
  if (attempt === tries) return undefined;
  switch (response.status) {
    case 429:
    case 503: {
      const { error = '' } = (await response.clone().json().catch(() => ({}))) as { error?: string };
      const after = Number(response.headers.get('Retry-After') ?? missingRetryAfterSec);
      // Refused before anything was done, so a POST may be repeated as well.
      return lasting.includes(error) || after > longestWaitSec ? undefined : after;
    }
    case 500:
    case 502:
    case 504:
      return safe ? backoff(attempt) : undefined;
    default:
      return undefined;
  }
}

/** 1, 2, 4, ... seconds and a random part, so that many clients do not come back at the same moment. */
const backoff = (attempt: number): number => Math.min(longestWaitSec, 2 ** (attempt - 1)) * (0.75 + Math.random() / 2);
