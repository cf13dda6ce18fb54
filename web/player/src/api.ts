// The API client of this page: typed by the API's description, signed in, with retries.

import { bytesToHex, randomBytes } from '@noble/hashes/utils.js';
import createClient from 'openapi-fetch';
import type { components, paths } from '../../api/schema';
import { Trouble, troubleOf } from './errors';

export type Schemas = components['schemas'];
export type Session = Schemas['AuthResponse'];
export type Provider = 'provider_a' | 'provider_b';

const key = 'cutroom-player';
let session: Session | null = JSON.parse(sessionStorage.getItem(key) ?? 'null');
let ended: (why: string) => void = () => {};
let notice: (text: string) => void = () => {};

export const current = (): Session | null => session;
/** Receives the reason when the session ends. */
export const onEnd = (f: (why: string) => void): void => void (ended = f);
/** Receives why the page is waiting for the service, and '' when the wait is over. */
export const onWait = (f: (text: string) => void): void => void (notice = f);

export function keep(fresh: Session | null): void {
  session = fresh;
  if (fresh) sessionStorage.setItem(key, JSON.stringify(fresh));
  else sessionStorage.removeItem(key);
}

export const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** The codes of refusals that last longer than a person should wait. */
const lasting = ['paused', 'too_many_jobs'];

/** Repeats a request to a busy service after its Retry-After. A submit has its key, so this is safe. */
async function patient(request: Request): Promise<Response> {
  for (let attempt = 0; ; attempt++) {
    const answer = await fetch(request.clone());
    const later = Number(answer.headers.get('Retry-After'));
    if (!later || attempt === 3 || (answer.status !== 429 && answer.status !== 503)) return answer;
    if (lasting.includes((await errorOf(answer)).error ?? '')) return answer;
    notice(`The service is busy. The page asks again in ${later} ${later === 1 ? 'second' : 'seconds'}.`);
    await pause(later * 1000);
    notice('');
  }
}

const errorOf = (answer: Response): Promise<Partial<Schemas['Error']>> => answer.clone().json().catch(() => ({}));

// The page is on the API's host, one folder below it.
export const api = createClient<paths>({ baseUrl: new URL('..', document.baseURI).href.replace(/\/$/, ''), fetch: patient });
api.use({
  onRequest({ request }) {
    if (session) request.headers.set('Authorization', `Bearer ${session.accessToken}`);
    // Makes a misspelt field an error. A GET has no fields, and may be redirected to the bucket.
    if (request.method === 'POST') request.headers.append('Prefer', 'handling=strict');
  },
  async onResponse({ response }) {
    if (response.status !== 401 || !session) return;
    const { error } = await errorOf(response);
    keep(null);
    ended(error === 'account_deleted' ? 'This account was deleted.' : 'Your session is over. Sign in again: your draft and your films are kept.');
  },
});

/** The answer of a call, or a Trouble. */
export async function answer<T>(call: Promise<{ data?: T; error?: Schemas['Error']; response: Response }>): Promise<T> {
  const { data, error, response } = await call.catch(() => {
    throw new Trouble('The service cannot be reached. Check the connection and try again.', '', true);
  });
  if (response.ok) return data as T;
  throw troubleOf(response.status, error);
}

/** An idempotency key for a paid action, made when it is offered: a second click is the same submit. */
export const newKey = (): string => bytesToHex(randomBytes(16));

/** Controls a stand-in of the sandbox. */
async function steer<T>(path: string, body: object): Promise<T> {
  const said = await fetch(`sandbox/${path}`, { method: 'POST', body: JSON.stringify(body) });
  if (!said.ok) throw new Trouble('The sandbox did not do as it was told.');
  return (await said.json()) as T;
}

/** A push that the stand-in of platform B's service accepted. */
export interface Push {
  type: string;
  jobId: string;
  at: string;
}

/** The pushes to a device, oldest first. */
export async function pushesTo(token: string): Promise<Push[]> {
  const said = await fetch(`sandbox/pushes/${token}`);
  if (!said.ok) throw new Trouble('The sandbox did not list its pushes.');
  return (await said.json()) as Push[];
}

const nameKey = 'cutroom-player-name';

/** The name of the last sign-in: with the same name, a person finds their draft and films again. */
export const lastName = (): string => localStorage.getItem(nameKey) ?? 'Uma User';

/** Signs in with an identity that a provider's stand-in invents. */
export async function signIn(provider: Provider, name: string): Promise<Session> {
  localStorage.setItem(nameKey, name);
  const email = `${name.toLowerCase().replace(/[^a-z0-9]+/g, '.')}@sandbox.example`;
  const { idToken } = await steer<{ idToken: string }>(`${provider}/mint`, { email, name });
  const fresh = await (provider === 'provider_a'
    ? answer(api.POST('/api/v2/auth/provider_a', { body: { idToken } }))
    : answer(api.POST('/api/v2/auth/provider_b', { body: { idToken, fullName: name } })));
  keep(fresh);
  return fresh;
}

