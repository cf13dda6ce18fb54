// The film's music: its waveform, fades, volume over time, and ducking under
// voices.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { Schemas } from './api';
import type { Music, Point } from './draft';
import { analysisOf } from './files';
import { seconds } from './media';
import { Act, Icon, Slider, Volume } from './parts';
import type { Change } from './projects';
import { drag } from './strip';
import type { Remove } from './studio';

type Analysis = Schemas['Analysis'];

/** Changes the music; the steps of one control are one edit. */
const setter = (change: Change) => (part: Partial<Music>) =>
  change((old) => ({ ...old, music: old.music && { ...old.music, ...part } }), `music ${Object.keys(part).join()}`);

/** The service's analysis of the music. */
export function useAnalysis(assetKey: string | undefined, on: boolean): Analysis | undefined {
  const [found, setFound] = useState<Analysis>();
  useEffect(() => {
    setFound(undefined);
    if (assetKey && on) analysisOf(assetKey).then(setFound, () => {});
  }, [assetKey, on]);
  return found;
}

export function Sound(props: { music: Music; analysis: Analysis | undefined; filmMs: number; change: Change; remove: Remove; has: (feature: string) => boolean }) {
  const { music, analysis, has } = props;
  const set = setter(props.change);
  return (
    <div class="music">
      <div class="track">
        <strong>
          <Icon of="music" /> {music.name}
        </strong>
        <Volume of="the music" value={music.volume} set={(volume) => set({ volume })} />
        <button type="button" class="plain" aria-label="Remove the music" onClick={() => props.remove('The music', (old) => ({ ...old, music: undefined }))}>
          Remove
        </button>
      </div>
      <div class="knobs">
        <Slider label="Begins at" of="Where in the film the music begins" max={Math.max(0, Math.round(props.filmMs - 100))} step={100} value={music.startMs ?? 0} text={seconds(music.startMs ?? 0)} set={(startMs) => set({ startMs })} />
        {analysis && (
          <Slider
            label="Song from"
            of="Where in the song the music begins"
            max={Math.max(0, analysis.durationMs - 1000)}
            step={100}
            value={music.fromMs ?? 0}
            text={seconds(music.fromMs ?? 0)}
            set={(fromMs) => set({ fromMs })}
          />
        )}
        {has('bgm.fade') && (
          <>
            <Slider label="Fade in" max={10_000} step={100} value={music.fadeInMs ?? 0} text={seconds(music.fadeInMs ?? 0)} set={(fadeInMs) => set({ fadeInMs })} />
            <Slider label="Fade out" max={10_000} step={100} value={music.fadeOutMs ?? 0} text={seconds(music.fadeOutMs ?? 0)} set={(fadeOutMs) => set({ fadeOutMs })} />
          </>
        )}
        {has('bgm.loop') && (
          <label class="check">
            <input type="checkbox" checked={!!music.loop} onChange={(e) => set({ loop: e.currentTarget.checked })} /> Repeat until the film ends
          </label>
        )}
        {has('bgm.ducking') && (
          <label class="check">
            <input type="checkbox" checked={!!music.duckDb} onChange={(e) => set({ duckDb: e.currentTarget.checked ? 9 : 0 })} /> Duck under voices
          </label>
        )}
        {!!music.duckDb && has('bgm.ducking') && (
          <Slider label="Ducked by" min={1} max={24} step={1} value={music.duckDb} text={`${music.duckDb} dB`} set={(duckDb) => set({ duckDb })} />
        )}
      </div>
    </div>
  );
}

const top = 2; // the largest volume of a point
/** How far an arrow key moves a point, in milliseconds and in volume. */
const steps: Record<string, [number, number]> = { ArrowUp: [0, 0.05], ArrowDown: [0, -0.05], ArrowLeft: [-100, 0], ArrowRight: [100, 0] };

