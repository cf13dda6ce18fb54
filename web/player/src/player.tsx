// The film as it will be, before it is rendered: play, pause, scrub, frame by frame.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { seconds } from './media';
import { Icon } from './parts';
import type { FilmConfig } from './preview/config';
import { blended, drawFrame, nearer, needs, type Need } from './preview/draw';
import { Library } from './preview/library';
import { Mixer } from './preview/mix';
import { sampleRate } from './preview/pcm';
import { planFilm, sourceFrame, type Film } from './preview/plan';

/** A frame of a clip to show in place of the film, while a finger trims. */
export interface Peek {
  assetKey: string;
  atMs: number;
}

/** The longer side of the drawn picture, in pixels. */
const drawnSide = 960;
/** How far ahead of the playhead sound is mixed, in seconds. */
const mixedAhead = 1.5;
const piece = sampleRate / 4;

/** Neighbouring segments have different slots, so that each is read in order. A trimming finger has its own. */
const slotOf = ({ segment }: Need): number => segment.index % 2;
const peekSlot = 2;
/** How long before the start of a segment its first pictures are decoded, in frames. */
const soon = 20;

/** Plans the film of a request once all its clips are open. */
function useFilm(config: FilmConfig): { film: Film | undefined; library: Library; drawn: number; heard: boolean } {
  const [drawn, redraw] = useState(0);
  const library = useMemo(() => new Library(() => redraw((n) => n + 1)), []);
  const text = JSON.stringify(config);
  useEffect(() => library.open(config), [text]);
  useEffect(() => () => library.close(), []);
  const ready = config.segments.every((s) => library.clip(s.sourceAssetKey));
  const film = useMemo(() => {
    if (!ready || !config.segments.length) return undefined;
    return planFilm(config, (key) => library.clip(key)?.facts ?? { width: 16, height: 9, starts: [0], zero: 0, end: 1 });
  }, [text, ready]);
  return { film, library, drawn, heard: library.hears(config) };
}

export function Player(props: {
  config: FilmConfig;
  /** The playhead, in milliseconds of the film. */
  at: number;
  seek: (ms: number) => void;
  peek: Peek | undefined;
  /** Splits the segment at the playhead. */
  split: (() => void) | undefined;
}) {
  const { config, at, seek, peek } = props;
  const { film, library, drawn, heard } = useFilm(config);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [playing, setPlayingOnly] = useState(false);
  const audio = useRef<AudioContext | undefined>(undefined);
  const setPlaying = (on: boolean) => {
    // A phone lets a page play sound only from within a tap. So the audio context starts here, and waits if the sound is not open yet.
    if (on && !audio.current) {
      audio.current = new AudioContext({ sampleRate });
      void audio.current.resume();
    }
    setPlayingOnly(on);
  };
  const rate = film ? film.rate.num / film.rate.den : 30;
  const frames = film?.frames ?? 0;
  const frame = Math.min(Math.max(0, frames - 1), Math.max(0, Math.floor((at * rate) / 1000 + 1e-6)));
  const toFrame = (n: number) => seek((Math.min(frames - 1, Math.max(0, n)) * 1000) / rate);

  useEffect(() => {
    const ctx = canvas.current?.getContext('2d');
    if (!ctx || !film) return;
    if (peek) return drawPeek(ctx, film, library, peek);
    const clipOf = (need: Need) => library.clip(need.segment.config.sourceAssetKey);
    // A video element seeks to one picture at a time, so it shows the nearer one of two.
    const shown = needs(film, frame).map((need) => (clipOf(need)?.by === 'video' ? nearer(need) : need));
    const next = needs(film, Math.min(film.frames - 1, frame + soon)).filter((n) => shown.every((s) => slotOf(s) !== slotOf(n)));
    library.rest([...shown, ...next].map((need) => [need.segment.config.sourceAssetKey, slotOf(need)]));
    const backwards = ({ segment }: Need) => !!segment.config.reverse;
    // Backwards, the upper one of two pictures is decoded last.
    for (const need of shown) clipOf(need)?.want(backwards(need) ? need.upper : need.frame, slotOf(need), backwards(need));
    for (const need of next) clipOf(need)?.want(sourceFrame(need.segment, 0), slotOf(need), backwards(need));
    const pictureOf = (need: Need) => {
      const [lower, upper] = [clipOf(need)?.at(need.frame), clipOf(need)?.at(need.upper)];
      return lower && upper && need.weight ? blended(lower, upper, need.weight) : upper && lower;
    };
    // While the film plays, a late picture gives way to the one before it. Otherwise the last one stays until this one is there.
    const pictures = new Map(shown.map((need) => [need.segment, pictureOf(need) ?? (playing ? clipOf(need)?.before(need.frame, backwards(need)) : undefined)]));
    if (![...pictures.values()].every(Boolean)) return;
    drawFrame(ctx, film, frame, ({ segment }) => pictures.get(segment));
    // A test compares this with the rendered film.
    ctx.canvas.dataset['frame'] = String(frame);
    ctx.canvas.dataset['sources'] = shown.map((n) => `${n.segment.index}:${n.frame}`).join(' ');
  }, [film, frame, drawn, playing, peek?.assetKey, peek?.atMs]);

  const bare = !config.segments.length;
  useEffect(() => {
    if (!bare) return;
    setPlaying(false);
    canvas.current?.getContext('2d')?.clearRect(0, 0, canvas.current.width, canvas.current.height);
  }, [bare]);

  usePlayback(playing && heard, audio, film, config, library, frame, toFrame, () => setPlaying(false));
  const wide = film ? film.width / film.height : 16 / 9;
  const [width, height] = wide > 1 ? [drawnSide, Math.round(drawnSide / wide)] : [Math.round(drawnSide * wide), drawnSide];
  const by = film && config.segments.some((s) => library.clip(s.sourceAssetKey)?.by === 'storyboard');
  const length = (frames * 1000) / rate;
  return (
    <section
      class="player"
      aria-label="Preview"
      onKeyDown={(e) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
        if (e.key === ' ' && !(e.target instanceof HTMLButtonElement)) setPlaying(!playing);
        else if (e.key === 's' && props.split) props.split();
        else if (e.key === 'Home') toFrame(0);
        else if (e.key === 'End') toFrame(frames - 1);
        else if (step) toFrame(frame + step * (e.shiftKey ? Math.round(rate) : 1));
        else return;
        e.preventDefault();
      }}
    >
      <div class="stage">
        <canvas ref={canvas} width={width} height={height} style={{ aspectRatio: `${width} / ${height}` }} role="img" aria-label="The film at the playhead" onClick={() => film && setPlaying(!playing)} />
        {!film && !library.trouble && <p class="loading">{bare ? 'Add a clip to see the film.' : 'Opening the clips …'}</p>}
        {film && playing && !heard && <p class="loading">Opening the sound …</p>}
      </div>
      {by && <small class="note">This browser cannot decode one of the clips. Its pictures are from the service, a few of each clip.</small>}
      {library.cut && <small class="note">This film has more sound than a preview can hold. Its last part is silent here, and heard in the film.</small>}
      {library.trouble && (
        <p class="note" role="alert">
          {library.trouble}{' '}
          <button type="button" class="plain" onClick={library.again}>
            Try again
          </button>
        </p>
      )}
      <div class="transport">
        <button type="button" class="round" aria-label={playing ? 'Pause' : 'Play'} disabled={!film} onClick={() => setPlaying(!playing)}>
          <Icon of={playing ? 'pause' : 'play'} />
        </button>
        <button type="button" class="plain" aria-label="One frame back" disabled={!film} onClick={() => toFrame(frame - 1)}>
          ‹
        </button>
        <input
          type="range"
          aria-label="Playhead"
          aria-valuetext={`${seconds(at)} of ${seconds(length)}`}
          min={0}
          max={Math.max(0, frames - 1)}
          step={1}
          value={frame}
          disabled={!film}
          onInput={(e) => {
            setPlaying(false);
            toFrame(Number(e.currentTarget.value));
          }}
        />
        <button type="button" class="plain" aria-label="One frame on" disabled={!film} onClick={() => toFrame(frame + 1)}>
          ›
        </button>
        <output>
          {clock(at)} / {clock(length)}
        </output>
        {props.split && (
          <button type="button" aria-label="Split at the playhead" disabled={!film} onClick={props.split}>
            Split
          </button>
        )}
      </div>
    </section>
  );
}

