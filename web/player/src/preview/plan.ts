// Which frame of which clip each frame of the film shows. The rules are those of the renderer, so the two agree frame
// by frame: docs/app/film.md describes them.

import type { Direction, FilmConfig, Fit, JoinType, SegmentConfig } from './config';
import { isCropped, sizeOf, type Size } from './look';
import { Pace } from './pace';

/** What is known about a clip. All times are in seconds. */
export interface ClipFacts {
  /** The size as displayed. */
  width: number;
  height: number;
  /** When each frame begins, ascending, on the clock of the file. */
  starts: number[];
  /** The time of the file that counts as 0: where the earlier of pictures and sound begins. */
  zero: number;
  /** When the later of pictures and sound ends, counted from zero. */
  end: number;
}

export interface Rate {
  num: number;
  den: number;
}

const valueOf = (rate: Rate): number => rate.num / rate.den;

export interface Join {
  type: JoinType;
  direction: Direction;
  frames: number;
}

export interface PlacedSegment {
  config: SegmentConfig;
  /** The segment's index in the request. */
  index: number;
  facts: ClipFacts;
  /** Frames of the film, half-open. */
  begin: number;
  end: number;
  frames: number;
  /** The time of the clip that the first frame shows, in seconds. */
  start: number;
  speed: number;
  join: Join | undefined;
  next: Join | undefined;
  fit: Fit;
  focusX: number;
  focusY: number;
  origin: number; // microseconds, see sourceFrame
  step: number; // microseconds
  /** The map of a speed that changes. */
  pace: Pace | undefined;
  /** The time of the clip from which a reversed segment plays backwards, in seconds. */
  turned: number;
  /** What each frame shows, if that is not a straight line through the clip. */
  mixes: Mix[] | undefined;
}

/** What a frame shows: two neighbouring pictures of the clip, or one twice. */
export interface Mix {
  lower: number;
  upper: number;
  /** Of the upper picture, from 0 to 1. */
  weight: number;
}

export interface Film {
  rate: Rate;
  width: number;
  height: number;
  frames: number;
  segments: PlacedSegment[];
  fadeIn: End | undefined;
  fadeOut: End | undefined;
}

export interface End {
  color: 'black' | 'white';
  frames: number;
}

const cutSlack = 0.00137;
const coarseRate = 20;
const maxDrift = 0.7501;
const maxEndDrift = 0.5001;
const roundingUp = 0.3501;
const maxRate = 60;
const smallestSide = 16;

const standardRates: Rate[] = [
  [5, 1], [8, 1], [10, 1], [12, 1], [25, 2], [15000, 1001], [15, 1], [18, 1], [20, 1], [24000, 1001], [24, 1], [25, 1],
  [30000, 1001], [30, 1], [48000, 1001], [48, 1], [50, 1], [60000, 1001], [60, 1],
].map(([num = 30, den = 1]) => ({ num, den })); // prettier-ignore

/** Plans a film. Every clip must have at least one frame. */
export function planFilm(config: FilmConfig, factsOf: (assetKey: string) => ClipFacts): Film {
  const facts = config.segments.map((s) => factsOf(s.sourceAssetKey));
  const [first] = facts;
  if (!first) return { rate: { num: 30, den: 1 }, width: 1280, height: 720, frames: 0, segments: [], fadeIn: undefined, fadeOut: undefined };
  const chosen = config.canvas?.frameRate;
  const rate = chosen ? { num: chosen, den: 1 } : filmRate(first);
  const [width, height] = canvasSize(sizeOf(first, config.segments[0] ?? {}), isCropped(config.segments[0] ?? {}), config.canvas ?? {});
  const segments = config.segments.map((s, i) => segmentOf(s, i, facts[i] ?? first, config.canvas?.fit ?? 'contain'));
  countFrames(segments, valueOf(rate));
  for (const s of segments) if (s.config.reverse) s.turned = turnedAt(s, valueOf(rate));
  const frames = arrange(segments, rate);
  for (const s of segments) {
    s.step = (s.speed / valueOf(rate)) * 1e6;
    s.mixes = mixesOf(s, valueOf(rate));
    const tolerance = toleranceOf(s.step / 1e6, usualStep(s.facts.starts));
    s.origin = Math.round(s.start * 1e6) + Math.round(s.facts.zero * 1e6) + Math.round(tolerance * 1e6);
  }
  const end = (e: FilmConfig['fadeIn']): End | undefined =>
    e ? { color: e.color ?? 'black', frames: Math.min(wholeFrames(e.durationMs ?? 500, rate), Math.floor(frames / 2)) } : undefined;
  return { rate, width, height, frames, segments, fadeIn: end(config.fadeIn), fadeOut: end(config.fadeOut) };
}

