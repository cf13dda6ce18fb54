// The sound of the film, mixed as the service mixes it: segments with their joins, music with fades, points and
// ducking, and stems in place of the clips' own sound.

import type { DirectiveConfig, FilmConfig, MusicConfig, VolumePoint } from './config';
import { Limiter, lookAhead, type Mixed } from './limiter';
import { isPlain, isStraight, overlapOf, type Film, type PlacedSegment } from './plan';
import { reversed, sampleRate, silence, stretched, type Pcm } from './pcm';
import { stemName } from './stretches';

/** The decoded sounds: clips and music by asset key, stems by `stemName`. */
export interface Sounds {
  /** The decoded part of a sound from a time on, in seconds of its file. */
  sound(name: string, from: number): Pcm | undefined;
}

/** A gain at a time of the film, in samples. */
type Gain = (sample: number) => number;

/** One sound of the mix, on the film's samples, half-open. */
interface Voice {
  from: number;
  to: number;
  pcm: () => Pcm;
  /** The sample of `pcm` that sounds at `from`. */
  offset: number;
  /** The length after which it begins again, 0 for once. */
  period: number;
  gain: Gain;
  duck: number; // index into the film's duckings, -1 for none
  speaks: boolean; // counts as a voice for ducking
}

const samplesOf = (ms: number): number => Math.round((ms * sampleRate) / 1000);

/** Linear between the points, level before the first and after the last. */
function pointsGain(points: VolumePoint[] | null | undefined, begin: number): Gain {
  if (!points?.length) return () => 1;
  const [first, last] = [points[0], points.at(-1)];
  return (sample) => {
    const at = ((sample - begin) * 1000) / sampleRate;
    if (!first || !last || at <= first.atMs) return first?.volume ?? 1;
    if (at >= last.atMs) return last.volume;
    const k = points.findIndex((p) => p.atMs > at);
    const [a, b] = [points[k - 1] ?? first, points[k] ?? last];
    return a.volume + ((b.volume - a.volume) * (at - a.atMs)) / (b.atMs - a.atMs);
  };
}

const clamp = (share: number): number => Math.min(1, Math.max(0, share));

export class Mixer {
  readonly length: number;
  private voices: Voice[];
  private computed = new Map<string, Pcm>();
  private duckings: { amountDb: number; attackMs: number; releaseMs: number }[] = [];
  /** The gain of each ducking every 10 ms; made when a window with ducked music is first mixed. */
  private duckGains: Float32Array[] | undefined;

  constructor(
    private film: Film,
    config: FilmConfig,
    private sounds: Sounds,
  ) {
    this.length = this.sampleAt(film.frames);
    const directives = config.separationDirectives ?? [];
    const music = config.bgmClips ?? [];
    const stems = directives.flatMap((d) => this.stemsOf(d));
    const spoken = stems.some((v) => v.speaks);
    const recorded = music.some((m) => m.voice);
    this.voices = [
      ...film.segments.map((s) => this.segmentVoice(s, directives, !spoken && !recorded)),
      ...music.map((m) => this.musicVoice(m)),
      ...stems,
    ].filter((v) => v.to > v.from);
  }

  private sampleAt = (frame: number): number => Math.round((frame * sampleRate * this.film.rate.den) / this.film.rate.num);

  /** Computes sound once. */
  private once(key: string, compute: () => Pcm): Pcm {
    const known = this.computed.get(key) ?? compute();
    this.computed.set(key, known);
    return known;
  }

  /** The samples of a sound from a time on, at a tempo. */
  private atTempo(key: string, source: Pcm | undefined, from: number, tempo: number, length: number): Pcm {
    if (!source || tempo === 1) return source ?? silence;
    return this.once(`${key} ${from} ${tempo} ${length}`, () => stretched(source, (n) => from + n * tempo, length));
  }

  /** The sound of a segment that plays backwards or at a changing speed, from its first sample on. */
  private turnedOrBent(s: PlacedSegment, length: number): Pcm {
    const source = this.sounds.sound(s.config.sourceAssetKey, s.start);
    if (!source) return silence;
    const played = (n: number) => (s.pace ? (s.pace.at((n * 1000) / sampleRate).source * sampleRate) / 1000 : n * s.speed);
    return this.once(`segment ${s.index}`, () => {
      if (!s.config.reverse) return stretched(source, (n) => s.start * sampleRate + played(n), length);
      const plain = isPlain(s);
      const end = plain ? Math.round(s.start * sampleRate) + length : Math.round(s.turned * sampleRate);
      const turned = reversed(source, end, Math.ceil(played(length)) + sampleRate);
      return plain ? turned : stretched(turned, played, length);
    });
  }

