// Uploads by reference: hashed on the device, then sent straight to the object store, large files in parts that are
// sent again one by one when a connection breaks.

import { sha256 } from '@noble/hashes/sha2.js';
import { bytesToHex } from '@noble/hashes/utils.js';
import type { components } from '../../api/schema.js';
import type { Cutroom } from './client.js';
import { parallelParts, partsAboveBytes, types, uploadTries } from './contract.js';
import { CutroomError } from './errors.js';
import { pageOf, type Page } from './jobs.js';
import { check, onAbort, pause } from './pause.js';

/** A file of the device: a Blob, or anything that can be read in pieces. */
export type Source = Blob | { size: number; slice(from: number, to: number): { arrayBuffer(): Promise<ArrayBuffer> } };

/** Receives how much of a file has been sent, from 0 to 1. */
export type Progress = (share: number) => void;

type Slot = components['schemas']['AssetUploadUrlResponse'];

/** How much is read at a time to compute the hash, in bytes. */
const step = 1 << 22;

export class Assets {
  constructor(private cutroom: Cutroom) {}

  /** The file name extensions that can be uploaded. */
  static readonly extensions = Object.keys(types);

  /** The files that the user has uploaded. */
  list = (page: Page = {}) => this.cutroom.answer(this.cutroom.api.GET('/api/v2/assets', pageOf(page)));

  /**
   * Uploads a file, unless the server has it, and returns its asset key. A repeated call continues an interrupted
   * upload in parts. Throws a CutroomError with the field `ext` if the name's extension is none of `extensions`, and
   * the signal's reason if that ends the upload. A connection on which nothing moves for a minute is given up.
   */
  async upload(file: Source, name: string, progress: Progress = () => {}, signal?: AbortSignal): Promise<string> {
    const { api, answer } = this.cutroom;
    const ext = name.split('.').pop()?.toLowerCase() ?? '';
    const contentType = types[ext];
    if (!contentType) throw new CutroomError(400, { error: `ext must be one of ${Assets.extensions.join(', ')}`, field: 'ext' });
    const body = { sha256Hex: await digest(file, signal), sizeBytes: file.size, ext, contentType, multipart: file.size > partsAboveBytes };
    for (let attempt = 1; ; attempt++) {
      const slot = await answer(api.POST('/api/v2/assets/upload-url', { body, ...(signal && { signal }) }));
      try {
        if (slot.uploadUrl) await put(slot.uploadUrl, await piece(file, 0, file.size), contentType, progress, signal);
        else if (!slot.alreadyExists) await this.putParts(file, slot, progress, signal);
        progress(1);
        return slot.assetKey;
      } catch (e) {
        check(signal);
        // The next answer says which parts have arrived, with fresh addresses.
        if (attempt === uploadTries || (e instanceof CutroomError && e.next === 'fix')) throw e;
        await pause(500 * 2 ** attempt, signal);
      }
    }
  }

  private async putParts(file: Source, slot: Slot, progress: Progress, signal?: AbortSignal): Promise<void> {
    const { parts = [], partSizeBytes = 0, uploadId = '' } = slot;
    const arrived = parts.map((part) => (part.done ? part.sizeBytes : 0));
    const waiting = parts.filter((part) => !part.done);
    // A part that fails ends the others: the next try would send them a second time.
    const stop = new AbortController();
    const forget = onAbort(signal, () => stop.abort());
    const send = async () => {
      for (let part = waiting.shift(); part; part = waiting.shift()) {
        const { partNumber, url, sizeBytes } = part;
        const from = (partNumber - 1) * partSizeBytes;
        await put(url, await piece(file, from, from + sizeBytes), '', (share) => {
          arrived[partNumber - 1] = share * sizeBytes;
          progress(arrived.reduce((sum, n) => sum + n, 0) / file.size);
        }, stop.signal);
      }
    };
    try {
      await Promise.all(Array.from({ length: parallelParts }, send));
    } finally {
      stop.abort();
      forget();
    }
    await this.cutroom.answer(this.cutroom.api.POST('/api/v2/assets/complete', { body: { uploadId }, ...(signal && { signal }) }));
  }
}

/** A piece of a file as a request's body. A Blob is not read into memory. */
async function piece(file: Source, from: number, to: number): Promise<Blob | ArrayBuffer> {
  const part = file.slice(from, to);
  return typeof Blob !== 'undefined' && part instanceof Blob ? part : part.arrayBuffer();
}

async function digest(file: Source, signal?: AbortSignal): Promise<string> {
  const hash = sha256.create();
  for (let at = 0; at < file.size; at += step, check(signal)) hash.update(new Uint8Array(await file.slice(at, Math.min(file.size, at + step)).arrayBuffer()));
  return bytesToHex(hash.digest());
}

/** How long nothing may move in a PUT, in milliseconds, and the slowest speed of one whose progress is unknown, in bytes per second. */
const stalled = 60_000;
const slowest = 50_000;

/** One PUT, without the access token. Where there is XMLHttpRequest, it reports the progress; fetch cannot. */
async function put(url: string, bytes: Blob | ArrayBuffer, contentType: string, progress: Progress, signal?: AbortSignal): Promise<void> {
  const refused = new CutroomError(0, { error: 'the object store did not take the upload' });
  const control = new AbortController();
  const stop = () => control.abort();
  const forget = onAbort(signal, stop);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const allow = (ms: number) => {
    clearTimeout(timer);
    timer = setTimeout(stop, ms);
  };
  try {
    if (typeof XMLHttpRequest === 'undefined') {
      allow(stalled + (1000 * (bytes instanceof ArrayBuffer ? bytes.byteLength : bytes.size)) / slowest);
      const headers: Record<string, string> = contentType ? { 'Content-Type': contentType } : {};
      const done = await fetch(url, { method: 'PUT', body: bytes, headers, signal: control.signal }).catch(() => undefined);
      check(signal);
      if (!done?.ok) throw refused;
      return progress(1);
    }
    allow(stalled);
    await new Promise<void>((done, failed) => {
      const request = new XMLHttpRequest();
      request.open('PUT', url);
      if (contentType) request.setRequestHeader('Content-Type', contentType);
      request.upload.onprogress = (e) => {
        allow(stalled);
        progress(e.loaded / e.total);
      };
      request.onload = () => (request.status === 200 ? done() : failed(refused));
      request.onerror = request.onabort = () => failed(refused);
      request.send(bytes);
      onAbort(control.signal, () => request.abort());
    });
  } finally {
    clearTimeout(timer);
    forget();
  }
}
