// Makes a film with the client that openapi-typescript types: BASE and ID_TOKEN name
// the server and the user, the arguments a clip and the file for the film.

import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import createClient from 'openapi-fetch';
import type { components, paths } from '../api/schema';

type Schemas = components['schemas'];

// What must not compile.
// @ts-expect-error a configuration is an object
export const wrong: Schemas['RenderConfig'] = 42;
// @ts-expect-error and names its segments
export const bare: Schemas['RenderConfigV3'] = { quality: 'low' };

const [, , clip = '', film = ''] = process.argv;
const { BASE: baseUrl = '', ID_TOKEN: idToken = '' } = process.env;
const api = createClient<paths>({ baseUrl });

/** The answer, or an error that says what was refused. */
async function answer<T, E>(call: Promise<{ data?: T; error?: E; response: Response }>): Promise<T> {
  const { data, error, response } = await call;
  if (data === undefined) throw new Error(`${response.status} ${JSON.stringify(error)}`);
  return data;
}

async function upload(bytes: Buffer): Promise<string> {
  const sha256Hex = createHash('sha256').update(bytes).digest('hex');
  const body = { sha256Hex, sizeBytes: bytes.length, ext: 'mp4', contentType: 'video/mp4' };
  const { assetKey, uploadUrl } = await answer(api.POST('/api/v2/assets/upload-url', { body }));
  if (uploadUrl) {
    const put = await fetch(uploadUrl, { method: 'PUT', body: new Uint8Array(bytes), headers: { 'Content-Type': 'video/mp4' } });
    if (!put.ok) throw new Error(`upload: ${put.status}`);
  }
  return assetKey;
}

async function finished(jobId: string): Promise<Schemas['RenderCompleted']> {
  for (let tag = ''; ; ) {
    const header = { Prefer: 'wait=30', ...(tag && { 'If-None-Match': tag }) };
    const { data: state, response } = await api.GET('/api/v2/render/{jobId}/status', { params: { path: { jobId }, header } });
    tag = response.headers.get('ETag') ?? '';
    if (state?.status === 'COMPLETED') return state;
    if (state?.status === 'FAILED') throw new Error(`${state.errorCode}: ${state.error}`);
    if (!state && response.status !== 304) throw new Error(`status: ${response.status}`);
  }
}

const { accessToken } = await answer(api.POST('/api/v2/auth/provider_a', { body: { idToken } }));
api.use({
  onRequest({ request }) {
    request.headers.set('Authorization', `Bearer ${accessToken}`);
  },
});
const sourceAssetKey = await upload(await readFile(clip));
const body: Schemas['RenderConfigV3'] = {
  segments: [
    { sourceAssetKey, order: 0, durationMs: 2000, trimEndMs: 1000 },
    { sourceAssetKey, order: 1, durationMs: 2000, trimStartMs: 1000, speedScale: 2 },
  ],
  quality: 'low',
};
const header = { 'Idempotency-Key': crypto.randomUUID() };
const { jobId } = await answer(api.POST('/api/v2/render/v3', { body, params: { header } }));
const state = await finished(jobId);
const bytes = await answer(api.GET('/api/v2/render/{jobId}/download', { params: { path: { jobId } }, parseAs: 'arrayBuffer' }));
if (bytes.byteLength !== state.sizeBytes) throw new Error(`${bytes.byteLength} bytes of ${state.sizeBytes}`);
await writeFile(film, new Uint8Array(bytes));
