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

/** The names of a film's sounds: asset keys, and stems as the separation and the stem. */
function soundsOf(config: FilmConfig): string[] {
  const stems = (config.separationDirectives ?? []).flatMap((d) => (d.selections ?? []).map((s) => `${s.separationJobId} ${s.stemId}`));
  return [...new Set([...config.segments.map((s) => s.sourceAssetKey), ...(config.bgmClips ?? []).map((m) => m.audioAssetKey), ...stems])];
}

async function heard(name: string): Promise<Pcm> {
  const [key = '', stemId] = name.split(' ');
  const bytes = await (stemId === undefined ? bytesOf(key) : stemBytes(key, stemId));
  return decode(bytes).catch(() => silence);
}

export class Library implements Sounds {
  private clips = new Map<string, ClipFrames>();
  private sounds = new Map<string, Pcm>();
  private opening = new Map<string, Promise<unknown>>();
  private tried = new Set<string>();

  /** `changed` is called when a file has been opened or a frame decoded. */
  constructor(private changed: () => void) {}

  /** The frames of a clip, once it is open. Neighbouring segments have different slots, so that each is read in order. */
  clip = (assetKey: string, slot = 0): ClipFrames | undefined => this.clips.get(`${assetKey} ${slot}`);

  /** Whether all sounds of a film are there. Those that could not be opened are silent. */
  hears = (config: FilmConfig): boolean => soundsOf(config).every((name) => this.tried.has(`sound ${name}`));

  asset = (key: string): Pcm | undefined => this.sounds.get(key);
  stem = (jobId: string, stemId: string): Pcm | undefined => this.sounds.get(`${jobId} ${stemId}`);

  /** Opens what a film needs and is not open, and reports whether all of it is there. */
  async open(config: FilmConfig): Promise<void> {
    const slots = new Set(config.segments.map((s, i) => `${s.sourceAssetKey} ${i % 2}`));
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
      ...soundsOf(config).map((name) => this.once(`sound ${name}`, this.sounds.has(name), async () => void this.sounds.set(name, await heard(name)))),
    ]);
  }

  private async once(name: string, done: boolean, task: () => Promise<void>): Promise<void> {
    if (done) return;
    const running = this.opening.get(name) ?? task().finally(() => this.opening.delete(name));
    this.opening.set(name, running);
    await running.catch(() => {}); // opened again at the next edit
    this.tried.add(name);
    this.changed();
  }

  close(): void {
    for (const clip of this.clips.values()) clip.close();
    this.clips.clear();
  }
}