  private segmentVoice(s: PlacedSegment, directives: DirectiveConfig[], speaks: boolean): Voice {
    const [from, to] = [this.sampleAt(s.begin), this.sampleAt(s.end)];
    const start = s.start * sampleRate;
    const points = pointsGain(s.config.volumePoints, from);
    const volume = s.config.volumeScale ?? 1;
    const mutes = directives.filter((d) => d.muteOriginalSegmentAudio).map((d) => [samplesOf(d.rangeStartMs), samplesOf(d.rangeEndMs)] as const);
    const joins = this.joinGain(s, from, to);
    const straight = isStraight(s);
    return {
      from,
      to,
      pcm: () =>
        straight ? this.atTempo(s.config.sourceAssetKey, this.sounds.sound(s.config.sourceAssetKey, s.start), start, s.speed, to - from) : this.turnedOrBent(s, to - from),
      offset: straight && s.speed === 1 ? Math.round(start) : 0,
      period: 0,
      gain: (t) => (mutes.some(([a, b]) => t >= a && t < b) ? 0 : volume * points(t) * joins(t)),
      duck: -1,
      speaks,
    };
  }

  /** Crosses the sounds of an overlap with equal power, and takes a fade's down to silence. */
  private joinGain(s: PlacedSegment, from: number, to: number): Gain {
    const [into, out] = [overlapOf(s.join), overlapOf(s.next)];
    const fadeIn = s.join && !into ? s.join.frames - Math.floor(s.join.frames / 2) : 0;
    const fadeOut = s.next && !out ? Math.floor(s.next.frames / 2) : 0;
    const span = (frames: number) => Math.max(1, this.sampleAt(frames));
    return (t) => {
      let gain = 1;
      if (into) gain *= Math.sin((clamp((t - from) / span(into)) * Math.PI) / 2);
      if (out) gain *= Math.cos((clamp((t - (to - span(out))) / span(out)) * Math.PI) / 2);
      if (fadeIn) gain *= clamp((t - from) / span(fadeIn));
      if (fadeOut) gain *= clamp((to - t) / span(fadeOut));
      return gain;
    };
  }

  private musicVoice(m: MusicConfig): Voice {
    const speed = m.speed ?? 1;
    const source = this.sounds.sound(m.audioAssetKey, (m.sourceTrimStartMs ?? 0) / 1000);
    const begin = samplesOf(m.sourceTrimStartMs ?? 0);
    const range = Math.max(0, (m.sourceTrimEndMs ? samplesOf(m.sourceTrimEndMs) : (source?.total ?? 0)) - begin);
    const period = Math.round(range / speed);
    const from = samplesOf(m.startMs);
    const to = Math.min(this.length, m.endMs ? samplesOf(m.endMs) : Infinity, m.loop ? Infinity : from + period);
    let [fadeIn, fadeOut] = [samplesOf(m.fadeInMs ?? 0), samplesOf(m.fadeOutMs ?? 0)];
    const shrink = Math.min(1, (to - from) / Math.max(1, fadeIn + fadeOut));
    [fadeIn, fadeOut] = [fadeIn * shrink, fadeOut * shrink];
    const points = pointsGain(m.volumePoints, from);
    if (m.ducking) this.duckings.push({ amountDb: 9, attackMs: 150, releaseMs: 600, ...m.ducking });
    return {
      from,
      to,
      pcm: () => this.atTempo(m.audioAssetKey, source, begin, speed, period),
      offset: speed === 1 ? begin : 0,
      period: m.loop ? period : 0,
      gain: (t) => (m.volume ?? 1) * points(t) * (fadeIn ? clamp((t - from) / fadeIn) : 1) * (fadeOut ? clamp((to - t) / fadeOut) : 1),
      duck: m.ducking ? this.duckings.length - 1 : -1,
      speaks: !!m.voice,
    };
  }

  private stemsOf(d: DirectiveConfig): Voice[] {
    const [from, to] = [samplesOf(d.rangeStartMs), Math.min(this.length, samplesOf(d.rangeEndMs))];
    const tempo = d.appliedSpeedScale ?? 1;
    const start = samplesOf(d.sourceOffsetMs ?? 0);
    return (d.selections ?? []).map(({ stemId, separationJobId, volume = 1, volumePoints }) => {
      const points = pointsGain(volumePoints, from);
      const key = stemName(separationJobId, stemId);
      return {
        from,
        to,
        pcm: () => this.atTempo(key, this.sounds.sound(key, start / sampleRate), start, tempo, to - from),
        offset: tempo === 1 ? start : 0,
        period: 0,
        gain: (t: number) => volume * points(t),
        duck: -1,
        speaks: stemId !== 'background',
      };
    });
  }

  private limiter = new Limiter();
  /** The sample at which the next piece begins. */
  private next = -1;

