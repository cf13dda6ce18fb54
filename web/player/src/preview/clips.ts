// The frames of a clip, decoded in this browser: by WebCodecs where there is WebCodecs, else by a video element that
// seeks, else from the service's storyboard.

import type { Picture } from './draw';
import type { ClipFacts } from './plan';

/** Where the bytes of a file are: in this page, or at an address that answers ranges. */
export type Bytes = Blob | URL;

/** What the service knows of a clip that this browser cannot read. */
export interface Described {
  durationMs: number;
  width: number;
  height: number;
  frameRate: number;
}

export interface ClipFrames {
  facts: ClipFacts;
  /** How the frames are had: exactly, or as near as a storyboard comes. */
  by: 'decoder' | 'video' | 'storyboard';
  /** A decoded frame, if it is at hand. */
  at(frame: number): Picture | undefined;
  /** Decodes a frame and some after it. Only the latest call counts. */
  want(frame: number): void;
  /** Receives every decoded frame's index. */
  onFrame: (frame: number) => void;
  close(): void;
}

/** The longer side of the decoded pictures that are kept, in pixels. */
const keptSide = 720;
/** How many pictures of a clip are kept, and how many are decoded ahead of the playhead. */
const kept = 90;
const ahead = 24;

class Pictures {
  private all = new Map<number, Picture>();

  at = (frame: number): Picture | undefined => this.all.get(frame);

  add(frame: number, picture: Picture): void {
    this.all.set(frame, picture);
    for (const oldest of this.all.keys()) {
      if (this.all.size <= kept) return;
      this.drop(oldest);
    }
  }

  private drop(frame: number): void {
    const image = this.all.get(frame)?.image;
    if (image instanceof ImageBitmap) image.close();
    this.all.delete(frame);
  }

  clear(): void {
    for (const frame of [...this.all.keys()]) this.drop(frame);
  }
}

