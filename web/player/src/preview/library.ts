// The opened files of a film: the frames of its clips and its sounds, each opened once.

import { addressOf, analysisOf, stemBytes, storyboardOf } from '../files';
import { openClip, tiles, type Bytes, type ClipFrames } from './clips';
import type { FilmConfig } from './config';
import type { Sounds } from './mix';
import { decode, silence, type Pcm } from './pcm';

/** The files that were added in this page; others come from the object store. */
const files = new Map<string, Blob>();

/** Remembers a file, so that the preview need not fetch it. */
export const keepFile = (assetKey: string, file: Blob): void => void files.set(assetKey, file);

const bytesOf = async (assetKey: string): Promise<Bytes> => files.get(assetKey) ?? addressOf(assetKey);

async function open(assetKey: string): Promise<ClipFrames> {
  const describe = async () => {
    const { durationMs, width, height, frameRate } = await analysisOf(assetKey);
    return { durationMs, width: width ?? 16, height: height ?? 9, frameRate: frameRate ?? 30 };
  };
  return openClip(await bytesOf(assetKey), describe, () => storyboardOf(assetKey, tiles));
}

export class Library implements Sounds {
  private clips = new Map<string, ClipFrames>();
  private sounds = new Map<string, Pcm>();
  private opening = new Map<string, Promise<unknown>>();

  /** `changed` is called when a file has been opened or a frame decoded. */
  constructor(private changed: () => void) {}

  /** The frames of a clip, once it is open. Neighbouring segments have different slots, so that each is read in order. */
  clip = (assetKey: string, slot = 0): ClipFrames | undefined => this.clips.get(`${assetKey} ${slot}`);

  asset = (key: string): Pcm | undefined => this.sounds.get(key);
  stem = (jobId: string, stemId: string): Pcm | undefined => this.sounds.get(`${jobId} ${stemId}`);

  /** Opens what a film needs and is not open, and reports whether all of it is there. */
  async open(config: FilmConfig): Promise<void> {
    const slots = new Set(config.segments.map((s, i) => `${s.sourceAssetKey} ${i % 2}`));
    const keys = new Set([...config.segments.map((s) => s.sourceAssetKey), ...(config.bgmClips ?? []).map((m) => m.audioAssetKey)]);
    const stems = new Set((config.separationDirectives ?? []).flatMap((d) => (d.selections ?? []).map((s) => `${s.separationJobId} ${s.stemId}`)));
    for (const [name, clip] of this.clips) {
      if (slots.has(name)) continue;
      clip.close();
      this.clips.delete(name);
    }
    await Promise.all([
      ...[...slots].map((name) =>
        this.once(name, this.clips.has(name), async () => {
          const clip = await open(name.split(' ')[0] ?? '');
          clip.onFrame = this.changed;
          this.clips.set(name, clip);
        }),
      ),
      ...[...keys].map((key) => this.once(`sound ${key}`, this.sounds.has(key), async () => void this.sounds.set(key, await decode(await bytesOf(key)).catch(() => silence)))),
      ...[...stems].map((name) => this.once(`sound ${name}`, this.sounds.has(name), async () => void this.sounds.set(name, await this.decodeStem(name)))),
    ]);
  }

  private async decodeStem(name: string): Promise<Pcm> {
    const [jobId = '', stemId = ''] = name.split(' ');
    return decode(await stemBytes(jobId, stemId)).catch(() => silence);
  }

  private async once(name: string, done: boolean, task: () => Promise<void>): Promise<void> {
    if (done) return;
    const running = this.opening.get(name) ?? task().finally(() => this.opening.delete(name));
    this.opening.set(name, running);
    await running.catch(() => {}); // opened again at the next edit
    this.changed();
  }

  close(): void {
    for (const clip of this.clips.values()) clip.close();
    this.clips.clear();
  }
}
