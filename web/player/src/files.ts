// What the service knows about the user's files.

import { CutroomError } from '../../client/src';
import { answer, api, cutroom, stemAddress, type Schemas } from './api';

export type Analysis = Schemas['Analysis'];

const known = new Map<string, Promise<Analysis>>();

/** The service's analysis of a file, fetched once. */
export function analysisOf(assetKey: string): Promise<Analysis> {
  const asked = known.get(assetKey) ?? answer(api.POST('/api/v2/assets/analysis', { body: { assetKey, points: 4000 } }));
  known.set(assetKey, asked);
  asked.catch(() => known.delete(assetKey));
  return asked;
}

const nameOf = (assetKey: string): string => assetKey.replace(/^assets\//, '');

/** An address in the object store from which a file of the user can be read in ranges, for some minutes. */
export async function addressOf(assetKey: string): Promise<URL> {
  // Asking for one byte is enough to learn the address.
  const init = { params: { path: { name: nameOf(assetKey) } }, headers: { Range: 'bytes=0-0' }, parseAs: 'stream' } as const;
  const { response, error } = await api.GET('/api/v2/assets/{name}', init);
  await cutroom.answer(Promise.resolve({ response, error }));
  await response.body?.cancel();
  return new URL(response.url);
}

/** The service's tiles of a clip, from left to right. */
export const storyboardOf = async (assetKey: string, frames: number, height = 180): Promise<Blob> =>
  (await cutroom.answer<unknown>(api.GET('/api/v2/assets/{name}/storyboard', { params: { path: { name: nameOf(assetKey) }, query: { frames, height } }, parseAs: 'blob' }))) as Blob;

/** The sound of a stem. */
export async function stemBytes(jobId: string, stemId: string): Promise<Blob> {
  const { stems } = await cutroom.answer(api.GET('/api/v2/separate/{jobId}', { params: { path: { jobId } } }));
  const stem = stems?.find((s) => s.stemId === stemId);
  if (!stem) throw new CutroomError(404, {});
  const query = { token: stemAddress(stem).searchParams.get('token') ?? '' };
  return (await cutroom.answer<unknown>(api.GET('/api/v2/separate/{jobId}/stem/{stemId}', { params: { path: { jobId, stemId }, query: query as object }, parseAs: 'blob' }))) as Blob;
}
