// The draft of the film. The browser stores it with asset keys, which do not expire.

import type { Schemas } from './api';
import type { Direction, Fit, JoinType, VolumePoint } from './preview/config';

export interface Clip {
  name: string;
  assetKey: string;
  durationMs: number;
  /** A small picture as data: address, '' if this browser cannot read the clip. */
  picture: string;
}

export type { Direction, Fit, JoinType };
type Aspect = NonNullable<NonNullable<Schemas['RenderConfigV3']['canvas']>['aspect']>;
/** A volume at a time; between two points it changes evenly. */
export type Point = VolumePoint;
/** The colours from which a film opens and to which it ends. */
export type EndColor = 'black' | 'white';

export interface Segment {
  id: number;
  assetKey: string;
  fromMs: number;
  toMs: number;
  speed: number;
  volume: number;
  /** The transition from the segment before; a cut if absent. */
  join?: { type: JoinType; durationMs: number; direction?: Direction | undefined } | undefined;
  /** Which part stays visible if the canvas crops the clip, 0 to 1. */
  focusX?: number;
  focusY?: number;
}

export interface Music {
  name: string;
  assetKey: string;
  volume: number;
  /** Where in the film the music begins, and where in the song. */
  startMs?: number;
  fromMs?: number;
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
  /** The volumes that were set, by stem. */
  volumes: Record<string, number>;
  /** Whether the clips are silent while it plays. */
  alone: boolean;
  /** The segments whose own sound it is: the separated one and its copies. If absent, it begins with the film. */
  segments?: number[] | undefined;
  /** The time in their clip at which the stems begin. */
  fromMs?: number;
  /** What was separated, to separate it again. */
  source?: { name: string; assetKey: string; fromMs: number; toMs: number | null; segment?: number | undefined } | undefined;
}

export interface Draft {
  clips: Clip[];
  segments: Segment[];
  music?: Music | undefined;
  speech?: Speech | undefined;
  aspect?: string;
  fit?: Fit;
  /** The short side of the film in pixels, and its frames a second; absent = as the first clip. */
  shortSide?: number | undefined;
  frameRate?: number | undefined;
  fadeIn?: EndColor | undefined;
  fadeOut?: EndColor | undefined;
  loud?: boolean;
  quality: Schemas['Quality'];
}

export const empty: Draft = { clips: [], segments: [], quality: 'medium' };

export const lengthOf = (s: Segment): number => (s.toMs - s.fromMs) / s.speed;

/** How long a segment overlaps the one before. */
export function overlapOf(segments: Segment[], i: number): number {
  const [before, s] = [segments[i - 1], segments[i]];
  if (!before || !s?.join || s.join.type === 'fadeBlack' || s.join.type === 'fadeWhite') return 0;
  return Math.min(s.join.durationMs, lengthOf(before) / 2, lengthOf(s) / 2);
}

/** The start of each segment in the film, and the film's end. */
export function beginsOf(segments: Segment[]): number[] {
  const begins = [0];
  segments.forEach((s, i) => begins.push((begins[i] ?? 0) + lengthOf(s) - overlapOf(segments, i + 1)));
  return begins;
}

export const lengthOfAll = (segments: Segment[]): number => beginsOf(segments).at(-1) ?? 0;

/** The shortest stretch of a clip, in milliseconds. */
export const shortest = 200;

export const nextId = (segments: Segment[]): number => Math.max(0, ...segments.map((s) => s.id)) + 1;

/** Puts a copy of a segment after it. The copy has the same stems. */
export function duplicated(draft: Draft, s: Segment): Draft {
  const copy = { ...s, id: nextId(draft.segments) };
  const { speech } = draft;
  return {
    ...draft,
    segments: draft.segments.flatMap((o) => (o.id === s.id ? [o, copy] : [o])),
    speech: speech?.segments?.includes(s.id) ? { ...speech, segments: [...speech.segments, copy.id] } : speech,
  };
}

/** Cuts a segment in two at a time of the film. A cut closer than `shortest` to an end changes nothing. */
export function split(draft: Draft, filmMs: number): Draft {
  const begins = beginsOf(draft.segments);
  const i = draft.segments.findLastIndex((_, k) => (begins[k] ?? 0) <= filmMs);
  const s = draft.segments[i];
  if (!s) return draft;
  const atMs = Math.round(s.fromMs + (filmMs - (begins[i] ?? 0)) * s.speed);
  if (atMs < s.fromMs + shortest || atMs > s.toMs - shortest) return draft;
  const copied = duplicated(draft, s);
  const second = copied.segments[i + 1];
  return {
    ...copied,
    segments: copied.segments.map((o) => (o.id === s.id ? { ...o, toMs: atMs } : o.id === second?.id ? { ...o, fromMs: atMs, join: undefined } : o)),
  };
}