/** 12345 as "0:12.3". */
function clock(ms: number): string {
  const tenths = Math.round(ms / 100);
  return `${Math.floor(tenths / 600)}:${((tenths % 600) / 10).toFixed(1).padStart(4, '0')}`;
}

function drawPeek(ctx: CanvasRenderingContext2D, film: Film, library: Library, { assetKey, atMs }: Peek): void {
  const clip = library.clip(assetKey);
  const segment = film.segments.find((s) => s.config.sourceAssetKey === assetKey);
  if (!clip || !segment) return;
  const n = Math.max(0, clip.facts.starts.findLastIndex((t) => t - clip.facts.zero <= atMs / 1000 + 0.001));
  library.rest([[assetKey, peekSlot]]);
  clip.want(n, peekSlot);
  if (!clip.at(n)) return;
  const still: Film = { ...film, fadeIn: undefined, fadeOut: undefined, segments: [{ ...segment, begin: 0, end: 1, join: undefined, next: undefined }] };
  drawFrame(ctx, still, 0, () => clip.at(n));
}

/** Plays sound and pictures from the playhead on. The sound is the clock. */
function usePlayback(playing: boolean, audio: { current: AudioContext | undefined }, film: Film | undefined, config: FilmConfig, library: Library, frame: number, toFrame: (n: number) => void, ended: () => void): void {
  const latest = useRef(toFrame);
  latest.current = toFrame;
  const text = JSON.stringify(config);
  useEffect(() => {
    if (!playing || !film) return;
    const mixer = new Mixer(film, config, library);
    const ctx = audio.current ?? new AudioContext({ sampleRate });
    audio.current = undefined;
    void ctx.resume();
    const perFrame = (sampleRate * film.rate.den) / film.rate.num;
    const start = frame >= film.frames - 1 ? 0 : Math.round(frame * perFrame);
    const begun = ctx.currentTime + 0.1;
    let [mixed, request] = [start, 0];
    const turn = () => {
      const played = start + Math.max(0, ctx.currentTime - begun) * sampleRate;
      while (mixed < mixer.length && mixed < played + mixedAhead * sampleRate) {
        const length = Math.min(piece, mixer.length - mixed);
        const { left, right } = mixer.mix(mixed, length);
        const buffer = new AudioBuffer({ length, numberOfChannels: 2, sampleRate });
        buffer.copyToChannel(left as Float32Array<ArrayBuffer>, 0);
        buffer.copyToChannel(right as Float32Array<ArrayBuffer>, 1);
        const node = ctx.createBufferSource();
        node.buffer = buffer;
        node.connect(ctx.destination);
        node.start(begun + (mixed - start) / sampleRate);
        mixed += length;
      }
      if (played >= mixer.length) return ended();
      latest.current(Math.floor(played / perFrame));
      request = requestAnimationFrame(turn);
    };
    request = requestAnimationFrame(turn);
    return () => {
      cancelAnimationFrame(request);
      void ctx.close();
    };
  }, [playing, film, text]);
}