/** Renews a token that has lived for more than a day. */
export async function renew(): Promise<void> {
  if (session && session.expiresAt - Date.now() < 6 * 86_400_000) keep(await answer(api.POST('/api/v2/auth/refresh')));
}

/** The capabilities of the server. */
export const capabilities = () => answer(api.GET('/api/v2/capabilities'));

type Credited = Schemas['CreditPurchaseResponse'];

/** The storage key of the purchase that the store has taken and the service has not credited yet. */
const unfinished = () => `cutroom-purchase-${session?.user.sub}`;

/** Buys in the stand-in of a store, as an app does: bound to the user, then presented. An unfinished purchase goes first. */
export async function buy(productId: string): Promise<Credited> {
  const before = await present();
  if (before) return before;
  const bought = await steer<{ orderId: string; token: string }>('platform_a/purchases', { productId, accountId: session?.user.sub });
  const body: Schemas['CreditPurchaseRequest'] = { platform: 'platform_a', transactionId: bought.orderId, receipt: bought.token, productId };
  localStorage.setItem(unfinished(), JSON.stringify(body));
  return credited(body);
}

/** Presents the unfinished purchase, if there is one. */
export async function present(): Promise<Credited | undefined> {
  const body = localStorage.getItem(unfinished());
  return body ? credited(JSON.parse(body)) : undefined;
}

/** A purchase may be presented again until the service has answered: it is credited once. */
async function credited(body: Schemas['CreditPurchaseRequest']): Promise<Credited> {
  const key = unfinished();
  try {
    const done = await answer(api.POST('/api/v2/credits/purchase', { body }));
    localStorage.removeItem(key);
    return done;
  } catch (e) {
    if (e instanceof Trouble && e.code === 'receipt_invalid') localStorage.removeItem(key);
    throw e;
  }
}

/** Follows a job to its end: each answer comes as soon as the state differs from the last. */
export async function follow<S extends { status: string }>(
  ask: (header: { Prefer?: string; 'If-None-Match'?: string }) => Promise<{ data?: S; error?: Schemas['Error']; response: Response }>,
  final: string[],
  show: (state: S) => void,
): Promise<S> {
  for (let tag = ''; ; ) {
    // The first request does not wait.
    const call = ask(tag ? { Prefer: 'wait=30', 'If-None-Match': tag } : {});
    const { response } = await call.catch(() => ({ response: null }));
    const lost = !response || response.status >= 500 || response.status === 429;
    notice(lost ? 'The service does not answer. The page keeps trying; nothing is lost.' : '');
    if (!lost && response.status !== 304) {
      const state = await answer(call);
      show(state);
      if (final.includes(state.status)) return state;
    }
    const waited = !lost && (response.headers.has('Preference-Applied') || (!tag && response.headers.has('ETag')));
    if (!lost) tag = response.headers.get('ETag') ?? tag;
    if (!waited) await pause(2000);
  }
}

export const followRender = (jobId: string, show: (state: Schemas['RenderStatus']) => void) =>
  follow((header) => api.GET('/api/v2/render/{jobId}/status', { params: { path: { jobId }, header } }), ['COMPLETED', 'FAILED'], show);

export const followSeparation = (jobId: string, show: (state: Schemas['SeparationStatus']) => void) =>
  follow((header) => api.GET('/api/v2/separate/{jobId}', { params: { path: { jobId }, header } }), ['READY', 'DISPOSED', 'FAILED'], show);

/** A film or its poster as an address for this page. */
export async function bytesOf(what: 'download' | 'poster', jobId: string): Promise<string> {
  const init = { params: { path: { jobId } }, parseAs: 'blob' } as const;
  const call = what === 'poster' ? api.GET('/api/v2/render/{jobId}/poster', init) : api.GET('/api/v2/render/{jobId}/download', init);
  return URL.createObjectURL((await answer<Blob | string>(call)) as Blob);
}

/** The URL of a stem, relative to this page. */
export function stemAddress(stem: Schemas['Stem']): URL {
  const { pathname, search } = new URL(stem.url);
  return new URL(`..${pathname}${search}`, document.baseURI);
}

/** The API's waveform of a stem. */
export async function peaksOf(stem: Schemas['Stem'], points: number): Promise<Schemas['Waveform']> {
  const url = stemAddress(stem);
  url.pathname += '/peaks';
  url.searchParams.set('points', String(points));
  const drawn = await patient(new Request(url));
  if (!drawn.ok) throw new Trouble('The waveform cannot be drawn.');
  return (await drawn.json()) as Schemas['Waveform'];
}