/** The music along the film, with handles for the fades and the volume points. */
export function Lane(props: { music: Music; analysis: Analysis; filmMs: number; change: Change; has: (feature: string) => boolean }) {
  const { music, analysis, filmMs, has } = props;
  const set = setter(props.change);
  const lane = useRef<SVGSVGElement>(null);
  const points = music.points ?? [];
  const begin = Math.min(filmMs, music.startMs ?? 0);
  const range = Math.max(1, analysis.durationMs - (music.fromMs ?? 0));
  const end = music.loop ? filmMs : Math.min(filmMs, begin + range);
  /** How long the music is heard: its fades and points lie in it. */
  const heard = Math.max(1, end - begin);
  const x = (ms: number) => (100 * (begin + ms)) / filmMs;
  const y = (volume: number) => 40 * (1 - volume / top);
  /** The time in the music and the volume under the pointer. */
  const under = (e: MouseEvent): Point => {
    const box = lane.current?.getBoundingClientRect() ?? new DOMRect(0, 0, 1, 1);
    const share = (at: number) => Math.min(1, Math.max(0, at));
    const ms = share((e.clientX - box.left) / box.width) * filmMs - begin;
    return { atMs: Math.round(Math.min(heard, Math.max(0, ms))), volume: Math.round(share(1 - (e.clientY - box.top) / box.height) * top * 20) / 20 };
  };
  const keep = (list: Point[]) => set({ points: list.sort((a, b) => a.atMs - b.atMs).filter((p, i, all) => p.atMs !== all[i - 1]?.atMs).slice(0, 64) });
  const dragging = (moved: (at: Point) => void) => (e: PointerEvent) => {
    e.stopPropagation();
    drag(e, (m) => moved(under(m)));
  };
  /** Adds a point in the middle of the longest stretch without one. */
  const add = () => {
    const ends = [0, ...points.map((p) => p.atMs), heard];
    const gaps = ends.slice(1).map((to, i) => ({ from: ends[i] ?? 0, to }));
    const { from, to } = gaps.reduce((a, b) => (b.to - b.from > a.to - a.from ? b : a));
    keep([...points, { atMs: Math.round((from + to) / 2), volume: 1 }]);
  };
  /** A point that an arrow key has moved, in time up to its neighbours. */
  const stepped = (p: Point, i: number, key: string): Point | undefined => {
    const [ms, volume] = steps[key] ?? [];
    if (ms === undefined || volume === undefined) return undefined;
    const [before, after] = [points[i - 1]?.atMs ?? -1, points[i + 1]?.atMs ?? heard + 1];
    const loud = Math.round((p.volume + volume) * 20) / 20;
    return { atMs: Math.min(after - 1, Math.max(before + 1, p.atMs + ms)), volume: Math.min(top, Math.max(0, loud)) };
  };
  const shrink = Math.min(1, heard / Math.max(1, (music.fadeInMs ?? 0) + (music.fadeOutMs ?? 0)));
  const [fadeIn, fadeOut] = [(music.fadeInMs ?? 0) * shrink, (music.fadeOutMs ?? 0) * shrink];
  const line = [{ atMs: 0, volume: points[0]?.volume ?? 1 }, ...points.filter((p) => p.atMs < heard), { atMs: heard, volume: points.at(-1)?.volume ?? 1 }];
  return (
    <figure class="lane">
      <svg
        ref={lane}
        viewBox="0 0 100 40"
        preserveAspectRatio="none"
        role="img"
        aria-label={`${music.name} in the film, ${seconds(heard)}, ${points.length} volume points`}
        onClick={(e) => has('volumePoints') && keep([...points, under(e)])}
      >
        <path class="wave" d={waveOf(analysis, music, begin, heard, filmMs)} />
        {has('volumePoints') && <polyline class="level" points={line.map((p) => `${x(p.atMs)},${y(p.volume)}`).join(' ')} />}
        {has('bgm.fade') && (
          <>
            <polygon class="fade" points={`${x(0)},0 ${x(fadeIn)},0 ${x(0)},40`} />
            <polygon class="fade" points={`${x(heard)},0 ${x(heard - fadeOut)},0 ${x(heard)},40`} />
          </>
        )}
      </svg>
      {has('bgm.fade') && (
        <>
          <span class="handle" style={{ left: `${x(fadeIn)}%` }} aria-hidden="true" onPointerDown={dragging((at) => set({ fadeInMs: Math.min(30_000, at.atMs) }))} />
          <span class="handle" style={{ left: `${x(heard - fadeOut)}%` }} aria-hidden="true" onPointerDown={dragging((at) => set({ fadeOutMs: Math.min(30_000, Math.round(heard - at.atMs)) }))} />
        </>
      )}
      {has('volumePoints') &&
        points.map((p, i) => (
          <button
            key={i}
            type="button"
            class="point"
            style={{ left: `${x(p.atMs)}%`, top: `calc(var(--lane) * ${y(p.volume) / 40})` }}
            aria-label={`Volume point at ${seconds(p.atMs)}, ${Math.round(p.volume * 100)} %. Arrow keys change it, Delete removes it.`}
            onPointerDown={dragging((at) => keep([...points.filter((_, n) => n !== i), at]))}
            onDblClick={() => keep(points.filter((_, n) => n !== i))}
            onKeyDown={(e) => {
              const next = stepped(p, i, e.key);
              if (e.key === 'Delete' || e.key === 'Backspace') keep(points.filter((_, n) => n !== i));
              else if (next) keep(points.map((o, n) => (n === i ? next : o)));
              else return;
              e.preventDefault();
              e.stopPropagation();
            }}
          />
        ))}
      {has('bgm.fade') && has('volumePoints') && (
        <figcaption class="row">
          <small>Tap the music to set its volume at a time, and a point twice to remove it. Drag the corners to fade.</small>
          <Act class="plain" act={add}>
            Add a volume point
          </Act>
        </figcaption>
      )}
    </figure>
  );
}

/** The outline of the music where it is heard, with the film 100 wide and 40 high. */
function waveOf(analysis: Analysis, music: Music, begin: number, heard: number, filmMs: number): string {
  const data = analysis.peaks?.data ?? [];
  const loudest = Math.max(1, ...data.map(Math.abs));
  const count = data.length / 2;
  const range = Math.max(1, analysis.durationMs - (music.fromMs ?? 0));
  const columns = Math.min(1200, Math.max(100, Math.round((count * heard) / analysis.durationMs)));
  let d = '';
  for (let k = 0; k < columns; k++) {
    const ms = (music.fromMs ?? 0) + (((k / columns) * heard) % range);
    const i = Math.min(count - 1, Math.floor((ms / analysis.durationMs) * count));
    const [low = 0, high = 0] = [data[2 * i], data[2 * i + 1]];
    d += `M${(100 * (begin + (k / columns) * heard)) / filmMs} ${20 - (19 * high) / loudest}V${20 - (19 * low) / loudest}`;
  }
  return d;
}
