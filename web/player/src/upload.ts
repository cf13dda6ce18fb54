// Uploads by reference: hashed here, then sent straight to the object store, large
// files in parts that are sent again one by one when a connection breaks.

import { sha256 } from '@noble/hashes/sha2.js';
import { bytesToHex } from '@noble/hashes/utils.js';
import { answer, api, pause, type Schemas } from './api';
import { Trouble } from './errors';

const types: Record<string, string> = {
  mp4: 'video/mp4', m4v: 'video/mp4', mov: 'video/quicktime', webm: 'video/webm',
  m4a: 'audio/mp4', mp3: 'audio/mpeg', wav: 'audio/wav', aac: 'audio/aac',
}; // prettier-ignore

const parallel = 3;
const tries = 4;

/** Receives how much of a file is hashed or sent, from 0 to 1. */
export type Sent = (part: number) => void;

/** Uploads a file, unless it was uploaded before. A repeat continues an interrupted upload. */
export async function upload(file: File, sent: Sent): Promise<string> {
  const ext = file.name.split('.').pop()?.toLowerCase() ?? '';
  const contentType = types[ext];
  if (!contentType) throw new Trouble(`${file.name} is not one of these: ${Object.keys(types).join(', ')}.`);
  const sha256Hex = await digest(file);
  const body = { sha256Hex, sizeBytes: file.size, ext, contentType, multipart: file.size > 32 << 20 };
  for (let attempt = 1; ; attempt++) {
    const to = await answer(api.POST('/api/v2/assets/upload-url', { body }));
    if (to.alreadyExists) return to.assetKey;
    try {
      if (to.uploadUrl) await put(to.uploadUrl, file, contentType, sent);
      else await putParts(file, to, sent);
      return to.assetKey;
    } catch (e) {
      // The next answer says which parts have arrived, with fresh addresses.
      if (attempt === tries) throw e;
      await pause(1000 * 2 ** attempt);
    }
  }
}

async function digest(file: File): Promise<string> {
  const hash = sha256.create();
  const step = 1 << 22;
  for (let at = 0; at < file.size; at += step) hash.update(new Uint8Array(await file.slice(at, at + step).arrayBuffer()));
  return bytesToHex(hash.digest());
}

async function putParts(file: File, to: Schemas['AssetUploadUrlResponse'], sent: Sent): Promise<void> {
  const { parts = [], partSizeBytes = 0, uploadId = '' } = to;
  const arrived = parts.map((part) => (part.done ? part.sizeBytes : 0));
  const tell = () => sent(arrived.reduce((sum, n) => sum + n, 0) / file.size);
  const waiting = parts.filter((part) => !part.done);
  const send = async () => {
    for (let part = waiting.shift(); part; part = waiting.shift()) {
      const { partNumber, url, sizeBytes } = part;
      const from = (partNumber - 1) * partSizeBytes;
      await put(url, file.slice(from, from + sizeBytes), '', (share) => {
        arrived[partNumber - 1] = share * sizeBytes;
        tell();
      });
    }
  };
  await Promise.all(Array.from({ length: parallel }, send));
  await answer(api.POST('/api/v2/assets/complete', { body: { uploadId } }));
}

/** One PUT; unlike fetch, XMLHttpRequest reports the progress. */
function put(url: string, bytes: Blob, contentType: string, sent: Sent): Promise<void> {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open('PUT', url);
    if (contentType) request.setRequestHeader('Content-Type', contentType);
    request.upload.onprogress = (e) => sent(e.loaded / e.total);
    request.onload = () =>
      request.status === 200 ? done() : failed(new Trouble('The object store refused the upload. Try again.', '', true));
    request.onerror = () => failed(new Trouble('The upload broke off. Try again: it goes on where it stopped.', '', true));
    request.send(bytes);
  });
}
