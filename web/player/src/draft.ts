// The draft of the film. The browser stores it with asset keys, which do not expire.

import type { Schemas } from './api';
import type { Adjust, Direction, Fit, JoinType, Look, Rotation, SpeedPoint, VolumePoint } from './preview/config';
import { moveAt } from './preview/look';
import { Pace } from './preview/pace';

export interface Clip {
  name: string;
  assetKey: string;
  durationMs: number;
  /** A small picture as data: address, '' if this browser cannot read the clip. */
  picture: string;
}

export type { Adjust, Direction, Fit, JoinType, SpeedPoint };
export type Crop = Required<NonNullable<Look['crop']>>;
export type Move = Required<NonNullable<Look['moves']>[number]>;
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
  /** How the picture is turned clockwise, then mirrored, then cropped: the shares that are cut off. */
  rotate?: Rotation;
  mirror?: boolean;
  crop?: Crop | undefined;
  /** A moving window over the film's picture, by the film's time since the segment's start. */
  moves?: Move[] | undefined;
  adjust?: Adjust | undefined;
  /** Whether the clip plays backwards. Curve and moves count in the order in which it plays. */
  reverse?: boolean;
  smooth?: boolean;
  /** A changing speed, by the time of the clip; `speed` is 1 then. */
  speedPoints?: SpeedPoint[] | undefined;
}

/** A sound of the film beside its clips: music, or a voice that was recorded. */
export interface Sound {
  id: number;
  name: string;
  assetKey: string;
  volume: number;
  /** Whether it is a voice, under which music ducks. */
  voice?: boolean;
  /** Where in the film it begins, and which part of its file is heard. Absent = from the start, to the end. */
  startMs?: number;
  fromMs?: number;
  toMs?: number | undefined;
  fadeInMs?: number;
  fadeOutMs?: number;
  loop?: boolean;
  /** How far it is ducked under speech, in dB; 0 means no ducking. */
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
  /** The segments whose own sound it is: the separated one and its copies. If absent, it lies on the film by itself. */
  segments?: number[] | undefined;
  /** The time in their clip at which the stems begin. */
  fromMs?: number;
  /** Where on the film it lies by itself, and which part of it is heard. Absent = all of it, from the film's start. */
  place?: { startMs: number; fromMs: number; toMs?: number | undefined } | undefined;
  /** What was separated, to separate it again. */
  source?: { name: string; assetKey: string; fromMs: number; toMs: number | null; segment?: number | undefined } | undefined;
}

