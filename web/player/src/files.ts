// What the service has of the user's files.

import { answer, api, current, cutroom, stemAddress, type Schemas } from './api';

export type Analysis = Schemas['Analysis'];

const known = new Map<string, Promise<Analysis>>();

/** The service's analysis of a file, fetched once. */
export function analysisOf(assetKey: string): Promise<Analysis> {
  const asked = known.get(assetKey) ?? answer(api.POST('/api/v2/assets/analysis', { body: { assetKey, points: 4000 } }));
  known.set(assetKey, asked);
  asked.catch(() => known.delete(assetKey));
  return asked;
}

async function get(path: string, headers: Record<string, string> = {}): Promise<Response> {
  await cutroom.online();
  return fetch(new URL(`../api/v2/${path}`, document.baseURI), { headers: { Authorization: `Bearer ${current()?.accessToken ?? ''}`, ...headers } });
}

/** An address in the object store from which a file of the user can be read in ranges, for some minutes. */
export async function addressOf(assetKey: string): Promise<URL> {
  // One byte is enough to be told the address.
  const found = await get(assetKey, { Range: 'bytes=0-0' });
  if (!found.ok) throw new Error(`the file is gone: ${found.status}`);
  await found.arrayBuffer();
  return new URL(found.url);
}

/** The service's tiles of a clip, from left to right. */
export async function storyboardOf(assetKey: string, frames: number, height = 180): Promise<Blob> {
  const found = await get(`${assetKey}/storyboard?frames=${frames}&height=${height}`);
  if (!found.ok) throw new Error(`there is no storyboard: ${found.status}`);
  return found.blob();
}

/** The sound of a stem. */
export async function stemBytes(jobId: string, stemId: string): Promise<Blob> {
  const { stems } = await answer(api.GET('/api/v2/separate/{jobId}', { params: { path: { jobId } } }));
  const stem = stems?.find((s) => s.stemId === stemId);
  if (!stem) throw new Error('the stem is gone');
  return (await fetch(stemAddress(stem))).blob();
}