/** The size at which a picture is kept. */
function keptSize(width: number, height: number): [width: number, height: number] {
  const scale = Math.min(1, keptSide / Math.max(width, height));
  return [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
}

const library = () => import('./mediabunny');

/** Opens a clip. `storyboard` fetches the service's tiles of it. */
export async function openClip(bytes: Bytes, describe: () => Promise<Described>, storyboard: () => Promise<Blob>): Promise<ClipFrames> {
  if ('VideoDecoder' in globalThis) {
    const decoded = await byDecoder(bytes).catch(() => undefined);
    if (decoded) return decoded;
  }
  const about = await describe();
  return (await byVideo(bytes, about).catch(() => undefined)) ?? byStoryboard(about, await storyboard());
}

async function byDecoder(bytes: Bytes): Promise<ClipFrames | undefined> {
  const { ADTS, BlobSource, EncodedPacketSink, Input, MP3, MP4, QTFF, UrlSource, VideoSampleSink, WAVE, WEBM } = await library();
  const source = bytes instanceof Blob ? new BlobSource(bytes) : new UrlSource(bytes);
  const input = new Input({ source, formats: [MP4, QTFF, WEBM, MP3, WAVE, ADTS] });
  const track = await input.getPrimaryVideoTrack();
  if (!track || !(await track.canDecode())) {
    input.dispose();
    return undefined;
  }
  const starts: number[] = [];
  let end = 0;
  for await (const packet of new EncodedPacketSink(track).packets(undefined, undefined, { metadataOnly: true })) {
    starts.push(packet.timestamp);
    end = Math.max(end, packet.timestamp + packet.duration);
  }
  starts.sort((a, b) => a - b);
  const audio = await input.getPrimaryAudioTrack();
  const [picture = 0] = starts;
  const sound = audio ? await audio.getFirstTimestamp() : Infinity;
  // Sound begins a little before 0 where an encoder's delay precedes it, which is not heard.
  const zero = picture >= 0 && sound < 0 && sound > -0.2 ? 0 : Math.min(picture, sound);
  if (audio) end = Math.max(end, await audio.computeDuration());
  const [width, height] = [await track.getDisplayWidth(), await track.getDisplayHeight()];
  const facts: ClipFacts = { width, height, starts, zero, end: end - zero };
  return new Decoder(facts, new VideoSampleSink(track), () => input.dispose());
}

type Sink = { samples: InstanceType<typeof import('./mediabunny').VideoSampleSink>['samples'] };

/** Reads frames in order from the one that was asked for last. A jump forward within reach reads on. */
class Decoder implements ClipFrames {
  by = 'decoder' as const;
  onFrame: (frame: number) => void = () => {};
  private pictures = new Pictures();
  private wanted = -1;
  private running = false;
  private closed = false;

  constructor(
    readonly facts: ClipFacts,
    private sink: Sink,
    private dispose: () => void,
  ) {}

  at = (frame: number) => this.pictures.at(frame);

  want(frame: number): void {
    this.wanted = frame;
    if (!this.running && !this.closed) void this.run();
  }

  /** Whether a frame from the wanted one on is still missing, so that reading goes on. */
  private missing(): number | undefined {
    const last = Math.min(this.facts.starts.length, this.wanted + ahead);
    for (let n = Math.max(0, this.wanted); n < last; n++) if (!this.at(n)) return n;
    return undefined;
  }

  private async run(): Promise<void> {
    this.running = true;
    try {
      for (let from = this.missing(); from !== undefined && !this.closed; from = this.missing()) {
        if (!(await this.read(from))) break;
      }
    } catch {
      // The file's address has expired, or the file is damaged: what was decoded stays.
    }
    this.running = false;
  }

  /** Decodes frames in order, until the wanted ones are there or lie elsewhere. Reports whether it read any. */
  private async read(from: number): Promise<boolean> {
    const { starts } = this.facts;
    let n = from;
    for await (const sample of this.sink.samples((starts[from] ?? 0) + 1e-6)) {
      while (n + 1 < starts.length && (starts[n + 1] ?? 0) <= sample.timestamp + 1e-4) n++;
      const [width, height] = keptSize(sample.displayWidth, sample.displayHeight);
      const canvas = new OffscreenCanvas(width, height);
      const ctx = canvas.getContext('2d');
      if (ctx) sample.draw(ctx, 0, 0, width, height);
      sample.close();
      this.pictures.add(n, { image: canvas.transferToImageBitmap(), width, height });
      this.onFrame(n);
      n++;
      const next = this.missing();
      if (this.closed || next === undefined || next < n || next > n + ahead) return true;
    }
    return n > from;
  }

  close(): void {
    this.closed = true;
    this.pictures.clear();
    this.dispose();
  }
}

/** The facts of a clip of which only the service's analysis is known: its frames are taken to be even. */
function evenFacts({ durationMs, width, height, frameRate }: Described): ClipFacts {
  const count = Math.max(1, Math.round((durationMs / 1000) * frameRate));
  return { width, height, starts: Array.from({ length: count }, (_, n) => n / frameRate), zero: 0, end: durationMs / 1000 };
}

async function byVideo(bytes: Bytes, about: Described): Promise<ClipFrames> {
  const video = document.createElement('video');
  video.muted = true;
  video.preload = 'auto';
  video.playsInline = true;
  const address = bytes instanceof Blob ? URL.createObjectURL(bytes) : bytes.href;
  if (!(bytes instanceof Blob)) video.crossOrigin = 'anonymous';
  const close = () => {
    video.removeAttribute('src');
    if (bytes instanceof Blob) URL.revokeObjectURL(address);
  };
  const event = (name: string) =>
    new Promise<void>((done, failed) => {
      video.addEventListener(name, () => done(), { once: true });
      video.addEventListener('error', () => failed(new Error('this browser cannot read the clip')), { once: true });
    });
  const ready = event('loadeddata');
  video.src = address;
  await ready.catch((e: Error) => {
    close();
    throw e;
  });
  if (!video.videoWidth) {
    close();
    throw new Error('this browser shows no picture of the clip');
  }
  const facts = evenFacts({ ...about, width: video.videoWidth, height: video.videoHeight });
  const pictures = new Pictures();
  let [wanted, running] = [-1, false];
  const frames: ClipFrames = {
    by: 'video',
    facts,
    at: pictures.at,
    onFrame: () => {},
    want(frame) {
      wanted = frame;
      if (!running) void run();
    },
    close() {
      wanted = -1;
      pictures.clear();
      close();
    },
  };
  async function run() {
    running = true;
    for (let frame = wanted; frame >= 0 && !pictures.at(frame); frame = wanted) {
      const sought = event('seeked');
      video.currentTime = (facts.starts[frame] ?? 0) + 0.4 / about.frameRate;
      await sought;
      const [width, height] = keptSize(video.videoWidth, video.videoHeight);
      pictures.add(frame, { image: await createImageBitmap(video, { resizeWidth: width, resizeHeight: height }), width, height });
      frames.onFrame(frame);
    }
    running = false;
  }
  return frames;
}

/** How many tiles a storyboard is asked for. */
export const tiles = 60;

async function byStoryboard(about: Described, jpeg: Blob): Promise<ClipFrames> {
  const strip = await createImageBitmap(jpeg);
  const width = strip.width / tiles;
  const facts = evenFacts(about);
  const cut = await Promise.all(Array.from({ length: tiles }, (_, k) => createImageBitmap(strip, Math.round(k * width), 0, Math.floor(width), strip.height)));
  strip.close();
  return {
    by: 'storyboard',
    facts,
    at(frame) {
      const image = cut[Math.min(tiles - 1, Math.floor((frame * tiles) / facts.starts.length))];
      // The tiles are even, so their aspect is a little off: the clip's own decides.
      return image && { image, width: facts.width, height: facts.height };
    },
    onFrame: () => {},
    want: () => {},
    close: () => cut.forEach((image) => image.close()),
  };
}