export interface Draft {
  clips: Clip[];
  segments: Segment[];
  sounds: Sound[];
  speeches: Speech[];
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

/** Removes something and offers to undo it, until the next edit. */
export type Remove = (what: string, change: (old: Draft) => Draft) => void;

export const empty: Draft = { clips: [], segments: [], sounds: [], speeches: [], quality: 'medium' };

/** A draft, or a step of its history, that was stored when a film had one piece of music and one recording. */
export function upgraded(old: Partial<Draft> & { music?: Omit<Sound, 'id'>; speech?: Speech }): Partial<Draft> {
  const { music, speech, ...rest } = old;
  return { sounds: music ? [{ id: 1, ...music }] : [], speeches: speech ? [speech] : [], ...rest };
}

/** The keys of the uploads that a draft needs. */
export const keysIn = ({ segments, sounds, speeches }: Draft): string[] => [
  ...[...segments, ...sounds].map((s) => s.assetKey),
  ...speeches.flatMap((s) => s.source?.assetKey ?? []),
];

const rangeOf = (s: Segment): number => s.toMs - s.fromMs;

export function lengthOf(s: Segment): number {
  return s.speedPoints ? new Pace(s.speedPoints).filmTime(rangeOf(s)) : rangeOf(s) / s.speed;
}

/** The mean speed. A trim does not change it, because a curve keeps its shape. */
export const speedOf = (s: Segment): number => rangeOf(s) / lengthOf(s);

/** How much of its clip a segment has played at a time of the film since the segment's start, in milliseconds of the clip. */
const playedAt = (s: Segment, ms: number): number => (s.speedPoints ? new Pace(s.speedPoints).at(ms).source : ms * s.speed);

/** The time of its clip that a segment shows at a time of the film since the segment's start. */
export const clipTimeAt = (s: Segment, ms: number): number => (s.reverse ? s.toMs - playedAt(s, ms) : s.fromMs + playedAt(s, ms));

/** The end of its clip's range at which a segment begins on the film. */
export const firstEnd = (s: Segment): 'fromMs' | 'toMs' => (s.reverse ? 'toMs' : 'fromMs');

/** Makes a segment play this much of its clip, from where it begins. */
export const lasting = (s: Segment, ms: number): Partial<Segment> => (s.reverse ? { fromMs: s.toMs - ms } : { toMs: s.fromMs + ms });

/** The most that a segment can play of its clip, from where it begins. */
export const roomOf = (s: Segment, clip: Clip | undefined): number => (s.reverse ? s.toMs : (clip?.durationMs ?? s.toMs) - s.fromMs);

/** The points, with their distances multiplied by a factor. */
function stretched<P extends { atMs: number }>(points: P[], by: number): P[] {
  let last = -1;
  return points.map((p) => ({ ...p, atMs: (last = Math.max(last + 1, Math.round(p.atMs * by))) }));
}

/** An edit of a segment. If it gets longer or shorter, its curve and its moves keep their shape. */
export function reshaped(s: Segment, part: Partial<Segment>): Partial<Segment> {
  const edit = { ...part };
  const range = rangeOf({ ...s, ...edit }) / rangeOf(s);
  if (s.speedPoints && !('speedPoints' in part) && range !== 1) edit.speedPoints = stretched(s.speedPoints, range);
  const length = lengthOf({ ...s, ...edit }) / lengthOf(s);
  if (s.moves && !('moves' in part) && length !== 1) edit.moves = stretched(s.moves, length);
  return edit;
}

/** The point of a curve at a time of the clip. */
export function speedAt(points: SpeedPoint[], atMs: number): SpeedPoint {
  const before = points.findLast((p) => p.atMs <= atMs);
  const after = points.find((p) => p.atMs > atMs);
  if (!before || !after) return { atMs, speed: before?.speed ?? 1 };
  return { atMs, speed: before.speed + ((after.speed - before.speed) * (atMs - before.atMs)) / (after.atMs - before.atMs) };
}

/** The points after a cut: the first one has the value of the curve at the cut. */
function after<P extends { atMs: number }>(points: P[], atMs: number, at: P | undefined): P[] {
  const later = points.map((p) => ({ ...p, atMs: Math.round(p.atMs - atMs) })).filter((p) => p.atMs > 0);
  return at ? [{ ...at, atMs: 0 }, ...later] : later;
}

/** A curve of one point is a constant speed. */
const paced = (points: SpeedPoint[]): Partial<Segment> => (points.length > 1 ? { speedPoints: points } : { speedPoints: undefined, speed: points[0]?.speed ?? 1 });

/** The two pieces of a segment that is cut after it has played this much of its clip. */
function halves(s: Segment, played: number): [Segment, Segment] {
  const [first, second]: [Partial<Segment>, Partial<Segment>] = [{}, {}];
  const { moves, speedPoints } = s;
  const range = rangeOf(s);
  if (speedPoints) {
    const at = speedAt(speedPoints, played);
    const ended = speedPoints.every((p) => p.atMs <= played);
    Object.assign(first, paced(ended ? speedPoints : [...speedPoints.filter((p) => p.atMs < played), at]));
    Object.assign(second, paced(after(speedPoints, played, at)));
  }
  if (moves) {
    const atMs = speedPoints ? new Pace(speedPoints).filmTime(played) : played / s.speed;
    // The first piece keeps the next point, although it lies beyond the piece's end, so its moves do not change.
    const next = moves.findIndex((p) => p.atMs >= atMs);
    first.moves = next < 0 ? moves : moves.slice(0, next + 1);
    const begun = moves.some((p) => p.atMs <= atMs);
    second.moves = after(moves, atMs, begun ? { atMs, ...moveAt(moves, atMs) } : undefined);
  }
  const middle = lasting(s, played);
  const rest: Partial<Segment> = s.reverse ? { toMs: s.fromMs + range - played } : { fromMs: s.fromMs + played };
  return [
    { ...s, ...first, ...middle },
    { ...s, ...second, ...rest, join: undefined },
  ];
}

/** How long a segment overlaps the one before it. */
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

/** The shortest stretch of this clip: all of it, if it is shorter. */
export const shortestOf = (clip: Clip | undefined): number => Math.min(shortest, clip?.durationMs ?? shortest);

export const nextId = (all: { id: number }[]): number => Math.max(0, ...all.map((s) => s.id)) + 1;

/** The segment at a time of the film. */
export function segmentAt(segments: Segment[], filmMs: number): Segment | undefined {
  const begins = beginsOf(segments);
  return segments.findLast((_, i) => (begins[i] ?? 0) <= filmMs);
}

/** Puts a copy of a segment after it. The copy has the same stems. */
export function duplicated(draft: Draft, id: number): Draft {
  const copied = nextId(draft.segments);
  return {
    ...draft,
    segments: draft.segments.flatMap((s) => (s.id === id ? [s, { ...s, id: copied }] : [s])),
    speeches: draft.speeches.map((sp) => (sp.segments?.includes(id) ? { ...sp, segments: [...sp.segments, copied] } : sp)),
  };
}

/** Cuts a segment in two at a time of the film. A cut closer than `shortest` to an end changes nothing. */
export function split(draft: Draft, filmMs: number): Draft {
  const s = segmentAt(draft.segments, filmMs);
  const i = s ? draft.segments.indexOf(s) : -1;
  if (!s) return draft;
  const played = Math.round(playedAt(s, filmMs - (beginsOf(draft.segments)[i] ?? 0)));
  if (played < shortest || played > rangeOf(s) - shortest) return draft;
  const copied = duplicated(draft, s.id);
  const [first, second] = halves(s, played);
  return {
    ...copied,
    segments: copied.segments.map((o, k) => (o.id === s.id ? first : k === i + 1 ? { ...second, id: o.id } : o)),
  };
}

/** The speeches after a segment is removed. The stems of its own sound go with its last copy. */
const released = (speeches: Speech[], id: number): Speech[] =>
  speeches.map((s) => (s.segments ? { ...s, segments: s.segments.filter((n) => n !== id) } : s)).filter((s) => s.segments?.length !== 0);

/** Removes a segment. */
export const without = (draft: Draft, id: number): Draft => ({
  ...draft,
  segments: draft.segments.filter((s) => s.id !== id),
  speeches: released(draft.speeches, id),
});

/** Adds a clip, and keeps one entry for each file. */
export const known = (clips: Clip[], clip: Clip): Clip[] => [...clips.filter((c) => c.assetKey !== clip.assetKey), clip];

/** Shows another clip in a segment's place, from the clip's start, for as long as the old one if the clip is long enough. */
export const replaced = (draft: Draft, id: number, clip: Clip): Draft => ({
  ...draft,
  clips: known(draft.clips, clip),
  segments: draft.segments.map((s) => {
    if (s.id !== id) return s;
    // Settings that were made for the picture of the old clip go with it.
    const { focusX: _x, focusY: _y, rotate: _r, mirror: _m, crop: _c, adjust: _a, ...kept } = s;
    return { ...kept, ...reshaped(s, { fromMs: 0, toMs: Math.min(clip.durationMs, rangeOf(s)) }), assetKey: clip.assetKey };
  }),
  speeches: released(draft.speeches, id),
});

const when = <T extends object>(on: unknown, fields: T): T | Record<never, never> => (on ? fields : {});

/** How long the film takes to open and to end, if it does either. */
const endMs = 1000;
type FrameRate = NonNullable<NonNullable<Schemas['RenderConfigV3']['canvas']>['frameRate']>;

/** The stems of each separation that has them. */
export type StemsOf = Record<string, Schemas['Stem'][] | undefined>;

/** The draft as the API renders it, with the features that this server has. */
export function configOf(draft: Draft, stems: StemsOf, has: (feature: string) => boolean): Schemas['RenderConfigV3'] {
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
      speedScale: s.speedPoints ? 1 : s.speed,
      volumeScale: s.volume,
      ...when(order > 0 && s.join && has(`transition.${s.join.type}`), { transition: transitionOf(s.join) }),
      ...when(canvas, { focusX: s.focusX ?? 0.5, focusY: s.focusY ?? 0.5 }),
      ...when(s.rotate && has('rotate'), { rotate: s.rotate ?? 0 }),
      ...when(s.mirror && has('mirror'), { mirror: true }),
      ...when(s.crop && has('crop'), { crop: s.crop ?? null }),
      ...when(s.moves?.length && has('moves'), { moves: s.moves ?? [] }),
      ...when(s.adjust && has('adjust'), { adjust: s.adjust ?? null }),
      ...when(s.reverse && has('reverse'), { reverse: true }),
      ...when(s.smooth && has('smooth'), { smooth: true }),
      ...when(s.speedPoints && has('speedPoints'), { speedPoints: s.speedPoints ?? [] }),
    })),
    bgmClips: draft.sounds.map((s) => ({
      audioAssetKey: s.assetKey,
      startMs: s.startMs ?? 0,
      sourceTrimStartMs: s.fromMs ?? 0,
      ...when(s.toMs, { sourceTrimEndMs: s.toMs ?? 0 }),
      volume: s.volume,
      ...when(has('bgm.fade'), { fadeInMs: s.fadeInMs ?? 0, fadeOutMs: s.fadeOutMs ?? 0 }),
      ...when(s.loop && has('bgm.loop'), { loop: true }),
      ...when(s.voice && has('bgm.voice'), { voice: true }),
      ...when(s.duckDb && !s.voice && has('bgm.ducking'), { ducking: { amountDb: s.duckDb ?? 9 } }),
      ...when(s.points?.length && has('volumePoints'), { volumePoints: s.points ?? [] }),
    })),
    separationDirectives: directivesOfAll(draft, stems).map((d, i) => ({ ...d, id: `speech-${i}` })),
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