function segmentOf(config: SegmentConfig, index: number, facts: ClipFacts, fit: Fit): PlacedSegment {
  return {
    config, index, facts, fit: config.fit ?? fit, focusX: config.focusX ?? 0.5, focusY: config.focusY ?? 0.5, speed: config.speedScale ?? 1,
    begin: 0, end: 0, frames: 0, start: 0, origin: 0, step: 0, join: undefined, next: undefined,
    pace: config.speedPoints?.length ? new Pace(config.speedPoints) : undefined, turned: 0, mixes: undefined,
  }; // prettier-ignore
}

const trimOf = (s: PlacedSegment): [from: number, to: number] => [
  (s.config.trimStartMs ?? 0) / 1000,
  Math.min(s.facts.end, s.config.trimEndMs ? s.config.trimEndMs / 1000 : Infinity),
];

/** Gives each segment its frames and the grid on which it reads its clip. */
function countFrames(segments: PlacedSegment[], rate: number): void {
  let [anchor, grid, run, ideal, total, runStart] = [0, 0, 0, 0, 0, 0];
  segments.forEach((s, k) => {
    const step = s.speed / rate;
    const [from, to] = trimOf(s);
    if (!follows(segments[k - 1], s)) {
      [runStart, run] = [total, 0];
      anchor = anchorOf(s, from, rate);
      grid = gridLine(from, anchor, step);
    }
    const length = s.pace ? (s.pace.filmTime((to - from) * 1000) / 1000) * rate : (to - from) / step;
    s.start = anchor + grid * step;
    ideal += length;
    run += length;
    const last = k === segments.length - 1;
    if (follows(s, segments[k + 1])) s.frames = Math.max(0, gridLine(to, anchor, step) - grid);
    else s.frames = framesOf(total, run - (total - runStart), ideal, last);
    grid += s.frames;
    total += s.frames;
  });
}

/** The frames of a segment that begins at frame `begin`: whole frames, with a drift of at most one frame. */
function framesOf(begin: number, length: number, ideal: number, last: boolean): number {
  let frames = Math.max(0, Math.floor(length + roundingUp));
  while (frames > 0 && begin + frames - ideal > maxDrift) frames--;
  const behind = last ? maxEndDrift : maxDrift;
  while (ideal - (begin + frames) > behind || (last && begin + frames === 0)) frames++;
  return frames;
}

function anchorOf(s: PlacedSegment, from: number, rate: number): number {
  if (rate < coarseRate || s.pace) return from;
  const { starts, zero } = s.facts;
  const shown = s.speed === 1 ? 0 : Math.max(0, upperBound(starts, from + cutSlack + zero) - 1);
  return (starts[shown] ?? 0) - zero;
}

function gridLine(t: number, anchor: number, step: number): number {
  const slack = Math.min(cutSlack, step / 4);
  return Math.max(Math.floor((t - anchor + slack) / step), Math.ceil((0 - anchor - slack) / step));
}

/** Whether a segment plays forwards at one speed. */
export const isStraight = (s: PlacedSegment): boolean => !s.config.reverse && !s.pace;

const follows = (a: PlacedSegment | undefined, b: PlacedSegment | undefined): boolean =>
  !!a && !!b && isStraight(a) && isStraight(b) && a.facts === b.facts && a.speed === b.speed && trimOf(a)[1] === trimOf(b)[0];

/** Whether a segment plays as fast as its clip. */
export const isPlain = (s: PlacedSegment): boolean => s.speed === 1 && !s.pace;

/**
 * The time of the clip from which a reversed segment plays backwards. At speed 1 it is where the segment would end
 * forwards, so that its frames are the same ones; at other speeds where it would end at speed 1 and at the clip's own rate.
 */
function turnedAt(s: PlacedSegment, rate: number): number {
  if (isPlain(s)) return s.start + s.frames / rate;
  const [from, to] = trimOf(s);
  if (rate < coarseRate) return to;
  const step = 1 / valueOf(filmRate(s.facts));
  const anchor = (s.facts.starts[0] ?? 0) - s.facts.zero;
  const begin = anchor + gridLine(from, anchor, step) * step;
  return begin + Math.floor((to - from) / step + roundingUp) * step;
}

const toleranceOf = (step: number, usual: number): number => 0.4142 * Math.min(step, usual);

