// Sound as samples: decoding a file, and playing it at another tempo.

import { timesOf, Unreachable, type MediaFile } from './source';

export const sampleRate = 48_000;

/** Stereo samples of a stretch of a file, at `sampleRate`. */
export interface Pcm {
  left: Float32Array | Int16Array;
  right: Float32Array | Int16Array;
  /** What a sample is multiplied by, so that full scale is 1. */
  scale: number;
  /** The number of the first sample, counted from the file's time 0. */
  begin: number;
  /** How many samples the whole file has. */
  total: number;
}

export const silence: Pcm = { left: new Float32Array(0), right: new Float32Array(0), scale: 1, begin: 0, total: 0 };

/** Decoded sound is kept in 16 bits, half of what floats take, with room for peaks of twice full scale. */
const steps = 16_384;
const store = (v: number): number => Math.max(-32_768, Math.min(32_767, Math.round(v * steps)));

/** A sound that this browser can only decode as a whole, which would take too much memory. */
export class TooLong extends Error {}
/** How long such a file may be, in seconds: 460 MB in stereo. */
const mostWhole = 1200;

/** Decodes a stretch of a file's sound, silence if it has none. Throws the failures of the network and the service. */
export async function decode(file: MediaFile, from: number, to: number): Promise<Pcm> {
  if ('AudioDecoder' in globalThis) {
    const decoded = await byDecoder(file, from, to).catch((e: unknown) => {
      if (e instanceof Unreachable || 'status' in Object(e)) throw e;
      return undefined;
    });
    if (decoded) return decoded;
  }
  const seconds = await file.with(async ({ audio }) => (await audio?.computeDuration()) ?? 0).catch(() => 0);
  if (seconds > mostWhole) throw new TooLong();
  const data = await file.read();
  const ctx = new OfflineAudioContext(2, 1, sampleRate);
  const whole = await ctx.decodeAudioData(data).catch(() => undefined);
  if (!whole) return silence;
  const out = new Recording(from, to, whole.length, sampleRate);
  out.add(0, ...sidesOf(whole));
  return out.pcm();
}

const sidesOf = (buffer: AudioBuffer): [left: Float32Array, right: Float32Array] => {
  const left = buffer.getChannelData(0);
  return [left, buffer.numberOfChannels > 1 ? buffer.getChannelData(1) : left];
};

/** How long before a stretch its decoder starts, in seconds: a frame needs the one before it. */
const lead = 0.5;

const byDecoder = (file: MediaFile, from: number, to: number): Promise<Pcm | undefined> =>
  file.with(async (medium) => {
    const { audio } = medium;
    if (!audio) return silence;
    if (!(await audio.canDecode())) return undefined;
    const { AudioBufferSink } = await import('./mediabunny');
    const { zero } = await timesOf(file, medium);
    const total = Math.max(1, Math.ceil(((await audio.computeDuration()) - zero) * sampleRate));
    let out: Recording | undefined;
    for await (const { buffer, timestamp } of new AudioBufferSink(audio).buffers(from ? zero + from - lead : undefined, zero + to)) {
      out ??= new Recording(from, to, total, buffer.sampleRate);
      // What lies before time 0 is not heard.
      out.add(Math.round((timestamp - zero) * buffer.sampleRate), ...sidesOf(buffer));
    }
    return (out ?? new Recording(from, to, total, sampleRate)).pcm();
  });

/** A stretch of sound that arrives piece by piece at the rate of its file. */
class Recording {
  private left: Int16Array;
  private right: Int16Array;
  private begin: number;
  /** The position after the last piece, and its last samples. */
  private end = NaN;
  private last = [0, 0];
  private stereo = false;

  constructor(
    from: number,
    to: number,
    private total: number,
    private rate: number,
  ) {
    this.begin = Math.min(total, from * sampleRate);
    const length = Math.min(total, to * sampleRate) - this.begin;
    this.left = new Int16Array(length);
    this.right = new Int16Array(length);
  }