/** Removes a segment, and the stems of its own sound with its last copy. */
export function without(draft: Draft, id: number): Draft {
  const segments = draft.segments.filter((s) => s.id !== id);
  const own = draft.speech?.segments?.filter((n) => n !== id);
  const speech = own && draft.speech ? { ...draft.speech, segments: own } : draft.speech;
  return { ...draft, segments, speech: own?.length === 0 ? undefined : speech };
}

const when = <T extends object>(on: unknown, fields: T): T | Record<never, never> => (on ? fields : {});

/** How long the film takes to open and to end, where it does. */
const endMs = 1000;
type FrameRate = NonNullable<NonNullable<Schemas['RenderConfigV3']['canvas']>['frameRate']>;

/** The draft as the API renders it, with the features that this server has. */
export function configOf(draft: Draft, stems: Schemas['Stem'][], has: (feature: string) => boolean): Schemas['RenderConfigV3'] {
  const { music } = draft;
  const size = {
    ...when(draft.shortSide && has('canvas.shortSide'), { shortSide: draft.shortSide ?? null }),
    ...when(draft.frameRate && has('canvas.frameRate'), { frameRate: (draft.frameRate ?? null) as FrameRate }),
  };
  const canvas = has('canvas') && (draft.aspect || draft.fit || Object.keys(size).length > 0);
  const end = (color: EndColor | undefined) => ({ color: color ?? 'black', durationMs: endMs });
  return {
    quality: draft.quality,
    ...when(canvas, { canvas: { aspect: (draft.aspect || 'source') as Aspect, fit: draft.fit ?? 'contain', ...size } }),
    ...when(draft.fadeIn && has('fadeIn'), { fadeIn: end(draft.fadeIn) }),
    ...when(draft.fadeOut && has('fadeOut'), { fadeOut: end(draft.fadeOut) }),
    ...when(draft.loud && has('loudness'), { loudness: {} }),
    segments: draft.segments.map((s, order) => ({
      sourceAssetKey: s.assetKey,
      order,
      durationMs: draft.clips.find((c) => c.assetKey === s.assetKey)?.durationMs ?? s.toMs,
      trimStartMs: s.fromMs,
      trimEndMs: s.toMs,
      speedScale: s.speed,
      volumeScale: s.volume,
      ...when(order > 0 && s.join && has(`transition.${s.join.type}`), { transition: transitionOf(s.join) }),
      ...when(canvas, { focusX: s.focusX ?? 0.5, focusY: s.focusY ?? 0.5 }),
    })),
    bgmClips: music
      ? [
          {
            audioAssetKey: music.assetKey,
            startMs: music.startMs ?? 0,
            sourceTrimStartMs: music.fromMs ?? 0,
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

type Transition = NonNullable<Schemas['RenderConfigV3']['segments'][number]['transition']>;
const directed: JoinType[] = ['wipe', 'slide', 'push'];

function transitionOf(join: Segment['join']): Transition | null {
  if (!join) return null;
  const { type, durationMs, direction } = join;
  return { type, durationMs, ...when(directed.includes(type), { direction: direction ?? 'left' }) };
}

type Directive = NonNullable<Schemas['RenderConfigV3']['separationDirectives']>[number];

const usualVolumes: Record<string, number> = { voice_all: 1, background: 0.2 };

/** The volume of a stem, also if it was never set. */
export const volumeOf = ({ volumes }: Speech, stemId: string): number => volumes[stemId] ?? usualVolumes[stemId] ?? 0;

/** The stems, over each segment whose sound they are or from the beginning of the film. */
function directivesOf({ speech, segments }: Draft, stems: Schemas['Stem'][]): Directive[] {
  if (!speech) return [];
  const begins = beginsOf(segments);
  const stemMs = Math.max(0, ...stems.map((s) => s.durationMs));
  const whole = { begin: 0, lengthMs: lengthOfAll(segments), later: 0, speed: 1 };
  const own = segments.flatMap((s, i) => {
    if (!speech.segments?.includes(s.id)) return [];
    // If the segment was cut after the separation, its stems begin later than it, or are entered later.
    return [{ begin: begins[i] ?? 0, lengthMs: lengthOf(s), later: (speech.fromMs ?? s.fromMs) - s.fromMs, speed: s.speed }];
  });
  return (speech.segments ? own : [whole]).flatMap(({ begin, lengthMs, later, speed }, i) => {
    const rangeStartMs = Math.floor(begin + Math.max(0, later) / speed);
    const sourceOffsetMs = Math.max(0, -later);
    const rangeEndMs = Math.floor(Math.min(begin + lengthMs, rangeStartMs + (stemMs - sourceOffsetMs) / speed));
    const selections = stems.map((s) => ({ stemId: s.stemId, volume: volumeOf(speech, s.stemId), separationJobId: speech.jobId }));
    const directive: Directive = {
      id: `speech-${i}`,
      rangeStartMs,
      rangeEndMs,
      muteOriginalSegmentAudio: speech.alone,
      appliedSpeedScale: speed,
      sourceOffsetMs,
      selections: selections.filter((s) => s.volume > 0),
    };
    return rangeEndMs > rangeStartMs ? [directive] : [];
  });
}
