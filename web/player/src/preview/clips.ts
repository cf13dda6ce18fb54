// The frames of a clip: decoded in this browser by WebCodecs; where it has no decoder, or that gives up, shown by a
// video element that seeks; else from the service's storyboard.

import type { VideoSampleSink } from 'mediabunny';
import type { Picture } from './draw';
import type { ClipFacts } from './plan';
import { timesOf, Unreachable, type MediaFile } from './source';

/** What the service knows of a clip that this browser cannot read. */
export interface Described {
  durationMs: number;
  width: number;
  height: number;
  frameRate: number;
}

/** What a clip is made of. */
export interface ClipSource {
  file: MediaFile;
  /** The service's knowledge of the clip. */
  describe: () => Promise<Described>;
  /** Fetches the service's tiles of the clip. */
  storyboard: () => Promise<Blob>;
  /** Called when there is a new picture, or when none will come. */
  changed: () => void;
}

/** How frames are obtained: exactly, or as close as a storyboard comes. */
type By = 'decoder' | 'video' | 'storyboard';

/**
 * A way to get the pictures of a clip. A slot is one of its readers: only the latest frame that a slot wants counts, and
 * -1 is none.
 */
interface Way {
  by: By;
  want(frame: number, slot: number, backwards: boolean): void;
  at(frame: number): Picture | undefined;
  close(): void;
}

/** The longer side of the decoded pictures that are kept, in pixels. */
const keptSide = 720;
/** How many pictures are decoded ahead of the playhead. Backwards they are decoded in blocks of this size. */
const ahead = 24;
/** How far back a picture that stands in for a late one may lie, in frames. */
const lateReach = 90;
/** How often a picture that comes too late is shown, in milliseconds: the film moves, though not smoothly. */
const lateEvery = 120;
/** How long a decoder waits for the next request before it is closed, in milliseconds. */
const idle = 2000;

/** The decoded pictures of all clips. The least recently used make room for new ones. */
export class Pictures {
  private all = new Map<string, Picture>();
  private bytes = 0;

  /** `budget` is the memory of all pictures, in bytes. */
  constructor(private budget = 180e6) {}

  has = (name: string): boolean => this.all.has(name);

  get(name: string): Picture | undefined {
    const found = this.all.get(name);
    if (!found) return undefined;
    this.all.delete(name);
    this.all.set(name, found);
    return found;
  }

  add(name: string, picture: Picture): void {
    this.drop(name);
    this.all.set(name, picture);
    this.bytes += sizeOf(picture);
    for (const oldest of this.all.keys()) {
      if (this.bytes <= this.budget) return;
      this.drop(oldest);
    }
  }

  private drop(name: string): void {
    const picture = this.all.get(name);
    if (!picture) return;
    if (picture.image instanceof ImageBitmap) picture.image.close();
    this.bytes -= sizeOf(picture);
    this.all.delete(name);
  }

  clear(prefix = ''): void {
    for (const name of [...this.all.keys()]) if (name.startsWith(prefix)) this.drop(name);
  }
}

const sizeOf = ({ width, height }: Picture): number => 4 * width * height;