/** The share of a picture's duration within which a smooth frame shows the picture alone. */
const snapped = 0.1 + 1e-6;

/** What each frame of a segment shows; undefined if that is a straight line through its clip. */
function mixesOf(s: PlacedSegment, rate: number): Mix[] | undefined {
  const { reverse, smooth } = s.config;
  if (isStraight(s) && !smooth) return undefined;
  const [from, to] = trimOf(s);
  const usual = usualStep(s.facts.starts);
  const begins = s.facts.starts.map((t) => t - s.facts.zero);
  const begunBy = (t: number) => upperBound(begins, t) - 1;
  const first = Math.max(0, begunBy(from + cutSlack));
  const last = Math.max(first, begunBy((reverse ? s.turned : to) - cutSlack));
  const startOf = (n: number): number => begins[n] ?? (begins.at(-1) ?? 0) + usual;
  /** The first picture that ends at t or later, but none beyond the range. */
  const endedAfter = (t: number): number => firstWhere(last, (n) => startOf(n + 1) >= t);
  const shown = (played: number, i: number, tolerance: number): number => {
    if (!reverse) return Math.max(0, begunBy(s.start + played + tolerance));
    if (isPlain(s)) return Math.max(0, begunBy(s.start + (s.frames - 1 - i) / rate + tolerance));
    return endedAfter(s.turned - played - tolerance);
  };
  /** The pictures between which a frame lies, if the film has more pictures than the clip there. */
  const between = (played: number, step: number): Mix | undefined => {
    const slack = 1e-6;
    const t = reverse ? s.turned - played : s.start + played;
    const a = reverse ? endedAfter(t - slack) : begunBy(t + slack); // in playing order
    const b = reverse ? a - 1 : a + 1;
    if (a < 0) return undefined;
    const duration = reverse ? startOf(a + 1) - startOf(a) : startOf(b) - startOf(a);
    const weight = (reverse ? startOf(a + 1) - t : t - startOf(a)) / duration;
    if (Math.min(a, b) < first || Math.max(a, b) > last || step >= duration * (1 - 1e-4)) return undefined;
    if (weight <= snapped) return { lower: a, upper: a, weight: 0 };
    if (weight >= 1 - snapped) return { lower: b, upper: b, weight: 0 };
    return reverse ? { lower: b, upper: a, weight: 1 - weight } : { lower: a, upper: b, weight };
  };
  const all: Mix[] = [];
  for (let i = 0; i < s.frames; i++) {
    const paced = s.pace?.at((i * 1000) / rate);
    const [played, speed] = paced ? [paced.source / 1000, paced.speed] : [(i * s.speed) / rate, s.speed];
    const n = shown(played, i, toleranceOf(speed / rate, usual));
    const mix = (smooth ? between(played, speed / rate) : undefined) ?? { lower: n, upper: n, weight: 0 };
    const before = all.at(-1) ?? mix;
    const order = reverse ? Math.min : Math.max; // rounding must not reverse the order of pictures
    const [lower, upper] = [order(mix.lower, before.lower), order(mix.upper, before.upper)];
    all.push({ lower, upper, weight: lower === upper ? 0 : mix.weight });
  }
  return all;
}

const overlapping = ['dissolve', 'wipe', 'slide', 'push'];

/** How many frames the two sides of a join share. */
export const overlapOf = (join: Join | undefined): number => (join && overlapping.includes(join.type) ? join.frames : 0);

const wholeFrames = (ms: number, rate: Rate): number => Math.floor((ms / 1000) * valueOf(rate) + 0.5);

/** Places the segments one after the other, overlapped by their joins, and returns the length of the film. */
function arrange(segments: PlacedSegment[], rate: Rate): number {
  let length = 0;
  segments.forEach((s, k) => {
    const before = segments[k - 1];
    const t = s.config.transition;
    if (before && t) {
      const frames = Math.min(wholeFrames(t.durationMs ?? 500, rate), Math.floor(Math.min(before.frames, s.frames) / 2));
      s.join = frames > 0 ? { type: t.type, direction: t.direction ?? 'left', frames } : undefined;
      before.next = s.join;
    }
    s.begin = length - overlapOf(s.join);
    s.end = s.begin + s.frames;
    length = s.end;
  });
  return length;
}

/** The index of the clip's frame that a segment shows in its i-th frame: the lower one of two. */
export function sourceFrame(s: PlacedSegment, i: number): number {
  if (s.mixes) return s.mixes[Math.min(i, s.mixes.length - 1)]?.lower ?? 0;
  const { starts } = s.facts;
  const line = (n: number) => Math.max(0, Math.ceil((Math.round((starts[n] ?? 0) * 1e6) - s.origin) / s.step));
  return Math.max(0, firstWhere(starts.length, (n) => line(n) > i) - 1);
}

