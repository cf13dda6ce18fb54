// Files become assets: read in the browser, uploaded by the package of web/client, measured by the service.

import { CutroomError } from '../../client/src';
import { cutroom, result } from './api';
import type { Clip } from './draft';
import { Trouble } from './errors';
import { analysisOf, type Analysis } from './files';
import { inspect } from './media';
import { keepFile } from './preview/library';
import type { Sent } from './tasks';

/** Uploads a file, unless it was uploaded before. A repeat continues an interrupted upload. */
export async function upload(file: File, sent: Sent, signal?: AbortSignal): Promise<string> {
  if (file.size === 0) throw new Trouble(`${file.name} is empty.`);
  const assetKey = await result(
    cutroom.assets.upload(file, file.name, sent, signal).catch((e: unknown) => {
      if (e instanceof CutroomError && e.field === 'ext') throw new Trouble(`${file.name} is not one of these: mp4, m4v, mov, webm, m4a, mp3, wav, aac.`);
      if (e instanceof CutroomError && e.status === 0) throw new Trouble('The upload broke off. Try again: it goes on where it stopped.', '', true);
      throw e;
    }),
  );
  signal?.throwIfAborted();
  return assetKey;
}

/** The service's analysis of a file. A refusal names the file. */
const analysed = (assetKey: string, name: string): Promise<Analysis> =>
  analysisOf(assetKey).catch((e: Trouble) => {
    throw new Trouble(e.message.replace('This file', name), e.code, e.again, e.status);
  });

/** Uploads a clip. The service measures clips that this browser cannot read, such as HEVC. */
export async function clipOf(file: File, canAnalyse: boolean, sent: Sent, signal?: AbortSignal): Promise<Clip> {
  const seen = await inspect(file, signal).catch(() => undefined);
  signal?.throwIfAborted();
  const assetKey = await upload(file, sent, signal);
  keepFile(assetKey, file);
  if (seen?.picture) return { name: file.name, assetKey, ...seen };
  if (!canAnalyse) throw new Trouble(`This browser cannot read ${file.name}.`);
  const found = await analysed(assetKey, file.name);
  signal?.throwIfAborted();
  if (!found.hasVideo) throw new Trouble(`${file.name} holds no video.`);
  return { name: file.name, assetKey, durationMs: found.durationMs, picture: '' };
}

/** Uploads a sound, or the sound of a video. Refuses a file that the service cannot read before it is in the film. */
export async function soundOf(file: File, canAnalyse: boolean, sent: Sent, signal?: AbortSignal): Promise<{ name: string; assetKey: string }> {
  const assetKey = await upload(file, sent, signal);
  if (canAnalyse) await mustSound(assetKey, file.name);
  signal?.throwIfAborted();
  keepFile(assetKey, file);
  return { name: file.name, assetKey };
}

/** The analysis of a file with sound. */
export async function mustSound(assetKey: string, name: string): Promise<Analysis> {
  const found = await analysed(assetKey, name);
  if (!found.hasAudio) throw new Trouble(`${name} holds no sound that can be read.`);
  return found;
}
