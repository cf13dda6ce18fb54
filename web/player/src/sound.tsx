// The film's music: its waveform, fades, volume over time, and ducking under
// voices.

import { useEffect, useRef, useState } from 'preact/hooks';
import { answer, api, type Schemas } from './api';
import type { Music, Point } from './draft';
import { seconds } from './media';
import { Act, Icon, Slider, Volume } from './parts';
import type { Change, Remove } from './studio';

type Analysis = Schemas['Analysis'];

/** The service's analysis of a file, fetched once. */
const known = new Map<string, Promise<Analysis>>();
export function analysisOf(assetKey: string): Promise<Analysis> {
  const asked = known.get(assetKey) ?? answer(api.POST('/api/v2/assets/analysis', { body: { assetKey, points: 600 } }));
  known.set(assetKey, asked);
  asked.catch(() => known.delete(assetKey));
  return asked;
}

export function Sound(props: { music: Music; change: Change; remove: Remove; has: (feature: string) => boolean }) {
  const { music, change, has } = props;
  const [found, setFound] = useState<Analysis>();
  const set = (part: Partial<Music>) => change((old) => ({ ...old, music: old.music && { ...old.music, ...part } }));
  useEffect(() => {
    setFound(undefined);
    if (has('analysis')) analysisOf(music.assetKey).then(setFound, () => {});
  }, [music.assetKey, has('analysis')]);
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
      {found?.peaks && <Lane music={music} analysis={found} set={set} has={has} />}
      <div class="knobs">
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

/** The waveform with handles for the fades and the volume points. */
function Lane(props: { music: Music; analysis: Analysis; set: (part: Partial<Music>) => void; has: (feature: string) => boolean }) {
  const { music, analysis, set, has } = props;
  const lane = useRef<SVGSVGElement>(null);
  const length = analysis.durationMs;
  const points = music.points ?? [];
  const x = (ms: number) => (100 * ms) / length;
  const y = (volume: number) => 40 * (1 - volume / top);
  /** The time and the volume under the pointer. */
  const under = (e: MouseEvent): Point => {
    const box = lane.current?.getBoundingClientRect() ?? new DOMRect(0, 0, 1, 1);
    const share = (at: number) => Math.min(1, Math.max(0, at));
    return { atMs: Math.round(share((e.clientX - box.left) / box.width) * length), volume: Math.round(share(1 - (e.clientY - box.top) / box.height) * top * 20) / 20 };
  };
  const keep = (list: Point[]) => set({ points: list.sort((a, b) => a.atMs - b.atMs).filter((p, i, all) => p.atMs !== all[i - 1]?.atMs).slice(0, 64) });
  const drag = (moved: (at: Point) => void) => (e: PointerEvent) => {
    e.stopPropagation();
    const handle = e.currentTarget as Element;
    handle.setPointerCapture(e.pointerId);
    const move = (m: Event) => moved(under(m as PointerEvent));
    handle.addEventListener('pointermove', move);
    handle.addEventListener('lostpointercapture', () => handle.removeEventListener('pointermove', move), { once: true });
  };
  /** Adds a point in the middle of the longest stretch without one. */
  const add = () => {
    const ends = [0, ...points.map((p) => p.atMs), length];
    const gaps = ends.slice(1).map((to, i) => ({ from: ends[i] ?? 0, to }));
    const { from, to } = gaps.reduce((a, b) => (b.to - b.from > a.to - a.from ? b : a));
    keep([...points, { atMs: Math.round((from + to) / 2), volume: 1 }]);
  };
  /** A point that an arrow key has moved, in time up to its neighbours. */
  const stepped = (p: Point, i: number, key: string): Point | undefined => {
    const [ms, volume] = steps[key] ?? [];
    if (ms === undefined || volume === undefined) return undefined;
    const [least, most] = [points[i - 1]?.atMs ?? -1, points[i + 1]?.atMs ?? length + 1];
    const loud = Math.round((p.volume + volume) * 20) / 20;
    return { atMs: Math.min(most - 1, Math.max(least + 1, p.atMs + ms)), volume: Math.min(top, Math.max(0, loud)) };
  };
  const fadeIn = music.fadeInMs ?? 0;
  const fadeOut = music.fadeOutMs ?? 0;
  const line = [{ atMs: 0, volume: points[0]?.volume ?? 1 }, ...points, { atMs: length, volume: points.at(-1)?.volume ?? 1 }];
  const data = analysis.peaks?.data ?? [];
  const loudest = Math.max(1, ...data.map(Math.abs));
  return (
    <figure class="lane">
      <svg
        ref={lane}
        viewBox="0 0 100 40"
        preserveAspectRatio="none"
        role="img"
        aria-label={`Waveform of ${music.name}, ${seconds(length)}, ${points.length} volume points`}
        onClick={(e) => has('volumePoints') && keep([...points, under(e)])}
      >
        <path class="wave" d={waveOf(data, loudest)} />
        {has('volumePoints') && <polyline class="level" points={line.map((p) => `${x(p.atMs)},${y(p.volume)}`).join(' ')} />}
        {has('bgm.fade') && (
          <>
            <polygon class="fade" points={`0,0 ${x(fadeIn)},0 0,40`} />
            <polygon class="fade" points={`100,0 ${100 - x(fadeOut)},0 100,40`} />
          </>
        )}
      </svg>
      {has('bgm.fade') && (
        <>
          <span class="handle" style={{ left: `${x(fadeIn)}%` }} aria-hidden="true" onPointerDown={drag((at) => set({ fadeInMs: Math.min(30_000, at.atMs) }))} />
          <span class="handle" style={{ left: `${100 - x(fadeOut)}%` }} aria-hidden="true" onPointerDown={drag((at) => set({ fadeOutMs: Math.min(30_000, length - at.atMs) }))} />
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
            onPointerDown={drag((at) => keep([...points.filter((_, n) => n !== i), at]))}
            onDblClick={() => keep(points.filter((_, n) => n !== i))}
            onKeyDown={(e) => {
              const next = stepped(p, i, e.key);
              if (e.key === 'Delete' || e.key === 'Backspace') keep(points.filter((_, n) => n !== i));
              else if (next) keep(points.map((o, n) => (n === i ? next : o)));
              else return;
              e.preventDefault();
            }}
          />
        ))}
      {has('bgm.fade') && has('volumePoints') && (
        <figcaption class="row">
          <small>Tap the waveform to set the volume at a time, and a point twice to remove it. Drag the corners to fade.</small>
          <Act class="plain" act={add}>
            Add a volume point
          </Act>
        </figcaption>
      )}
    </figure>
  );
}

/** The outline of pairs of the lowest and the highest sample, 100 wide and 40 high. */
function waveOf(data: number[], loudest: number): string {
  const count = data.length / 2;
  let d = '';
  for (let i = 0; i < count; i++) {
    const [low = 0, high = 0] = [data[2 * i], data[2 * i + 1]];
    d += `M${(100 * i) / count} ${20 - (19 * high) / loudest}V${20 - (19 * low) / loudest}`;
  }
  return d;
}