/** The volume of a stem, even if it was never set. */
export const volumeOf = ({ volumes }: Speech, stemId: string): number => volumes[stemId] ?? usualVolumes[stemId] ?? 0;

const mostDirectives = 64;

/** The stems of all speeches. If curves need too many directives, each one covers more. */
function directivesOfAll(draft: Draft, stems: StemsOf): Omit<Directive, 'id'>[] {
  for (let slackMs = 10; ; slackMs *= 2) {
    const all = draft.speeches.flatMap((speech) => directivesOf(speech, draft.segments, stems[speech.jobId] ?? [], slackMs));
    if (all.length <= mostDirectives || slackMs > 10_000) return all;
  }
}

/**
 * The times of a segment's clip between which an even speed plays it at most `slackMs` early or late: a stem is
 * stretched evenly. The times count from the start of the segment.
 */
function evenly(s: Segment, slackMs: number): number[] {
  const range = rangeOf(s);
  if (!s.speedPoints) return [0, range];
  const pace = new Pace(s.speedPoints);
  const cuts = (from: number, to: number): number[] => {
    const middle = Math.round((from + to) / 2);
    const late = pace.filmTime(middle) - (pace.filmTime(from) + pace.filmTime(to)) / 2;
    return Math.abs(late) > slackMs && to - from > shortest ? [...cuts(from, middle), ...cuts(middle, to)] : [to];
  };
  return [0, ...cuts(0, range)];
}

