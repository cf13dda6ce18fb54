// Sound as samples: decoding a file, and playing it at another tempo.

import type { Bytes } from './clips';

export const sampleRate = 48_000;

/** Stereo samples at `sampleRate`; the first one is at the file's time 0. */
export interface Pcm {
  left: Float32Array;
  right: Float32Array;
}

export const silence: Pcm = { left: new Float32Array(0), right: new Float32Array(0) };

/** Decodes a file's sound, silence if it has none. */
export async function decode(bytes: Bytes): Promise<Pcm> {
  if ('AudioDecoder' in globalThis) {
    const decoded = await byDecoder(bytes).catch(() => undefined);
    if (decoded) return decoded;
  }
  const data = bytes instanceof Blob ? await bytes.arrayBuffer() : await (await fetch(bytes)).arrayBuffer();
  const ctx = new OfflineAudioContext(2, 1, sampleRate);
  return ctx.decodeAudioData(data).then(pcmOf, () => silence);
}

const pcmOf = (buffer: AudioBuffer): Pcm => {
  const left = buffer.getChannelData(0);
  return { left, right: buffer.numberOfChannels > 1 ? buffer.getChannelData(1) : left };
};

async function byDecoder(bytes: Bytes): Promise<Pcm | undefined> {
  const { ADTS, AudioBufferSink, BlobSource, Input, MP3, MP4, QTFF, UrlSource, WAVE, WEBM } = await import('./mediabunny');
  const source = bytes instanceof Blob ? new BlobSource(bytes) : new UrlSource(bytes);
  const input = new Input({ source, formats: [MP4, QTFF, WEBM, MP3, WAVE, ADTS] });
  try {
    const track = await input.getPrimaryAudioTrack();
    if (!track) return silence;
    if (!(await track.canDecode())) return undefined;
    const video = await input.getPrimaryVideoTrack();
    const zero = Math.min(await track.getFirstTimestamp(), video ? await video.getFirstTimestamp() : Infinity);
    const pieces: { at: number; buffer: AudioBuffer }[] = [];
    for await (const { buffer, timestamp } of new AudioBufferSink(track).buffers()) pieces.push({ at: timestamp - zero, buffer });
    const rate = pieces[0]?.buffer.sampleRate ?? sampleRate;
    const length = Math.max(1, ...pieces.map((p) => Math.round(p.at * rate) + p.buffer.length));
    const whole = new AudioBuffer({ length, numberOfChannels: 2, sampleRate: rate });
    for (const { at, buffer } of pieces) {
      const { left, right } = pcmOf(buffer);
      // What lies before time 0 is the encoder's padding.
      const from = Math.round(at * rate);
      whole.copyToChannel(left.subarray(Math.max(0, -from)) as Float32Array<ArrayBuffer>, 0, Math.max(0, from));
      whole.copyToChannel(right.subarray(Math.max(0, -from)) as Float32Array<ArrayBuffer>, 1, Math.max(0, from));
    }
    return pcmOf(rate === sampleRate ? whole : await resampled(whole));
  } finally {
    input.dispose();
  }
}

async function resampled(buffer: AudioBuffer): Promise<AudioBuffer> {
  const ctx = new OfflineAudioContext(2, Math.ceil(buffer.duration * sampleRate), sampleRate);
  const node = ctx.createBufferSource();
  node.buffer = buffer;
  node.connect(ctx.destination);
  node.start();
  return ctx.startRendering();
}

const windowSize = 2048;
const hop = windowSize / 2;
const reach = 512; // samples within which the best overlap is looked for

/**
 * Plays the samples from `from` (a fraction is cut off) at a tempo for `length` samples, without a change of pitch: windows
 * that overlap by half, each moved to where it continues the last one best (WSOLA; Verhelst and Roelands, 1993).
 */
export function stretched(pcm: Pcm, from: number, tempo: number, length: number): Pcm {
  const out: Pcm = { left: new Float32Array(length + windowSize), right: new Float32Array(length + windowSize) };
  const shape = Float32Array.from({ length: windowSize }, (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / windowSize));
  let follow = Math.floor(from); // where the last window would go on
  for (let at = -hop; at < length; at += hop) {
    const ideal = Math.floor(from + at * tempo);
    const begin = at < 0 ? ideal : bestNear(pcm.left, ideal, follow);
    for (let i = Math.max(0, -at); i < windowSize && at + i < length; i++) {
      const gain = shape[i] ?? 0;
      out.left[at + i] = (out.left[at + i] ?? 0) + gain * (pcm.left[begin + i] ?? 0);
      out.right[at + i] = (out.right[at + i] ?? 0) + gain * (pcm.right[begin + i] ?? 0);
    }
    follow = begin + hop;
  }
  return { left: out.left.subarray(0, length), right: out.right.subarray(0, length) };
}

/** The start near `ideal` whose samples are most like those at `follow`. */
function bestNear(samples: Float32Array, ideal: number, follow: number): number {
  let [best, likeness] = [ideal, -Infinity];
  for (let shift = -reach; shift <= reach; shift += 8) {
    let sum = 0;
    for (let i = 0; i < hop; i += 8) sum += (samples[ideal + shift + i] ?? 0) * (samples[follow + i] ?? 0);
    if (sum > likeness) [best, likeness] = [ideal + shift, sum];
  }
  return best;
}
