// The draft of the film. The browser stores it with asset keys, which do not expire.

import { useEffect, useState } from 'preact/hooks';
import type { Schemas } from './api';

export interface Clip {
  name: string;
  assetKey: string;
  durationMs: number;
  /** A small picture as data: address, '' if this browser cannot read the clip. */
  picture: string;
}

export type JoinType = 'dissolve' | 'fadeBlack' | 'fadeWhite';
type Aspect = NonNullable<NonNullable<Schemas['RenderConfigV3']['canvas']>['aspect']>;
export type Fit = 'contain' | 'cover' | 'blur';
/** A volume at a time; between two points it changes evenly. */
export interface Point {
  atMs: number;
  volume: number;
}

export interface Segment {
  id: number;
  assetKey: string;
  fromMs: number;
  toMs: number;
  speed: number;
  volume: number;
  /** The transition from the segment before; a cut if absent. */
  join?: { type: JoinType; durationMs: number } | undefined;
  /** Which part stays visible if the canvas crops the clip, 0 to 1. */
  focusX?: number;
  focusY?: number;
}

export interface Music {
  name: string;
  assetKey: string;
  volume: number;
  fadeInMs?: number;
  fadeOutMs?: number;
  loop?: boolean;
  /** How far the music is ducked under speech, in dB; 0 means no ducking. */
  duckDb?: number;
  points?: Point[];
}

export interface Speech {
  name: string;
  jobId: string;
  volumes: Record<string, number>;
  /** Whether the clips are silent while it plays. */
  alone: boolean;
  /** The segment whose sound it is. If absent, it begins with the film. */
  segment?: number;
  /** The time in that segment's clip at which the stems begin. */
  fromMs?: number;
}

export interface Draft {
  clips: Clip[];
  segments: Segment[];
  music?: Music | undefined;
  speech?: Speech | undefined;
  aspect?: string;
  fit?: Fit;
  loud?: boolean;
  quality: Schemas['Quality'];
}

export const empty: Draft = { clips: [], segments: [], quality: 'medium' };

/** A draft that survives a reload, and that two tabs share. */
export function useDraft(user: string): [Draft, (change: (old: Draft) => Draft) => void] {
  const key = `cutroom-draft-${user}`;
  const [draft, set] = useState<Draft>(() => JSON.parse(localStorage.getItem(key) ?? 'null') ?? empty);
  useEffect(() => localStorage.setItem(key, JSON.stringify(draft)), [draft]);
  useEffect(() => {
    const follow = (e: StorageEvent) => e.key === key && e.newValue && set(JSON.parse(e.newValue));
    addEventListener('storage', follow);
    return () => removeEventListener('storage', follow);
  }, [key]);
  return [draft, set];
}

export const lengthOf = (s: Segment): number => (s.toMs - s.fromMs) / s.speed;

/** How long a segment overlaps the one before. */
export function overlapOf(segments: Segment[], i: number): number {
  const [before, s] = [segments[i - 1], segments[i]];
  if (!before || !s || s.join?.type !== 'dissolve') return 0;
  return Math.min(s.join.durationMs, lengthOf(before) / 2, lengthOf(s) / 2);
}

/** The start of each segment in the film, and the film's end. */
export function beginsOf(segments: Segment[]): number[] {
  const begins = [0];
  segments.forEach((s, i) => begins.push((begins[i] ?? 0) + lengthOf(s) - overlapOf(segments, i + 1)));
  return begins;
}

export const lengthOfAll = (segments: Segment[]): number => beginsOf(segments).at(-1) ?? 0;

export const nextId = (segments: Segment[]): number => Math.max(0, ...segments.map((s) => s.id)) + 1;

const when = <T extends object>(on: unknown, fields: T): T | Record<never, never> => (on ? fields : {});

/** The draft as the API renders it, with the features that this server has. */
export function configOf(draft: Draft, stems: Schemas['Stem'][], has: (feature: string) => boolean): Schemas['RenderConfigV3'] {
  const { music } = draft;
  const canvas = has('canvas') && (draft.aspect || draft.fit);
  return {
    quality: draft.quality,
    ...when(canvas, { canvas: { aspect: (draft.aspect || 'source') as Aspect, fit: draft.fit ?? 'contain' } }),
    ...when(draft.loud && has('loudness'), { loudness: {} }),
    segments: draft.segments.map((s, order) => ({
      sourceAssetKey: s.assetKey,
      order,
      durationMs: draft.clips.find((c) => c.assetKey === s.assetKey)?.durationMs ?? s.toMs,
      trimStartMs: s.fromMs,
      trimEndMs: s.toMs,
      speedScale: s.speed,
      volumeScale: s.volume,
      ...when(order > 0 && s.join && has(`transition.${s.join.type}`), { transition: s.join ?? null }),
      ...when(canvas, { focusX: s.focusX ?? 0.5, focusY: s.focusY ?? 0.5 }),
    })),
    bgmClips: music
      ? [
          {
            audioAssetKey: music.assetKey,
            startMs: 0,
            volume: music.volume,
            ...when(has('bgm.fade'), { fadeInMs: music.fadeInMs ?? 0, fadeOutMs: music.fadeOutMs ?? 0 }),
            ...when(music.loop && has('bgm.loop'), { loop: true }),
            ...when(music.duckDb && has('bgm.ducking'), { ducking: { amountDb: music.duckDb ?? 9 } }),
            ...when(music.points?.length && has('volumePoints'), { volumePoints: music.points ?? [] }),
          },
        ]
      : [],
    separationDirectives: directivesOf(draft, stems),
  };
}

/** The stems, over the segment that they were separated from or from the beginning of the film. */
function directivesOf({ speech, segments }: Draft, stems: Schemas['Stem'][]): NonNullable<Schemas['RenderConfigV3']['separationDirectives']> {
  if (!speech) return [];
  const place = segments.findIndex((s) => s.id === speech.segment);
  const own = segments[place];
  if (speech.segment !== undefined && !own) return [];
  const begin = own ? (beginsOf(segments)[place] ?? 0) : 0;
  const speed = own?.speed ?? 1;
  // If the segment was cut after the separation, its stems begin later than it, or are entered later.
  const later = own ? (speech.fromMs ?? own.fromMs) - own.fromMs : 0;
  const rangeStartMs = Math.floor(begin + Math.max(0, later) / speed);
  const sourceOffsetMs = Math.max(0, -later);
  const heard = (Math.max(0, ...stems.map((s) => s.durationMs)) - sourceOffsetMs) / speed;
  const end = begin + (own ? lengthOf(own) : lengthOfAll(segments));
  const rangeEndMs = Math.floor(Math.min(end, rangeStartMs + heard));
  if (rangeEndMs <= rangeStartMs) return [];
  const selections = stems.map((s) => ({ stemId: s.stemId, volume: speech.volumes[s.stemId] ?? 0, separationJobId: speech.jobId }));
  return [
    {
      id: 'speech',
      rangeStartMs,
      rangeEndMs,
      muteOriginalSegmentAudio: speech.alone,
      appliedSpeedScale: speed,
      sourceOffsetMs,
      selections: selections.filter((s) => s.volume > 0),
    },
  ];
}