/** The rate of a film whose first clip is this. */
function filmRate(clip: ClipFacts): Rate {
  const rate = constantRate(clip.starts) ?? variableRate(clip.starts);
  const value = valueOf(rate);
  if (value < 1) return { num: 1, den: 1 };
  if (value <= maxRate) return rate;
  const divided = snap(value / Math.ceil(value / maxRate));
  return divided && valueOf(divided) >= 48 ? divided : { num: maxRate, den: 1 };
}

function constantRate(starts: number[]): Rate | undefined {
  const n = starts.length;
  if (n < 2) return { num: 30, den: 1 };
  const step = ((starts[n - 1] ?? 0) - (starts[0] ?? 0)) / (n - 1);
  const slack = Math.max(0.0011, step * 0.02);
  if (starts.some((s, i) => Math.abs(s - (starts[0] ?? 0) - i * step) > slack)) return undefined;
  return snap(1 / step) ?? { num: Math.round(1000 / step), den: 1000 };
}

function variableRate(starts: number[]): Rate {
  const usual = nearest(1 / usualStep(starts));
  const short = stepsOf(starts);
  const decile = short[Math.floor(short.length / 10)] ?? 1 / 30;
  return valueOf(usual) < 24 && decile < (usualStep(starts) * 2) / 3 ? nearest(Math.max(30, 1 / decile)) : usual;
}

function snap(f: number): Rate | undefined {
  const close = (r: number) => Math.abs(f / r - 1) < 0.0002;
  const whole = Math.round(f);
  return standardRates.find((r) => close(valueOf(r))) ?? (whole >= 1 && close(whole) ? { num: whole, den: 1 } : undefined);
}

function nearest(f: number): Rate {
  if (f < 4) return { num: Math.max(1, Math.round(f)), den: 1 };
  const distance = (r: Rate) => {
    const d = Math.abs(Math.log(f / valueOf(r)));
    return r.den === 1001 && d > 0.0004 ? d + 0.0015 : d;
  };
  return standardRates.reduce((best, r) => (distance(r) < distance(best) ? r : best));
}

const stepsOf = (starts: number[]): number[] =>
  starts.slice(1).map((s, i) => s - (starts[i] ?? 0)).filter((d) => d > 0).sort((a, b) => a - b); // prettier-ignore

/** The usual distance between frames, in seconds: the mean of the distances within a quarter of the median. */
function usualStep(starts: number[]): number {
  const steps = stepsOf(starts);
  const median = steps[steps.length >> 1];
  if (!median) return 1 / 30;
  const near = steps.filter((d) => Math.abs(d - median) <= median / 4);
  return near.reduce((sum, d) => sum + d, 0) / near.length;
}

/** The first of so many indexes from which on something is true, their number if it never is. */
function firstWhere(count: number, is: (n: number) => boolean): number {
  let [low, high] = [0, count];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (is(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

const upperBound = (sorted: number[], t: number): number => firstWhere(sorted.length, (n) => (sorted[n] ?? 0) > t);

/** Rounds to the nearest even number; odd numbers go up. */
export const nearestEven = (f: number): number => 2 * Math.floor(f / 2 + 0.5);

/** The film's size for a first segment that shows a picture of that size. */
function canvasSize(shown: Size, cropped: boolean, canvas: NonNullable<FilmConfig['canvas']>): [width: number, height: number] {
  let [w, h] = cropped ? [shown.width, shown.height] : [shown.width & ~1, shown.height & ~1];
  const [a = 0, b = 0] = (canvas.aspect ?? 'source').split(':').map(Number);
  if (a > 0 && b > 0) {
    const short = Math.min(shown.width, shown.height) / Math.min(a, b);
    [w, h] = [short * a, short * b];
  }
  if (canvas.shortSide) {
    if (!(a > 0 && b > 0)) [w, h] = [shown.width, shown.height]; // the exact aspect, also where a side is odd
    const scale = canvas.shortSide / Math.min(w, h);
    [w, h] = [w * scale, h * scale];
  } else if (canvas.maxSide && Math.max(w, h) > canvas.maxSide) {
    const scale = (canvas.maxSide & ~1) / Math.max(w, h);
    [w, h] = [w * scale, h * scale];
  }
  return [Math.max(smallestSide, nearestEven(w)), Math.max(smallestSide, nearestEven(h))];
}