  /** Mixes the film's samples [from, from + length): piece after piece, or from anywhere. */
  mix(from: number, length: number): Mixed {
    if (from !== this.next) {
      this.limiter = new Limiter();
      this.limiter.process(this.unlimited(from, lookAhead));
    }
    this.next = from + length;
    const out = this.unlimited(from + lookAhead, length);
    this.limiter.process(out);
    return out;
  }

  private unlimited(from: number, length: number): Mixed {
    const out = this.add(from, length, this.voices, true);
    this.fadeEnds(out, from);
    return out;
  }

  private add(from: number, length: number, voices: Voice[], ducked: boolean): Mixed {
    const out: Mixed = { left: new Float32Array(length), right: new Float32Array(length) };
    const block = 64; // gains are linear within it
    for (const v of voices) {
      const [first, last] = [Math.max(from, v.from), Math.min(from + length, v.to)];
      if (first >= last) continue;
      const pcm = v.pcm();
      const gain: Gain = ducked && v.duck >= 0 ? (t) => v.gain(t) * this.duckGain(v.duck, t) : v.gain;
      for (let at = first; at < last; at += block) {
        const end = Math.min(last, at + block);
        const [a, b] = [gain(at), gain(end)];
        for (let t = at; t < end; t++) {
          const played = t - v.from;
          const sample = v.offset + (v.period ? played % v.period : played) - pcm.begin;
          const g = pcm.scale * (a + ((b - a) * (t - at)) / block);
          out.left[t - from] = (out.left[t - from] ?? 0) + g * (pcm.left[sample] ?? 0);
          out.right[t - from] = (out.right[t - from] ?? 0) + g * (pcm.right[sample] ?? 0);
        }
      }
    }
    return out;
  }

  private fadeEnds(out: Mixed, from: number): void {
    const { fadeIn, fadeOut, frames } = this.film;
    const rise = fadeIn ? this.sampleAt(fadeIn.frames) : 0;
    const fall = fadeOut ? this.length - this.sampleAt(frames - fadeOut.frames) : 0;
    for (let i = 0; i < out.left.length; i++) {
      const t = from + i;
      if (t >= rise && t < this.length - fall) continue;
      const gain = (rise ? clamp(t / rise) : 1) * (fall ? clamp((this.length - t) / fall) : 1);
      out.left[i] = (out.left[i] ?? 0) * gain;
      out.right[i] = (out.right[i] ?? 0) * gain;
    }
  }

  private duckGain(index: number, sample: number): number {
    this.duckGains ??= this.duckings.map((d) => duckCurve(this.presence(), d));
    return this.duckGains[index]?.[Math.floor(sample / tick)] ?? 1;
  }

  private present: boolean[] | undefined;

  /** Whether a voice is heard, every 10 ms: its RMS over 50 ms is above -45 dBFS; pauses under half a second belong to it. */
  private presence(): boolean[] {
    if (this.present) return this.present;
    const speaking = this.voices.filter((v) => v.speaks);
    const energy = new Float64Array(Math.ceil(this.length / tick));
    for (let k = 0; k < energy.length; k++) {
      const { left, right } = this.add(k * tick, tick, speaking, false);
      const sum = (side: Float32Array) => side.reduce((s, v) => s + v * v, 0);
      energy[k] = Math.max(sum(left), sum(right)) / tick;
    }
    const floor = 10 ** (-45 / 10);
    const heard = Array.from(energy, (_, k) => energy.subarray(Math.max(0, k - 2), k + 3).reduce((s, e) => s + e, 0) / 5 > floor);
    for (let k = 0, last = -Infinity; k < heard.length; k++) {
      if (!heard[k]) continue;
      if (k - last < 50) heard.fill(true, last, k);
      last = k;
    }
    return (this.present = heard);
  }
}

/** 10 ms in samples. */
const tick = sampleRate / 100;

/** The gain has already fallen when a voice begins, and rises when the voice ends. */
function duckCurve(heard: boolean[], { amountDb, attackMs, releaseMs }: { amountDb: number; attackMs: number; releaseMs: number }): Float32Array {
  const db = new Float32Array(heard.length);
  const fall = amountDb / Math.max(1, attackMs / 10);
  const rise = amountDb / Math.max(1, releaseMs / 10);
  for (let k = 0, at = 0; k < heard.length; k++) db[k] = at = heard[k] ? amountDb : Math.max(0, at - rise);
  for (let k = heard.length - 1, at = 0; k >= 0; k--) {
    at = heard[k] ? amountDb : Math.max(0, at - fall);
    db[k] = Math.max(db[k] ?? 0, at);
  }
  return db.map((d) => 10 ** (-d / 20));
}
