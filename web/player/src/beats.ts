// Cuts on the beat of the music.

import { beginsOf, lasting, lengthOf, overlapOf, reshaped, roomOf, shortestOf, speedOf, type Draft, type Sound } from './draft';

/** The times of the film at which music has an onset, in milliseconds, ascending. */
export function beatsOf({ startMs = 0, fromMs = 0, toMs, loop }: Sound, onsetsMs: number[], lengthMs: number, filmMs: number): number[] {
  const end = Math.min(toMs ?? lengthMs, lengthMs);
  const once = onsetsMs.filter((ms) => ms >= fromMs && ms < end).map((ms) => startMs + ms - fromMs);
  if (!loop || !once.length || end - fromMs < 100) return once;
  const rounds = Math.max(1, Math.ceil((filmMs - startMs) / (end - fromMs)));
  return Array.from({ length: rounds }, (_, n) => once.map((ms) => ms + n * (end - fromMs))).flat();
}

/**
 * Moves the end of every segment, from the first to the last, to the nearest beat that its clip reaches, and counts the
 * moved ones. The middle of a join lies on the beat.
 */
export function cutToBeats(draft: Draft, beats: number[]): { draft: Draft; moved: number } {
  const segments = [...draft.segments];
  let moved = 0;
  segments.forEach((s, i) => {
    const begin = beginsOf(segments)[i] ?? 0;
    const clip = draft.clips.find((c) => c.assetKey === s.assetKey);
    const overlap = overlapOf(segments, i + 1) / 2;
    const end = begin + lengthOf(s) - overlap;
    const speed = speedOf(s);
    const room = roomOf(s, clip);
    const least = begin + shortestOf(clip) / speed - overlap;
    const most = begin + room / speed - overlap;
    const reached = beats.filter((ms) => ms >= least && ms <= most + 1);
    const next = reached.reduce<number | undefined>((a, b) => (a !== undefined && Math.abs(a - end) <= Math.abs(b - end) ? a : b), undefined);
    if (next === undefined) return;
    const played = Math.min(room, Math.round((next + overlap - begin) * speed));
    if (played !== s.toMs - s.fromMs) moved++;
    segments[i] = { ...s, ...reshaped(s, lasting(s, played)) };
  });
  return { draft: { ...draft, segments }, moved };
}
