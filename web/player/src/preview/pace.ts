// The map between the time of a clip and the time of the film, for a speed that changes. It is that of the renderer.

import type { SpeedPoint } from './config';

interface Stretch {
  source: number;
  film: number;
  speed: number;
  slope: number; // of the speed, up to the next point
}

/**
 * Between two points the speed is linear in the clip's time, after the last one level. So the film's time is a logarithm
 * of the clip's, and the clip's an exponential of the film's. All times count from the segment's begin, in milliseconds.
 */
export class Pace {
  private readonly stretches: Stretch[] = [];

  /** At least one point, the first one at 0. */
  constructor(points: SpeedPoint[]) {
    for (const { atMs, speed } of points) {
      const before = this.stretches.at(-1);
      if (before) before.slope = (speed - before.speed) / (atMs - before.source);
      this.stretches.push({ source: atMs, film: before ? filmOf(before, atMs) : 0, speed, slope: 0 });
    }
  }

  private last(of: 'source' | 'film', at: number): Stretch {
    const found = this.stretches.findLast((s) => s[of] <= at) ?? this.stretches[0];
    if (!found) throw new Error('a pace needs a point');
    return found;
  }

  /** The film's time at which a time of the clip plays. */
  filmTime(source: number): number {
    const s = this.last('source', source);
    return source < 0 ? source / s.speed : filmOf(s, source);
  }

  /** The time of the clip that plays at a time of the film, and the speed there. */
  at(film: number): { source: number; speed: number } {
    const s = this.last('film', film);
    const ms = film - s.film;
    if (film < 0 || s.slope === 0) return { source: s.source + ms * s.speed, speed: s.speed };
    const growth = Math.expm1(s.slope * ms);
    return { source: s.source + (s.speed / s.slope) * growth, speed: s.speed * (1 + growth) };
  }
}

function filmOf(s: Stretch, source: number): number {
  const ms = source - s.source;
  return s.film + (s.slope === 0 ? ms / s.speed : Math.log1p((s.slope * ms) / s.speed) / s.slope);
}
