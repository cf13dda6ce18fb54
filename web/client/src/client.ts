import createClient, { type Client } from 'openapi-fetch';
import type { components, paths } from '../../api/schema';
import { CutroomError } from './errors';
import { Jobs } from './jobs';
import { Purchases } from './purchases';
import { Sessions, type Session } from './session';
import { memory, type Store } from './store';
import { Assets } from './upload';

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
  /** Resolves once the device has a network: no request is sent before. By default the browser knows, and others always have one. */
  online?: () => Promise<unknown>;
  /** Whether a misspelt field is an error. On by default. */
  strict?: boolean;
  /** Is told when the server ends the session. */
  onSignedOut?: (reason: Reason) => void;
  /** Is told for how long the client waits before it repeats a request, and undefined when it has an answer. */
  onWait?: (seconds: number | undefined) => void;
}

type Answer<T> = Promise<{ data?: T; error?: unknown; response: Response }>;

/** Codes of 429 and 503 for which a person should not wait. */
const lasting = ['paused', 'too_many_jobs', 'r2_disabled', 'provider_b_disabled', 'push_disabled'];
/** POSTs that are safe to repeat without an Idempotency-Key. */
const repeatable = /\/(credits\/purchase|assets\/(upload-url|complete|analysis)|auth\/(refresh|sign-out|provider_[ab]))$/;
/** Tries of one request, and the longest wait between two, in seconds. */
const tries = 6;
const longestWait = 60;
const missingRetryAfter = 10;

/** Resolves at once, or when a browser that is offline says that it is back. */
const inBrowser = async (): Promise<void> => {
  if (globalThis.navigator?.onLine === false) await new Promise((back) => addEventListener('online', back, { once: true }));
};

export const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** The value of an answer. Throws a CutroomError if it is no success. */
export async function answer<T>(call: Answer<T>): Promise<T> {
  const { data, error, response } = await call;
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

  /** The session as it is, undefined if nobody is signed in. */
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

  private async refresh(session: Session): Promise<Session> {
    const request = new Request(`${this.options.baseUrl}/api/v2/auth/refresh`, { method: 'POST', headers: { Authorization: `Bearer ${session.accessToken}` } });
    const response = await this.send(request);
    this.sessions.heard(response.headers.get('Date'));
    if (!response.ok) throw errorOf(response, await response.json().catch(() => ({})));
    return (await response.json()) as Session;
  }

  /** Sends a request, signed, and repeats it by the rules of docs/app/errors.md. */
  private async request(request: Request): Promise<Response> {
    await this.online();
    const signIn = request.url.includes('/api/v2/auth/provider_');
    const token = signIn ? undefined : await this.sessions.token();
    if (token) request.headers.set('Authorization', `Bearer ${token}`);
    if (request.method === 'POST' && this.options.strict !== false) request.headers.append('Prefer', 'handling=strict');
    const safe = request.method !== 'POST' || request.headers.has('Idempotency-Key') || repeatable.test(new URL(request.url).pathname);
    for (let attempt = 1; ; attempt++, await this.online()) {
      const response = await this.send(request.clone()).catch((e: unknown) => {
        if (!safe || attempt === tries || request.signal.aborted) throw request.signal.aborted ? e : new CutroomError(0, {});
        return undefined;
      });
      if (response) this.sessions.heard(response.headers.get('Date'));
      const wait = response ? await waitBefore(response, safe, attempt) : backoff(attempt);
      if (wait === undefined && response) {
        this.options.onWait?.(undefined);
        if (response.status === 401 && token) await this.ended(token, response);
        return response;
      }
      this.options.onWait?.(wait);
      await pause(1000 * (wait ?? 0));
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
      const after = Number(response.headers.get('Retry-After') ?? missingRetryAfter);
      // Refused before anything was done, so a POST may be repeated as well.
      return lasting.includes(error) || after > longestWait ? undefined : after;
    }
    case 500:
    case 502:
    case 504:
      return safe ? backoff(attempt) : undefined;
    default:
      return undefined;
  }
}

/** 1, 2, 4, ... seconds and a random part, so that many clients do not return at once. */
const backoff = (attempt: number): number => Math.min(longestWait, 2 ** (attempt - 1)) * (0.75 + Math.random() / 2);
