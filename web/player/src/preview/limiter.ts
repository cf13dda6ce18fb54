// The limiter of the service: it keeps a mix within full scale without distortion.

import { sampleRate } from './pcm';

/** Mixed sound, from -1 to 1. */
export interface Mixed {
  left: Float32Array;
  right: Float32Array;
}

/** How long before a peak the gain starts to fall, in samples: 5 ms. */
export const lookAhead = sampleRate / 200;
/** Peaks above full scale end up here. */
const ceiling = 0.977;
/** The part of its distance to 1 that the gain recovers in a sample: a time constant of 80 ms. */
const release = 1 - Math.exp(-1 / (0.08 * sampleRate));

export class Limiter {
  private left = new Float32Array(lookAhead);
  private right = new Float32Array(lookAhead);
  private gains = new Float64Array(lookAhead).fill(1); // their average is the gain
  private sum = lookAhead;
  private held = 1;
  private count = 0;
  /** Those peaks of the delayed samples that no later peak exceeds, with the gain that each needs. */
  private peaks: { at: number; gain: number }[] = [];

  /** Replaces each sample by the one `lookAhead` samples before it, limited. */
  process({ left, right }: Mixed): void {
    for (let i = 0; i < left.length; i++) {
      const [l, r] = [left[i] ?? 0, right[i] ?? 0];
      const gain = this.gainAfter(Math.max(Math.abs(l), Math.abs(r)));
      const k = this.count++ % lookAhead;
      left[i] = (this.left[k] ?? 0) * gain;
      right[i] = (this.right[k] ?? 0) * gain;
      [this.left[k], this.right[k]] = [l, r];
    }
  }

  /** The gain of the oldest sample, once the newest one has this peak. */
  private gainAfter(peak: number): number {
    const { peaks, gains, count } = this;
    if (peak > 1) {
      const gain = ceiling / peak;
      while ((peaks.at(-1)?.gain ?? 0) >= gain) peaks.pop();
      peaks.push({ at: count, gain });
    }
    while (peaks[0] && peaks[0].at < count - lookAhead) peaks.shift();
    const need = peaks[0]?.gain ?? 1;
    this.held = need < this.held ? need : this.held + (need - this.held) * release;
    const k = count % lookAhead;
    this.sum += this.held - (gains[k] ?? 1);
    gains[k] = this.held;
    return Math.min(1, this.sum / lookAhead);
  }
}