  /** Adds a piece whose first sample is number `first` of the file. Another rate is interpolated. */
  add(first: number, left: Float32Array, right: Float32Array): void {
    const ratio = this.rate / sampleRate;
    const from = first - this.begin * ratio;
    const goesOn = from === this.end;
    this.stereo ||= left !== right;
    const last = from + left.length - 1;
    for (let i = Math.max(0, Math.ceil((goesOn ? from - 1 : from) / ratio)); i * ratio <= last && i < this.left.length; i++) {
      const at = i * ratio - from;
      const k = Math.floor(at);
      const between = (side: Float32Array, before: number) => {
        const a = k < 0 ? before : (side[k] ?? 0);
        return store(a + (at - k) * ((side[k + 1] ?? a) - a));
      };
      this.left[i] = between(left, this.last[0] ?? 0);
      if (this.stereo) this.right[i] = between(right, this.last[1] ?? 0);
    }
    this.end = from + left.length;
    this.last = [left[left.length - 1] ?? 0, right[right.length - 1] ?? 0];
  }

  pcm(): Pcm {
    return { left: this.left, right: this.stereo ? this.right : this.left, scale: 1 / steps, begin: this.begin, total: this.total };
  }
}

const windowSize = 2048;
const hop = windowSize / 2;
const reach = 512; // samples within which the best overlap is looked for

/** The samples before `end` backwards, as many as that. */
export function reversed({ left, right, scale, begin }: Pcm, end: number, length: number): Pcm {
  const turn = (side: Pcm['left']) => {
    const out = side instanceof Int16Array ? new Int16Array(length) : new Float32Array(length);
    for (let i = 0; i < length; i++) out[i] = side[end - 1 - i - begin] ?? 0;
    return out;
  };
  const turned = turn(left);
  return { left: turned, right: right === left ? turned : turn(right), scale, begin: 0, total: length };
}

/**
 * Plays sound for `length` samples at another tempo, without a change of pitch: windows that overlap by half, each moved to
 * where it continues the last one best (WSOLA; Verhelst and Roelands, 1993). `sourceAt` says which sample plays when; a
 * fraction is cut off.
 */
export function stretched(pcm: Pcm, sourceAt: (sample: number) => number, length: number): Pcm {
  const out = { left: new Float32Array(length + windowSize), right: new Float32Array(length + windowSize) };
  const shape = Float32Array.from({ length: windowSize }, (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / windowSize));
  let follow = Math.floor(sourceAt(0)) - pcm.begin; // where the last window would go on
  for (let at = -hop; at < length; at += hop) {
    const ideal = Math.floor(sourceAt(at)) - pcm.begin;
    const begin = at < 0 ? ideal : bestNear(pcm.left, ideal, follow);
    for (let i = Math.max(0, -at); i < windowSize && at + i < length; i++) {
      const gain = shape[i] ?? 0;
      out.left[at + i] = (out.left[at + i] ?? 0) + gain * (pcm.left[begin + i] ?? 0);
      out.right[at + i] = (out.right[at + i] ?? 0) + gain * (pcm.right[begin + i] ?? 0);
    }
    follow = begin + hop;
  }
  return { left: out.left.subarray(0, length), right: out.right.subarray(0, length), scale: pcm.scale, begin: 0, total: length };
}

/** The start near `ideal` whose samples are most like those at `follow`. */
function bestNear(samples: Pcm['left'], ideal: number, follow: number): number {
  let [best, likeness] = [ideal, -Infinity];
  for (let shift = -reach; shift <= reach; shift += 8) {
    let sum = 0;
    for (let i = 0; i < hop; i += 8) sum += (samples[ideal + shift + i] ?? 0) * (samples[follow + i] ?? 0);
    if (sum > likeness) [best, likeness] = [ideal + shift, sum];
  }
  return best;
}
