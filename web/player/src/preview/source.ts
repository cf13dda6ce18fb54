// Where the bytes of a file come from, and which of its times the film uses.

import { pause } from '../api';
import type { Input, InputAudioTrack, InputVideoTrack } from 'mediabunny';

/** A failure to fetch a file, which may itself be fine. */
export class Unreachable extends Error {}

/** Tries of one request to the object store. */
const tries = 4;
/** How much of a file is kept in memory while it is open, in bytes. */
const cached = 4 << 20;
/** How many files that nobody reads stay open. */
const rested = 4;

/** A file at an address of the object store, which is valid for some minutes. */
class Remote {
  private url: Promise<URL> | undefined;

  constructor(private ask: () => Promise<URL>) {}

  address(): Promise<URL> {
    const asked = (this.url ??= this.ask());
    asked.catch(() => this.forget(asked));
    return asked;
  }

  /** Asks for a new address the next time. */
  forget(old = this.url): void {
    if (this.url === old) this.url = undefined;
  }

  /** Fetches from the address. Gets a new address if this one has expired, and tries again later if the store is busy. */
  async fetch(init: RequestInit): Promise<Response> {
    for (let attempt = 1; ; attempt++) {
      const asked = this.address();
      const url = await asked;
      const answer = await fetch(url, init).catch((e: unknown) => {
        if (init.signal?.aborted) throw e;
        return undefined;
      });
      if (answer?.ok) return answer;
      if (attempt === tries) throw new Unreachable(`the object store answered ${answer?.status ?? 'nothing'}`);
      const expired = answer && answer.status < 429;
      // Some stores report an expired address without the headers that let a page read their answer.
      if (expired || !answer) this.forget(asked);
      if (!expired) await pause(1000 * (Number(answer?.headers.get('Retry-After')) || attempt));
    }
  }
}

/** An opened file. */
export interface Medium {
  input: Input;
  video: InputVideoTrack | null;
  audio: InputAudioTrack | null;
}

const library = () => import('./mediabunny');

/** The open files that nobody reads, the most recently read one last. */
const resting = new Set<MediaFile>();

/** A file that is opened when it is read, and closed when many others were read since. */
export class MediaFile {
  private opened: Promise<Medium> | undefined;
  private users = 0;
  private remote: Remote | undefined;

  /** Reads a file of this page, or one whose address `bytes` asks for. */
  constructor(private bytes: Blob | (() => Promise<URL>)) {
    if (!(bytes instanceof Blob)) this.remote = new Remote(bytes);
  }

  /** Runs `act` on the opened file. */
  async with<T>(act: (medium: Medium) => Promise<T>): Promise<T> {
    this.users++;
    resting.delete(this);
    try {
      this.opened ??= this.open();
      return await act(await this.opened);
    } catch (e) {
      if (this.users === 1) this.close(); // another try starts afresh
      throw e;
    } finally {
      if (--this.users === 0 && this.opened) resting.add(this);
      for (const file of resting) {
        if (resting.size <= rested) break;
        file.close();
      }
    }
  }

  private async open(): Promise<Medium> {
    const { ADTS, BlobSource, Input, MP3, MP4, QTFF, UrlSource, WAVE, WEBM } = await library();
    const handleUnhandledError = () => {};
    const source =
      this.bytes instanceof Blob
        ? new BlobSource(this.bytes, { maxCacheSize: cached, handleUnhandledError })
        : new UrlSource((await this.remote?.address()) ?? '', {
            maxCacheSize: cached,
            handleUnhandledError,
            fetchFn: (_, init) => this.fetch(init),
            getRetryDelay: (attempts, e) => (e instanceof Unreachable || 'status' in Object(e) || attempts >= tries ? null : attempts),
          });
    const input = new Input({ source, formats: [MP4, QTFF, WEBM, MP3, WAVE, ADTS] });
    try {
      return { input, video: await input.getPrimaryVideoTrack(), audio: await input.getPrimaryAudioTrack() };
    } catch (e) {
      input.dispose();
      throw e;
    }
  }

  private async fetch(init: RequestInit = {}): Promise<Response> {
    return this.remote ? this.remote.fetch(init) : new Response(this.bytes as Blob);
  }

  close(): void {
    resting.delete(this);
    void this.opened?.then(({ input }) => input.dispose(), () => {});
    this.opened = undefined;
  }

