// The opened files of a film: the frames of its clips and its sounds, each opened once.

import { CutroomError } from '../../../client/src';
import { addressOf, analysisOf, stemBytes, storyboardOf } from '../files';
import { Clip, Pictures, tiles } from './clips';
import type { FilmConfig } from './config';
import type { Sounds } from './mix';
import { decode, sampleRate, TooLong, type Pcm } from './pcm';
import { MediaFile } from './source';
import { holds, stretchesOf, type Stretch } from './stretches';

/** The files that were added in this page; others come from the object store. */
const files = new Map<string, Blob>();

/** Remembers a file, so that the preview need not fetch it. */
export const keepFile = (assetKey: string, file: Blob): void => void files.set(assetKey, file);

const fileOf = (assetKey: string): MediaFile => new MediaFile(files.get(assetKey) ?? (() => addressOf(assetKey)));

/** How many files are opened at a time. */
const parallel = 4;

async function heard({ name, from, to }: Stretch): Promise<Pcm> {
  const [key = '', stemId] = name.split(' ');
  const file = stemId === undefined ? fileOf(key) : new MediaFile(await stemBytes(key, stemId));
  try {
    return await decode(file, from, to);
  } finally {
    file.close();
  }
}

/** A failure as a sentence. */
const sentence = (what: string, e: unknown): string =>
  e instanceof TooLong ? `${what} is too long for this browser. It is silent here, and heard in the film.` :
  `${what} could not be opened. ${e instanceof CutroomError && e.status ? (e.status === 404 ? 'It is no longer on the service: replace it, or add it again.' : 'The service is busy.') : 'Check the connection.'}`;

export class Library implements Sounds {
  private clips = new Map<string, Clip>();
  /** The stretches of each sound that are decoded. */
  private sounds = new Map<string, Pcm[]>();
  /** Whether the film plays more sound than is kept here. */
  cut = false;
  private opening = new Map<string, Promise<void>>();
  private troubles = new Map<string, string>();
  private pictures = new Pictures();
  private waiting: (() => void)[] = [];
  private running = 0;
  private config: FilmConfig = { segments: [] };
  private closed = false;

  /** `changed` is called when a file has been opened or a frame decoded, or cannot be. */
  constructor(private changed: () => void) {
    addEventListener('online', this.again);
  }

  /** The frames of a clip, once it is open. */
  clip = (assetKey: string): Clip | undefined => this.clips.get(assetKey);

  /** Drops the requests for all pictures but those of some slots, by the asset keys of their clips. */
  rest(but: [assetKey: string, slot: number][]): void {
    for (const [key, clip] of this.clips) clip.rest(new Set(but.flatMap(([k, slot]) => (k === key ? [slot] : []))));
  }

  /** Whether all sounds of a film are there. Those that could not be opened are silent. */
  hears = (config: FilmConfig): boolean => stretchesOf(config).stretches.every((s) => this.held(s) || this.troubles.has(`sound ${s.name}`));

  sound = (name: string, from: number): Pcm | undefined =>
    this.sounds.get(name)?.filter((p) => p.begin <= from * sampleRate).reduce<Pcm | undefined>((a, b) => (a && a.begin + a.left.length >= b.begin + b.left.length ? a : b), undefined);

  private held = (s: Stretch): boolean => !!this.sounds.get(s.name)?.some((p) => holds(p, s));

  /** Decodes the stretches of a sound that the film plays, including any added while it decodes. */
  private async decodeSound(name: string): Promise<void> {
    const lacking = () => stretchesOf(this.config).stretches.find((s) => s.name === name && !this.held(s));
    for (let s = lacking(); s && !this.closed; s = lacking()) {
      const pcm = await heard(s);
      this.sounds.set(name, [...(this.sounds.get(name) ?? []), pcm]);
    }
  }

  /** Why something is missing from the preview, '' if nothing is. */
  get trouble(): string {
    const clip = [...this.clips.values()].find((c) => c.trouble);
    return [...this.troubles].sort()[0]?.[1] ?? (clip ? sentence('The pictures of a clip', clip.trouble) : '');
  }

  /** Retries whatever failed. */
  again = (): void => {
    this.troubles.clear();
    for (const clip of this.clips.values()) clip.again();
    this.changed();
    this.open(this.config);
  };

  /** Opens the files that a film needs, and closes those that it does not need. */
  open(config: FilmConfig): void {
    this.config = config;
    const keys = new Set(config.segments.map((s) => s.sourceAssetKey));
    const { stretches, cut } = stretchesOf(config);
    this.cut = cut;
    for (const [key, clip] of this.clips) {
      if (keys.has(key)) continue;
      clip.close();
      this.clips.delete(key);
    }
    for (const [name, held] of this.sounds) {
      const kept = held.filter((p) => stretches.some((s) => s.name === name && holds(p, s)));
      if (kept.length) this.sounds.set(name, kept);
      else this.sounds.delete(name);
    }
    const wanted = new Set([...[...keys].map((key) => `clip ${key}`), ...stretches.map((s) => `sound ${s.name}`)]);
    for (const name of this.troubles.keys()) if (!wanted.has(name)) this.troubles.delete(name);
    for (const key of keys) if (!this.clips.has(key)) this.once(`clip ${key}`, 'One of the clips', () => this.openClip(key));
    for (const s of stretches) if (!this.held(s)) this.once(`sound ${s.name}`, 'The sound of one file', () => this.decodeSound(s.name));
  }

  private async openClip(assetKey: string): Promise<void> {
    const describe = async () => {
      const { durationMs, width, height, frameRate } = await analysisOf(assetKey);
      return { durationMs, width: width ?? 16, height: height ?? 9, frameRate: frameRate ?? 30 };
    };
    const source = { file: fileOf(assetKey), describe, storyboard: () => storyboardOf(assetKey, tiles), changed: this.changed };
    const clip = await Clip.open(source, this.pictures);
    if (this.closed || !this.config.segments.some((s) => s.sourceAssetKey === assetKey)) clip.close();
    else this.clips.set(assetKey, clip);
  }

  /** Runs a task that opens something, unless it runs or has failed. A few run at a time, in order. */
  private once(name: string, what: string, task: () => Promise<void>): void {
    if (this.opening.has(name) || this.troubles.has(name)) return;
    const turn = this.running < parallel ? Promise.resolve() : new Promise<void>((go) => this.waiting.push(go));
    this.running++;
    const done = turn
      .then(() => (this.closed ? undefined : task()))
      .catch((e: unknown) => void this.troubles.set(name, sentence(what, e)))
      .then(() => {
        this.running--;
        this.waiting.shift()?.();
        this.opening.delete(name);
        this.changed();
      });
    this.opening.set(name, done);
  }

  close(): void {
    this.closed = true;
    removeEventListener('online', this.again);
    for (const clip of this.clips.values()) clip.close();
    this.clips.clear();
    this.pictures.clear();
  }
}
