// The API client of this page: the package of web/client, and the calls that only a sandbox has.

import { bytesToHex, randomBytes } from '@noble/hashes/utils.js';
import type { components } from '../../api/schema';
import { Cutroom, CutroomError, JobFailed, type Settled } from '../../client/src';
import { Trouble, failureOf, troubleOf } from './errors';

export type Schemas = components['schemas'];
export type Session = Schemas['AuthResponse'];
export type Provider = 'provider_a' | 'provider_b';

let ended: (why: string) => void = () => {};
let notice: (text: string) => void = () => {};
/** Why the page waits while it is online. */
let waiting = '';

/** Shows why the page waits; being offline takes precedence. */
const say = (why = waiting): void => {
  waiting = why;
  notice(navigator.onLine ? waiting : 'You are offline. Nothing is lost: the page goes on by itself when the network is back.');
};
addEventListener('online', () => say());
addEventListener('offline', () => say());

/** Receives the reason when the session ends. */
export const onEnd = (f: (why: string) => void): void => void (ended = f);
/** Receives why the page is waiting for the service, and '' when the wait is over. */
export function onWait(f: (text: string) => void): void {
  notice = f;
  say();
}

// The page is on the API's host, one folder below it.
export const cutroom = new Cutroom({
  baseUrl: new URL('..', document.baseURI).href.replace(/\/$/, ''),
  store: localStorage,
  onSignedOut: (reason) =>
    ended(reason === 'account_deleted' ? 'This account was deleted.' : 'Your session is over. Sign in again: your draft and your films are kept.'),
  onWait: (s, lost) => say(s === undefined ? '' : `${lost ? 'The service does not answer.' : 'The service is busy.'} The page asks again in ${Math.ceil(s)} ${Math.ceil(s) === 1 ? 'second' : 'seconds'}.`),
});
export const { api } = cutroom;

const sessionKey = 'cutroom.session';
/** The session, which all tabs share. */
export const current = (): Session | null => JSON.parse(localStorage.getItem(sessionKey) ?? 'null');
// A sign-in or a sign-out in one tab applies to all tabs.
addEventListener('storage', (e) => e.key === sessionKey && location.reload());

const elsewhere = new BroadcastChannel('cutroom-account');
/** Tells the other tabs of this browser that the credits or the stems of the account have changed. */
export const accountChanged = (): void => elsewhere.postMessage('');
/** Calls `look` when another tab has changed the account, and when the user comes back, perhaps from another browser. */
export function onAccountChange(look: () => void): () => void {
  const back = () => document.visibilityState === 'visible' && look();
  elsewhere.addEventListener('message', look);
  document.addEventListener('visibilitychange', back);
  addEventListener('focus', back);
  return () => {
    elsewhere.removeEventListener('message', look);
    document.removeEventListener('visibilitychange', back);
    removeEventListener('focus', back);
  };
}

export const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

const trouble = (e: unknown): Trouble => ((e as Error | null)?.name === 'QuotaExceededError' ? new Trouble("This browser's storage is full, so that nothing was sent. Delete a project or free space on this device, then try again.", '', true) : e instanceof CutroomError ? troubleOf(e) : e instanceof JobFailed ? failureOf(e) : e instanceof Trouble ? e : new Trouble('The service cannot be reached. Check the connection and try again.', '', true));

/** The result of a call, or a Trouble. */
export const result = <T,>(call: Promise<T>): Promise<T> =>
  call.catch((e: unknown) => {
    throw trouble(e);
  });

/** The answer of a call of the API, or a Trouble. */
export const answer = <T,>(call: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> => result(cutroom.answer(call));

/** An idempotency key for a paid action, made when the action is offered, so that a second click is the same submit. */
export const newKey = (): string => bytesToHex(randomBytes(16));

/** Controls one of the sandbox's stand-ins. */
async function steer<T>(path: string, body: object): Promise<T> {
  await cutroom.online();
  const said = await result(fetch(`sandbox/${path}`, { method: 'POST', body: JSON.stringify(body) }));
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

/** Signs in with an identity that a provider's stand-in makes up. */
export async function signIn(provider: Provider, name: string): Promise<Session> {
  localStorage.setItem(nameKey, name);
  const email = `${name.toLowerCase().replace(/[^a-z0-9]+/g, '.')}@sandbox.example`;
  const { idToken } = await steer<{ idToken: string }>(`${provider}/mint`, { email, name });
  return result(cutroom.signIn(provider, idToken, name));
}

/** The capabilities of the server. */
export const capabilities = () => answer(api.GET('/api/v2/capabilities'));

/** How much a purchase has credited (0 if it had been credited before), and the balance. */
type Credited = { granted: number; balance: number };

/** Buys in the stand-in of a store, as an app does: bound to the user, then presented. An unfinished purchase goes first. */
export async function buy(productId: string): Promise<Credited> {
  const before = await present();
  if (before) return before;
  const bought = await steer<{ orderId: string; token: string }>('platform_a/purchases', { productId, accountId: current()?.user.sub });
  const [settled] = await result(cutroom.purchases.add({ platform: 'platform_a', transactionId: bought.orderId, receipt: bought.token, productId }));
  return creditedBy(settled);
}

/** Presents the unfinished purchases, if there are any. */
export async function present(): Promise<Credited | undefined> {
  const settled = await result(cutroom.purchases.present());
  return settled.length ? creditedBy(settled.at(-1)) : undefined;
}

function creditedBy(settled: Settled | undefined): Credited {
  if (settled?.outcome === 'credited') return settled;
  throw settled?.outcome === 'kept' ? trouble(settled.error) : new Trouble('The store did not confirm this purchase. Nothing was charged.');
}

/** Says that the service does not answer, for as long as it does not. */
const onReachable = (yes: boolean) => say(yes ? '' : 'The service does not answer. The page keeps trying; nothing is lost.');

/** Follows a render to its film. Throws the Trouble of one that failed. */
export const followRender = (jobId: string, onState: (state: Schemas['RenderStatus']) => void) => result(cutroom.jobs.film(jobId, { onState, onReachable }));

/** Follows a separation to its stems. */
export const followSeparation = (jobId: string, onState: (state: Schemas['SeparationStatus']) => void) => result(cutroom.jobs.stems(jobId, { onState, onReachable }));

/** A film or its poster as an address for this page. */
export async function bytesOf(what: 'download' | 'poster', jobId: string): Promise<string> {
  const init = { params: { path: { jobId } }, parseAs: 'blob' } as const;
  const ask = () => answer<Blob | string>(what === 'poster' ? api.GET('/api/v2/render/{jobId}/poster', init) : api.GET('/api/v2/render/{jobId}/download', init));
  const bytes = await ask().catch((e: Trouble) => {
    if (e.status) throw e;
    return ask(); // the connection broke in the middle
  });
  return URL.createObjectURL(bytes as Blob);
}

/** The URL of a stem, relative to this page. */
export function stemAddress(stem: Schemas['Stem']): URL {
  const { pathname, search } = new URL(stem.url);
  return new URL(`..${pathname}${search}`, document.baseURI);
}

/** The API's waveform of a stem. */
export async function peaksOf(stem: Schemas['Stem'], points: number): Promise<Schemas['Waveform']> {
  const { pathname, searchParams } = stemAddress(stem);
  const [, jobId = '', stemId = ''] = /separate\/([^/]+)\/stem\/([^/]+)$/.exec(pathname) ?? [];
  const query = { token: searchParams.get('token') ?? '', points };
  return answer(api.GET('/api/v2/separate/{jobId}/stem/{stemId}/peaks', { params: { path: { jobId, stemId }, query } }));
}