/** The stems, over each segment whose sound they are or where they lie on the film. */
function directivesOf(speech: Speech, segments: Segment[], stems: Schemas['Stem'][], slackMs: number): Omit<Directive, 'id'>[] {
  const begins = beginsOf(segments);
  const stemMs = Math.max(0, ...stems.map((s) => s.durationMs));
  const { startMs, fromMs, toMs } = { startMs: 0, fromMs: 0, toMs: undefined, ...speech.place };
  const heard = Math.min(toMs ?? stemMs, stemMs) - fromMs;
  const placed = { begin: startMs, end: startMs + Math.min(heard, lengthOfAll(segments) - startMs), later: -fromMs, speed: 1 };
  const own = segments.flatMap((s, i) => {
    // A stem does not play backwards. There the segment's own sound is heard.
    if (!speech.segments?.includes(s.id) || s.reverse) return [];
    const pace = new Pace(s.speedPoints ?? [{ atMs: 0, speed: s.speed }]);
    const cuts = evenly(s, slackMs);
    return cuts.slice(1).map((to, k) => {
      const from = cuts[k] ?? 0;
      const [begin, end] = [from, to].map((ms) => (begins[i] ?? 0) + pace.filmTime(ms)) as [number, number];
      const speed = s.speedPoints ? Math.min(10, Math.max(0.1, (to - from) / (end - begin))) : s.speed;
      // If the segment was cut after the separation, its stems begin later than it, or are entered later.
      return { begin, end, later: (speech.fromMs ?? s.fromMs) - s.fromMs - from, speed };
    });
  });
  return (speech.segments ? own : [placed]).flatMap(({ begin, end, later, speed }) => {
    const rangeStartMs = Math.floor(begin + Math.max(0, later) / speed);
    const sourceOffsetMs = Math.max(0, -later);
    const rangeEndMs = Math.floor(Math.min(end, rangeStartMs + (stemMs - sourceOffsetMs) / speed));
    const selections = stems.map((s) => ({ stemId: s.stemId, volume: volumeOf(speech, s.stemId), separationJobId: speech.jobId }));
    const directive = {
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