/** The size at which a picture is kept. */
function keptSize(width: number, height: number): [width: number, height: number] {
  const scale = Math.min(1, keptSide / Math.max(width, height));
  return [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
}

/** The number of clips that were opened, which tells their pictures apart. */
let opened = 0;

/** A clip whose frames are known, and whose pictures arrive one by one. */
export class Clip {
  /** A sentence that says why no picture comes. */
  trouble: unknown;
  private way: Way | undefined;
  private wanted = new Map<number, { frame: number; backwards: boolean }>();
  private closed = false;

  private constructor(
    readonly facts: ClipFacts,
    private source: ClipSource,
    private ways: ((clip: Clip) => Way | Promise<Way>)[],
  ) {}

  /** Opens a clip. Throws the failures of the network and the service. */
  static async open(source: ClipSource, pictures: Pictures): Promise<Clip> {
    const { file } = source;
    const read = await file
      .with(async (medium) => {
        const { video } = medium;
        if (!video) return undefined;
        const { keys, ...times } = await timesOf(file, medium);
        if (!times.starts.length) return undefined;
        const facts: ClipFacts = { ...times, width: await video.getDisplayWidth(), height: await video.getDisplayHeight() };
        return { facts, keys, decodes: 'VideoDecoder' in globalThis && (await video.canDecode()) };
      })
      .catch((e: unknown) => {
        if (e instanceof Unreachable || !(e instanceof Error) || 'status' in e) throw e;
        return undefined; // this browser cannot read it
      });
    const facts = read?.facts ?? evenFacts(await source.describe());
    const prefix = `${opened++} `;
    const clip = new Clip(facts, source, [
      (c) => new VideoWay(facts, file, pictures, prefix, source.changed, (e) => c.giveUp(e)),
      () => storyboardWay(facts, source),
    ]);
    if (read?.decodes) clip.way = new Decoder(facts, read.keys, file, pictures, prefix, source.changed, (e) => clip.giveUp(e));
    else await clip.goOn();
    return clip;
  }

  get by(): By | undefined {
    return this.way?.by;
  }

  at = (frame: number): Picture | undefined => this.way?.at(frame);

  /** The latest picture that is there, of this frame or one shown before it. */
  before(frame: number, backwards: boolean): Picture | undefined {
    for (let k = 0; k < lateReach; k++) {
      const picture = this.at(backwards ? frame + k : frame - k);
      if (picture) return picture;
    }
    return undefined;
  }

  /** Asks for a frame and some after it, or before it. Only the latest call of a slot counts. */
  want(frame: number, slot: number, backwards = false): void {
    this.wanted.set(slot, { frame, backwards });
    if (!this.trouble) this.way?.want(frame, slot, backwards);
  }

  /** Drops the requests of all slots but these, so that they take no processor time from the pictures that are shown. */
  rest(slots: Set<number>): void {
    for (const slot of this.wanted.keys()) {
      if (slots.has(slot)) continue;
      this.wanted.delete(slot);
      this.way?.want(-1, slot, false);
    }
  }

  /** Retries whatever failed. */
  again(): void {
    if (!this.trouble) return;
    this.trouble = undefined;
    if (!this.way) void this.goOn();
    for (const [slot, { frame, backwards }] of this.wanted) this.want(frame, slot, backwards);
  }

  /** A way that cannot be reached stays; one that shows nothing gives way to the next. */
  private giveUp(e: unknown): void {
    if (this.closed) return;
    if (e instanceof Unreachable || 'status' in Object(e)) {
      this.trouble = e;
      this.source.changed();
      return;
    }
    this.way?.close();
    this.way = undefined;
    void this.goOn();
  }

  /** Takes the next way. */
  private async goOn(): Promise<void> {
    const next = this.ways[0];
    try {
      if (!next) throw new Error('no way shows this clip');
      const way = await next(this);
      if (this.closed) return way.close();
      if (this.ways.length > 1) this.ways.shift(); // the last one is tried again
      this.way = way;
      for (const [slot, { frame, backwards }] of this.wanted) way.want(frame, slot, backwards);
    } catch (e) {
      this.trouble = e;
    }
    this.source.changed();
  }

  close(): void {
    this.closed = true;
    this.way?.close();
    this.source.file.close();
  }
}

/** Decodes frames in order, starting with the one that was requested last. */
class Decoder implements Way {
  by = 'decoder' as const;
  private readers = new Map<number, Reader>();
  /** Frames that the decoder leaves out, and the ones that are shown instead. */
  readonly instead = new Map<number, number>();
  closed = false;

  constructor(
    readonly facts: ClipFacts,
    readonly keys: number[],
    readonly file: MediaFile,
    private pictures: Pictures,
    private prefix: string,
    private changed: () => void,
    readonly failed: (e: unknown) => void,
  ) {}

  private name = (frame: number): string => this.prefix + String(this.instead.get(frame) ?? frame);

  has = (frame: number): boolean => this.pictures.has(this.name(frame));
  at = (frame: number): Picture | undefined => this.pictures.get(this.name(frame));

  keep(frame: number, picture: Picture): void {
    this.pictures.add(this.prefix + String(frame), picture);
    this.changed();
  }

  want(frame: number, slot: number, backwards: boolean): void {
    const reader = this.readers.get(slot) ?? new Reader(this);
    this.readers.set(slot, reader);
    reader.want(frame, backwards);
  }

  close(): void {
    this.closed = true;
    for (const reader of this.readers.values()) reader.want(-1, false);
    this.pictures.clear(this.prefix);
  }
}

/** One reader of a clip. It continues to decode while the wanted frames lie ahead of it, and otherwise starts again. */
class Reader {
  private wanted = -1;
  private backwards = false;
  private asked = 0;
  private running = false;
  private wake: (() => void) | undefined;
  private canvas = new OffscreenCanvas(1, 1);

  constructor(private of: Decoder) {}

  want(frame: number, backwards: boolean): void {
    this.wanted = frame;
    this.backwards = backwards;
    this.asked = performance.now();
    this.wake?.();
    if (!this.running && this.missing() !== undefined) void this.run();
  }

  /**
   * The frames that are wanted, half-open, in the order in which they are decoded. Backwards they are the block of the
   * wanted frame up to it, then the block before: a block is decoded once, from its first frame on.
   */
  private ranges(): [from: number, to: number][] {
    if (!this.backwards) return [[this.wanted, Math.min(this.of.facts.starts.length, this.wanted + ahead)]];
    const block = this.wanted - (this.wanted % ahead);
    return [[block, this.wanted + 1], [Math.max(0, block - ahead), block]]; // prettier-ignore
  }

  /** The first wanted frame that is not there. */
  private missing(): number | undefined {
    if (this.of.closed || this.wanted < 0) return undefined;
    for (const [from, to] of this.ranges()) {
      for (let n = from; n < to; n++) if (!this.of.has(n)) return n;
    }
    return undefined;
  }

  private async run(): Promise<void> {
    this.running = true;
    const { VideoSampleSink } = await import('./mediabunny');
    try {
      await this.of.file.with(async ({ video }) => {
        if (!video) throw new Error('there is no video');
        const sink = new VideoSampleSink(video);
        for (let from = this.missing(); from !== undefined; from = this.missing()) {
          if (!(await this.read(sink, from))) throw new Error('the decoder has no picture of this time');
        }
      });
      this.running = false;
      if (this.missing() !== undefined) void this.run(); // a request came in the meantime
    } catch (e) {
      this.running = false;
      this.of.failed(e);
    }
  }

  /** Decodes frames in order until the wanted ones lie elsewhere, or nothing is wanted. Reports whether there were any. */
  private async read(sink: VideoSampleSink, from: number): Promise<boolean> {
    const { starts } = this.of.facts;
    let [n, shown] = [from, 0];
    for await (const sample of sink.samples((starts[from] ?? 0) + 1e-6)) {
      const expected = n;
      while (n + 1 < starts.length && (starts[n + 1] ?? 0) <= sample.timestamp + 1e-4) n++;
      for (let k = expected; k < n; k++) this.of.instead.set(k, n);
      const now = performance.now();
      const first = this.ranges().at(-1)?.[0] ?? 0; // the last range lies first in the clip
      if (this.wanted >= 0 && (n >= first || now - shown > lateEvery)) {
        const [width, height] = keptSize(sample.displayWidth, sample.displayHeight);
        Object.assign(this.canvas, { width, height });
        const ctx = this.canvas.getContext('2d');
        if (ctx) sample.draw(ctx, 0, 0, width, height);
        this.of.keep(n, { image: this.canvas.transferToImageBitmap(), width, height });
        shown = now;
      }
      sample.close();
      n++;
      const next = await this.next();
      if (next === undefined || next < n || this.of.keys.some((key) => n < key && key <= next)) return true;
    }
    if (n === from) return false;
    for (let k = n; k < starts.length; k++) this.of.instead.set(k, n - 1);
    return true;
  }

  /**
   * The next missing frame, once there is one; undefined if nobody has asked for a while. Then nothing is wanted any more:
   * otherwise the readers of all clips played so far would decode the pictures again that made room for the newest ones.
   */
  private async next(): Promise<number | undefined> {
    while (!this.of.closed && this.wanted >= 0) {
      const left = this.asked + idle - performance.now();
      if (left <= 0 && this.of.has(this.wanted)) {
        this.wanted = -1;
        break;
      }
      const missing = this.missing();
      if (missing !== undefined) return missing;
      await new Promise<void>((done) => {
        const timer = setTimeout(done, Math.max(0, left));
        this.wake = () => (clearTimeout(timer), done());
      });
    }
    return undefined;
  }
}

/** The facts of a clip of which only the service's analysis is known: its frames are assumed to be evenly spaced. */
function evenFacts({ durationMs, width, height, frameRate }: Described): ClipFacts {
  const count = Math.max(1, Math.round((durationMs / 1000) * frameRate));
  return { width, height, starts: Array.from({ length: count }, (_, n) => n / frameRate), zero: 0, end: durationMs / 1000 };
}

/** How long a video element may take for a picture, in milliseconds. */
const patience = 10_000;

/** Lets a video element seek to each frame. */
class VideoWay implements Way {
  by = 'video' as const;
  private wanted = -1;
  private running = false;
  private video: HTMLVideoElement | undefined;
  private free = () => {};

  constructor(
    private facts: ClipFacts,
    private file: MediaFile,
    private pictures: Pictures,
    private prefix: string,
    private changed: () => void,
    private failed: (e: unknown) => void,
  ) {}

  at = (frame: number): Picture | undefined => this.pictures.get(this.prefix + String(frame));

  want(frame: number): void {
    this.wanted = frame;
    if (!this.running) void this.run();
  }

  close(): void {
    this.wanted = -1;
    this.leave();
    this.pictures.clear(this.prefix);
  }

  private leave(): void {
    this.video?.removeAttribute('src');
    this.video?.load();
    this.video = undefined;
    this.free();
    this.free = () => {};
  }

  private async run(): Promise<void> {
    this.running = true;
    let failures = 0;
    for (let frame = this.wanted; frame >= 0 && !this.at(frame); frame = this.wanted) {
      try {
        const video = (this.video ??= await this.open());
        const shown = await this.seek(video, frame);
        if (this.wanted < 0) break;
        if (!shown) continue; // another picture is wanted by now
        const [width, height] = keptSize(video.videoWidth, video.videoHeight);
        this.pictures.add(this.prefix + String(frame), { image: await createImageBitmap(video, { resizeWidth: width, resizeHeight: height }), width, height });
        failures = 0;
        this.changed();
      } catch (e) {
        this.leave();
        this.file.renew(); // its address may have expired
        if (++failures === 2) {
          this.wanted = -1;
          this.failed(e);
        }
      }
    }
    this.running = false;
  }

  private async open(): Promise<HTMLVideoElement> {
    const video = document.createElement('video');
    const { href, remote, free } = await this.file.address();
    this.free = free;
    Object.assign(video, { muted: true, preload: 'auto', playsInline: true });
    if (remote) video.crossOrigin = 'anonymous';
    await happens(video, 'loadeddata', () => (video.src = href));
    if (!video.videoWidth) throw new Error('this browser shows no picture of the clip');
    return video;
  }

  /** Seeks to a frame, and reports whether its picture is on the element. */
  private async seek(video: HTMLVideoElement, frame: number): Promise<boolean> {
    const { starts } = this.facts;
    const start = starts[frame] ?? 0;
    const to = start + 0.4 * ((starts[frame + 1] ?? start + 1 / 30) - start);
    await happens(video, 'seeked', () => (video.currentTime = to));
    // Some browsers have the picture only after the event.
    if ('requestVideoFrameCallback' in video) await Promise.race([new Promise((done) => video.requestVideoFrameCallback(done)), new Promise((done) => setTimeout(done, 60))]);
    return frame === this.wanted && Math.abs(video.currentTime - to) < 1e-3;
  }
}

/** Runs `act`, and waits for the event of a video element that it causes. */
async function happens(video: HTMLVideoElement, name: string, act: () => void): Promise<void> {
  const control = new AbortController();
  const { signal } = control;
  try {
    await new Promise<void>((done, failed) => {
      const timer = setTimeout(() => failed(new Error('the video element does not answer')), patience);
      signal.addEventListener('abort', () => clearTimeout(timer));
      video.addEventListener(name, () => done(), { signal });
      video.addEventListener('error', () => failed(new Error('this browser cannot read the clip')), { signal });
      act();
    });
  } finally {
    control.abort();
  }
}

/** How many tiles of a storyboard are requested. */
export const tiles = 60;

async function storyboardWay(facts: ClipFacts, source: ClipSource): Promise<Way> {
  const strip = await createImageBitmap(await source.storyboard());
  const width = strip.width / tiles;
  const cut = await Promise.all(Array.from({ length: tiles }, (_, k) => createImageBitmap(strip, Math.round(k * width), 0, Math.floor(width), strip.height)));
  strip.close();
  return {
    by: 'storyboard',
    at(frame) {
      const image = cut[Math.min(tiles - 1, Math.floor((frame * tiles) / facts.starts.length))];
      // The tiles are even, so their aspect is a little off: the clip's own decides.
      return image && { image, width: facts.width, height: facts.height };
    },
    want: () => {},
    close: () => cut.forEach((image) => image.close()),
  };
}
