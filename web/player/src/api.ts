// The API as this page speaks it: typed by its description, signed in, patient.

import { sha256 } from '@noble/hashes/sha2.js';
import { bytesToHex, randomBytes } from '@noble/hashes/utils.js';
import createClient from 'openapi-fetch';
import type { components, paths } from '../../api/schema';

export type Schemas = components['schemas'];
export type Session = Schemas['AuthResponse'];
export type Provider = 'provider_a' | 'provider_b';

/** What went wrong, in words for the person in front of the screen. */
export class Trouble extends Error {
  constructor(
    message: string,
    readonly code = '',
  ) {
    super(message);
  }
}

const key = 'cutroom-player';
let session: Session | null = JSON.parse(sessionStorage.getItem(key) ?? 'null');
let ended: () => void = () => {};

export const current = (): Session | null => session;
export const onEnd = (f: () => void): void => void (ended = f);

export function keep(fresh: Session | null): void {
  session = fresh;
  if (fresh) sessionStorage.setItem(key, JSON.stringify(fresh));
  else sessionStorage.removeItem(key);
}

export const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** Asks again, as late as it is told, where the service is busy. A submit carries its key, so this is safe. */
async function patient(request: Request): Promise<Response> {
  for (let attempt = 0; ; attempt++) {
    const answer = await fetch(request.clone());
    const later = Number(answer.headers.get('Retry-After'));
    if (!later || attempt === 3 || (answer.status !== 429 && answer.status !== 503)) return answer;
    await pause(later * 1000);
  }
}

// The page is served beside the API, one folder below it.
export const api = createClient<paths>({ baseUrl: new URL('..', document.baseURI).href.replace(/\/$/, ''), fetch: patient });
api.use({
  onRequest({ request }) {
    if (session) request.headers.set('Authorization', `Bearer ${session.accessToken}`);
  },
  onResponse({ response }) {
    if (response.status === 401 && session) {
      keep(null);
      ended();
    }
  },
});

const sentences: Record<string, string> = {
  r2_disabled: 'This sandbox runs without an object store. Start it without --no-bucket.',
  insufficient_credits: 'There are not enough credits. Buy some at the top of the page.',
  unsupported_audio_format: 'This recording is not m4a, mp3 or wav.',
  invalid_stem_url: 'These stems are gone. Separate the recording again.',
};

/** The answer of a call, or a Trouble. */
export async function answer<T>(call: Promise<{ data?: T; error?: Schemas['Error']; response: Response }>): Promise<T> {
  const { data, error, response } = await call.catch(() => {
    throw new Trouble('The service cannot be reached.');
  });
  if (response.ok) return data as T;
  const code = error?.error ?? '';
  throw new Trouble(sentences[code] ?? (code || `The service answered ${response.status}.`), code);
}

/** A new key for a submit; the submit is repeated under the same one. */
export const submitKey = () => ({ 'Idempotency-Key': bytesToHex(randomBytes(16)) });

/** Tells a stand-in of the sandbox what to do. */
async function steer<T>(path: string, body: object): Promise<T> {
  const said = await fetch(`sandbox/${path}`, { method: 'POST', body: JSON.stringify(body) });
  if (!said.ok) throw new Trouble('The sandbox did not do as it was told.');
  return (await said.json()) as T;
}

/** Signs in with an identity that the stand-in of a provider makes up. */
export async function signIn(provider: Provider, name: string): Promise<Session> {
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

/** Buys in the stand-in of a store, as an app does: bound to the user, then presented. */
export async function buy(productId: string): Promise<number> {
  const bought = await steer<{ orderId: string; token: string }>('platform_a/purchases', { productId, accountId: session?.user.sub });
  const body = { platform: 'platform_a' as const, transactionId: bought.orderId, receipt: bought.token, productId };
  return (await answer(api.POST('/api/v2/credits/purchase', { body }))).balance;
}

const types: Record<string, string> = {
  mp4: 'video/mp4', m4v: 'video/mp4', mov: 'video/quicktime', webm: 'video/webm',
  m4a: 'audio/mp4', mp3: 'audio/mpeg', wav: 'audio/wav', aac: 'audio/aac',
}; // prettier-ignore

/** Uploads a file by reference, and tells how much of it is sent, from 0 to 1. */
export async function upload(file: File, sent: (part: number) => void): Promise<string> {
  const ext = file.name.split('.').pop()?.toLowerCase() ?? '';
  const contentType = types[ext];
  if (!contentType) throw new Trouble(`${file.name} is none of ${Object.keys(types).join(', ')}.`);
  const hash = sha256.create();
  for (let at = 0; at < file.size; at += 1 << 22) hash.update(new Uint8Array(await file.slice(at, at + (1 << 22)).arrayBuffer()));
  const body = { sha256Hex: bytesToHex(hash.digest()), sizeBytes: file.size, ext, contentType };
  const to = await answer(api.POST('/api/v2/assets/upload-url', { body }));
  if (to.uploadUrl) await put(to.uploadUrl, contentType, file, sent);
  return to.assetKey;
}

/** One PUT; unlike fetch, XMLHttpRequest tells how far it is. */
function put(url: string, contentType: string, file: File, sent: (part: number) => void): Promise<void> {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open('PUT', url);
    request.setRequestHeader('Content-Type', contentType);
    request.upload.onprogress = (e) => sent(e.loaded / e.total);
    request.onload = () => (request.status === 200 ? done() : failed(new Trouble(`The object store answered ${request.status}.`)));
    request.onerror = () => failed(new Trouble('The object store cannot be reached.'));
    request.send(file);
  });
}

/** Follows a job to its end: each answer comes as soon as the state differs from the last. */
export async function follow<S extends { status: string }>(
  ask: (header: { Prefer?: string; 'If-None-Match'?: string }) => Promise<{ data?: S; error?: Schemas['Error']; response: Response }>,
  final: string[],
  show: (state: S) => void,
): Promise<S> {
  for (let tag = ''; ; ) {
    // The first answer is wanted at once.
    const call = ask(tag ? { Prefer: 'wait=30', 'If-None-Match': tag } : {});
    const { response } = await call.catch(() => ({ response: null }));
    if (response && response.status !== 304) {
      const state = await answer(call);
      show(state);
      if (final.includes(state.status)) return state;
    }
    const waited = response?.headers.has('Preference-Applied') || (!tag && response?.headers.has('ETag'));
    tag = response?.headers.get('ETag') ?? tag;
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

/** The address of a stem as this page reaches it. */
export function stemAddress(stem: Schemas['Stem']): URL {
  const { pathname, search } = new URL(stem.url);
  return new URL(`..${pathname}${search}`, document.baseURI);
}

/** The waveform that the API drew of a stem. */
export async function peaksOf(stem: Schemas['Stem'], points: number): Promise<Schemas['Waveform']> {
  const url = stemAddress(stem);
  url.pathname += '/peaks';
  url.searchParams.set('points', String(points));
  const drawn = await patient(new Request(url));
  if (!drawn.ok) throw new Trouble('The waveform cannot be drawn.');
  return (await drawn.json()) as Schemas['Waveform'];
}