  /** The bytes [from, to), or all of them. */
  async read(from = 0, to = Infinity): Promise<ArrayBuffer> {
    if (this.bytes instanceof Blob) return this.bytes.slice(from, Math.min(to, this.bytes.size)).arrayBuffer();
    return (await this.fetch(to < Infinity ? { headers: { Range: `bytes=${from}-${to - 1}` } } : {})).arrayBuffer();
  }

  /** An address for a media element, and a function that releases it. */
  async address(): Promise<{ href: string; remote: boolean; free: () => void }> {
    if (this.remote) return { href: (await this.remote.address()).href, remote: true, free: () => {} };
    const href = URL.createObjectURL(this.bytes as Blob);
    return { href, remote: false, free: () => URL.revokeObjectURL(href) };
  }

  /** Asks for a new address the next time, as the last one may have expired. */
  renew = (): void => this.remote?.forget();
}

/** When things are in a file, in seconds on the clock of the file. */
export interface Times {
  /** The starts of the frames, ascending; none without video. */
  starts: number[];
  /** The indices of the frames from which a decoder can start, ascending. */
  keys: number[];
  /** The time that counts as 0: where the earlier of pictures and sound begins. */
  zero: number;
  /** When the later of pictures and sound ends, counted from zero. */
  end: number;
}

/** The times of a file, as the service has them. An edit list or an encoder's delay hides whatever lies before 0. */
export async function timesOf(file: MediaFile, { input, video, audio }: Medium): Promise<Times> {
  const { ADTS, EncodedPacketSink, MP3 } = await library();
  const metadataOnly = { metadataOnly: true };
  const frames: { at: number; key: boolean }[] = [];
  let [zero, end] = [Infinity, 0];
  if (video) {
    for await (const packet of new EncodedPacketSink(video).packets(undefined, undefined, metadataOnly)) {
      if (packet.timestamp < -1e-7) continue;
      frames.push({ at: packet.timestamp, key: packet.type === 'key' });
      end = Math.max(end, packet.timestamp + packet.duration);
    }
    frames.sort((a, b) => a.at - b.at);
    zero = frames[0]?.at ?? Infinity;
  }
  if (audio) {
    let first = 0;
    for await (const packet of new EncodedPacketSink(audio).packets(undefined, undefined, metadataOnly)) {
      if (packet.timestamp + packet.duration <= 1e-7) continue;
      // A bare stream of AAC does not state its delay: it is a frame.
      first = (await input.getFormat()) === ADTS ? packet.duration : Math.max(0, packet.timestamp);
      break;
    }
    if ((await input.getFormat()) === MP3) first = (await mp3Delay(file)) / (await audio.getSampleRate());
    zero = Math.min(zero, first);
    end = Math.max(end, await audio.computeDuration());
  }
  if (zero === Infinity) zero = 0;
  return { starts: frames.map((f) => f.at), keys: frames.flatMap((f, n) => (f.key ? [n] : [])), zero, end: end - zero };
}

/** The samples at the start of an mp3 that are not heard: what its encoder states, and what every decoder adds. */
async function mp3Delay(file: MediaFile): Promise<number> {
  const decoder = 529;
  const tag = new Uint8Array(await file.read(0, 10));
  const text = (bytes: Uint8Array, at: number, length = 4) => String.fromCharCode(...bytes.subarray(at, at + length));
  let at = 0;
  if (text(tag, 0, 3) === 'ID3') at = 10 + [6, 7, 8, 9].reduce((n, k) => (n << 7) | ((tag[k] ?? 0) & 0x7f), 0);
  const frame = new Uint8Array(await file.read(at, at + 256));
  const [newer, mono] = [((frame[1] ?? 0) & 8) === 8, ((frame[3] ?? 0) & 0xc0) === 0xc0];
  at = 4 + (newer ? (mono ? 17 : 32) : mono ? 9 : 17);
  if (!['Xing', 'Info'].includes(text(frame, at))) return 0;
  const flags = frame[at + 7] ?? 0;
  at += 8 + (flags & 1 ? 4 : 0) + (flags & 2 ? 4 : 0) + (flags & 4 ? 100 : 0) + (flags & 8 ? 4 : 0);
  if (!['LAME', 'Lavf', 'Lavc'].includes(text(frame, at))) return 0;
  return (((frame[at + 21] ?? 0) << 4) | ((frame[at + 22] ?? 0) >> 4)) + decoder;
}
