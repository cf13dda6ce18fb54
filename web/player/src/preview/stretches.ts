// Which stretches of its sounds a film plays. The preview decodes no others, so that its memory does not grow with the
// length of the files.

import type { FilmConfig, SegmentConfig } from './config';
import { Pace } from './pace';
import { sampleRate, type Pcm } from './pcm';

/** A stretch of a sound, in seconds of its file. */
export interface Stretch {
  /** An asset key, or a stem as its separation and its id. */
  name: string;
  from: number;
  to: number;
}

/** Both ends are multiples of this, so that a trim seldom needs another stretch. */
const step = 20;
/** How much more than its stretch a sound needs at both ends: a tempo change reaches beyond them. */
const margin = 1;
/** How long all stretches of a film together may be, in seconds: 400 MB in stereo. */
const most = 2100;

export const stemName = (jobId: string | null | undefined, stemId: string): string => `${jobId ?? ''} ${stemId}`;

/** How long a segment lasts in the film, in milliseconds. */
function lengthOf({ trimStartMs = 0, trimEndMs, durationMs, speedScale = 1, speedPoints }: SegmentConfig): number {
  const range = (trimEndMs ?? durationMs) - trimStartMs;
  return speedPoints?.length ? new Pace(speedPoints).filmTime(range) : range / speedScale;
}

/** The stretches that a film plays, and whether it plays more than the preview can hold. */
export function stretchesOf(config: FilmConfig): { stretches: Stretch[]; cut: boolean } {
  const all: Stretch[] = [];
  const add = (name: string, fromMs: number, toMs: number, endMs = Infinity) => {
    const from = Math.max(0, Math.floor((fromMs / 1000 - margin) / step) * step);
    const to = Math.min(Math.ceil(endMs / 1000) + margin, Math.ceil((toMs / 1000 + margin) / step) * step);
    if (to > from) all.push({ name, from, to });
  };
  const filmMs = config.segments.reduce((sum, s) => sum + lengthOf(s), 0);
  for (const s of config.segments) add(s.sourceAssetKey, s.trimStartMs ?? 0, s.trimEndMs ?? s.durationMs, s.durationMs);
  for (const m of config.bgmClips ?? []) {
    const from = m.sourceTrimStartMs ?? 0;
    const heard = from + Math.max(0, filmMs - m.startMs) * (m.speed ?? 1);
    add(m.audioAssetKey, from, Math.min(m.sourceTrimEndMs || Infinity, heard));
  }
  for (const d of config.separationDirectives ?? []) {
    const from = d.sourceOffsetMs ?? 0;
    const to = from + (d.rangeEndMs - d.rangeStartMs) * (d.appliedSpeedScale ?? 1);
    for (const s of d.selections ?? []) add(stemName(s.separationJobId, s.stemId), from, to);
  }
  const stretches: Stretch[] = [];
  let [left, cut] = [most, false];
  for (const name of new Set(all.map((s) => s.name))) {
    for (const { from, to } of joined(all.filter((s) => s.name === name))) {
      const end = Math.min(to, from + left);
      cut ||= end < to;
      if (end <= from) continue;
      left -= end - from;
      stretches.push({ name, from, to: end });
    }
  }
  return { stretches, cut };
}

/** The stretches of one sound, in which each time occurs once. */
function joined(stretches: Stretch[]): Stretch[] {
  const out: Stretch[] = [];
  for (const s of stretches.sort((a, b) => a.from - b.from)) {
    const last = out.at(-1);
    if (last && s.from <= last.to) last.to = Math.max(last.to, s.to);
    else out.push({ ...s });
  }
  return out;
}

/** Whether decoded sound holds a stretch, as far as its file goes. */
export const holds = ({ begin, left, total }: Pcm, { from, to }: Stretch): boolean =>
  begin <= from * sampleRate && begin + left.length >= Math.min(total, to * sampleRate);
