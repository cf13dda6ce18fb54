// Like film.ts, with the client that hey-api generates; the clip is a part of the form.

import { readFile, writeFile } from 'node:fs/promises';
import { downloadRender, getRenderStatus, signInProviderA, submitRender } from './hey/sdk.gen';
import type { RenderCompleted } from './hey/types.gen';
import { client } from './hey/client.gen';

const [, , clip = '', film = ''] = process.argv;
const { BASE: baseUrl = '', ID_TOKEN: idToken = '' } = process.env;
client.setConfig({ baseUrl, throwOnError: true });

async function finished(jobId: string): Promise<RenderCompleted> {
  for (let tag = ''; ; ) {
    const headers = { Prefer: 'wait=30', ...(tag && { 'If-None-Match': tag }) };
    const { data: state, response } = await getRenderStatus({ path: { jobId }, headers });
    tag = response?.headers.get('ETag') ?? '';
    if (state?.status === 'COMPLETED') return state;
    if (state?.status === 'FAILED') throw new Error(`${state.errorCode}: ${state.error}`);
  }
}

const { data: session } = await signInProviderA<true>({ body: { idToken } });
client.setConfig({ auth: session.accessToken });
const video = new Blob([new Uint8Array(await readFile(clip))], { type: 'video/mp4' });
const segments = [
  { sourceFileKey: 'video', order: 0, durationMs: 2000, trimEndMs: 1000 },
  { sourceFileKey: 'video', order: 1, durationMs: 2000, trimStartMs: 1000, speedScale: 2 },
];
const { data: job } = await submitRender<true>({ body: { config: { segments, quality: 'low' }, video } });
const { sizeBytes } = await finished(job.jobId);
const { data: bytes } = await downloadRender<true>({ path: { jobId: job.jobId }, parseAs: 'arrayBuffer' });
const all = new Uint8Array(bytes as unknown as ArrayBuffer);
if (all.length !== sizeBytes) throw new Error(`${all.length} bytes of ${sizeBytes}`);
await writeFile(film, all);
