// The film's music and recorded voices: waveform, fades, volume over time, and ducking under voices.

import type { Point, Remove, Sound } from './draft';
import { analysisOf, type Analysis } from './files';
import { heardOf, Lane } from './lane';
import { seconds } from './media';
import { Act, Icon, Slider, useAnswer, Volume } from './parts';
import type { Change } from './projects';
import { drag } from './strip';

interface Props {
  sound: Sound;
  filmMs: number;
  change: Change;
  has: (feature: string) => boolean;
}

/** Changes one sound; the steps of one control are one edit. */
const setter = ({ change, sound: { id } }: Props) => (part: Partial<Sound>) =>
  change((old) => ({ ...old, sounds: old.sounds.map((s) => (s.id === id ? { ...s, ...part } : s)) }), `sound ${id} ${Object.keys(part).join()}`);

/** The service's analysis of a sound. */
export const useAnalysis = (assetKey = '', on: boolean): Analysis | undefined => useAnswer(on ? assetKey : '', () => analysisOf(assetKey));

/** The settings of a sound that have no place on the line. */
export function SoundCard(props: Props & { remove: Remove }) {
  const { sound, has } = props;
  const set = setter(props);
  const analysis = useAnalysis(sound.assetKey, has('analysis'));
  const title = sound.voice ? sound.name : 'the music';
  const remove = () => props.remove(sound.name, (old) => ({ ...old, sounds: old.sounds.filter((s) => s.id !== sound.id) }));
  const startMs = sound.startMs ?? 0;
  const fromMs = sound.fromMs ?? 0;
  return (
    <div class="music" role="group" aria-label={sound.name}>
      <div class="track">
        <strong>
          <Icon of={sound.voice ? 'speech' : 'music'} /> <span class="long">{sound.name}</span>
        </strong>
        <Volume of={title} value={sound.volume} set={(volume) => set({ volume })} />
        <button type="button" class="plain" aria-label={`Remove ${title}`} onClick={remove}>
          Remove
        </button>
      </div>
      <div class="knobs">
        <Slider label="Begins at" of={`Where in the film ${sound.name} begins`} max={Math.max(0, Math.round(props.filmMs - 100), startMs)} step={100} value={startMs} text={seconds(startMs)} set={(ms) => set({ startMs: ms })} />
        {analysis && !sound.voice && (
          <Slider label="Song from" of={`Where in ${sound.name} it begins`} max={Math.max(0, (sound.toMs ?? analysis.durationMs) - 1000)} step={100} value={fromMs} text={seconds(fromMs)} set={(ms) => set({ fromMs: ms })} />
        )}
        {has('bgm.fade') && !sound.voice && (
          <>
            <Slider label="Fade in" max={10_000} step={100} value={sound.fadeInMs ?? 0} text={seconds(sound.fadeInMs ?? 0)} set={(fadeInMs) => set({ fadeInMs })} />
            <Slider label="Fade out" max={10_000} step={100} value={sound.fadeOutMs ?? 0} text={seconds(sound.fadeOutMs ?? 0)} set={(fadeOutMs) => set({ fadeOutMs })} />
          </>
        )}
        {has('bgm.loop') && !sound.voice && (
          <label class="check">
            <input type="checkbox" checked={!!sound.loop} onChange={(e) => set({ loop: e.currentTarget.checked })} /> Repeat until the film ends
          </label>
        )}
        {has('bgm.ducking') && !sound.voice && (
          <label class="check">
            <input type="checkbox" checked={!!sound.duckDb} onChange={(e) => set({ duckDb: e.currentTarget.checked ? 9 : 0 })} /> Duck under voices
          </label>
        )}
        {!!sound.duckDb && !sound.voice && has('bgm.ducking') && (
          <Slider label="Ducked by" min={1} max={24} step={1} value={sound.duckDb} text={`${sound.duckDb} dB`} set={(duckDb) => set({ duckDb })} />
        )}
      </div>
    </div>
  );
}

const top = 2; // the largest volume of a point
/** How far an arrow key moves a point, in milliseconds and in volume. */
const steps: Record<string, [number, number]> = { ArrowUp: [0, 0.05], ArrowDown: [0, -0.05], ArrowLeft: [-100, 0], ArrowRight: [100, 0] };

/** A sound along the film, with handles for its fades and its volume points. */
export function SoundLane(props: Props) {
  const { sound, filmMs, has } = props;
  const set = setter(props);
  const analysis = useAnalysis(sound.assetKey, has('analysis'));
  if (!analysis?.peaks) return null;
  const points = sound.points ?? [];
  const place = { startMs: Math.min(filmMs - 1, sound.startMs ?? 0), fromMs: sound.fromMs ?? 0, toMs: sound.toMs };
  /** How long it is heard: its fades and points lie in it. */
  const heard = heardOf(place, analysis.durationMs, filmMs, sound.loop);
  const x = (ms: number) => (100 * (place.startMs + ms)) / filmMs;
  const y = (volume: number) => 40 * (1 - volume / top);
  /** The time in the sound and the volume under the pointer. */
  const under = (e: MouseEvent): Point => {
    const box = (e.currentTarget as Element).closest('.bar')?.getBoundingClientRect() ?? new DOMRect(0, 0, 1, 1);
    const share = (at: number) => Math.min(1, Math.max(0, at));
    const ms = share((e.clientX - box.left) / box.width) * filmMs - place.startMs;
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
  const shrink = Math.min(1, heard / Math.max(1, (sound.fadeInMs ?? 0) + (sound.fadeOutMs ?? 0)));
  const [fadeIn, fadeOut] = [(sound.fadeInMs ?? 0) * shrink, (sound.fadeOutMs ?? 0) * shrink];
  const line = [{ atMs: 0, volume: points[0]?.volume ?? 1 }, ...points.filter((p) => p.atMs < heard), { atMs: heard, volume: points.at(-1)?.volume ?? 1 }];
  const levels = has('volumePoints');
  return (
    <>
      <Lane
        name={sound.name}
        label={`${sound.name} in the film, ${seconds(heard)}, ${points.length} volume points`}
        place={place}
        lengthMs={analysis.durationMs}
        peaks={analysis.peaks.data}
        filmMs={filmMs}
        loop={!!sound.loop}
        move={(part) => {
          // The points stay at their place of the song.
          const by = (part.fromMs ?? place.fromMs) - place.fromMs;
          set({ ...part, ...(by !== 0 && points.length > 0 && { points: points.map((p) => ({ ...p, atMs: p.atMs - by })).filter((p) => p.atMs >= 0) }) });
        }}
        tap={levels ? (e) => keep([...points, under(e)]) : undefined}
        over={
          <>
            {levels && <polyline class="level" points={line.map((p) => `${x(p.atMs)},${y(p.volume)}`).join(' ')} />}
            <polygon class="fade" points={`${x(0)},0 ${x(fadeIn)},0 ${x(0)},40`} />
            <polygon class="fade" points={`${x(heard)},0 ${x(heard - fadeOut)},0 ${x(heard)},40`} />
          </>
        }
      >
        {has('bgm.fade') && (
          <>
            <span class="handle" style={{ left: `${x(fadeIn)}%` }} aria-hidden="true" onPointerDown={dragging((at) => set({ fadeInMs: Math.min(30_000, at.atMs) }))} />
            <span class="handle" style={{ left: `${x(heard - fadeOut)}%` }} aria-hidden="true" onPointerDown={dragging((at) => set({ fadeOutMs: Math.min(30_000, Math.round(heard - at.atMs)) }))} />
          </>
        )}
        {levels &&
          points.map((p, i) => (
            <button
              key={i}
              type="button"
              class="point"
              style={{ left: `${x(p.atMs)}%`, top: `${(100 * y(p.volume)) / 40}%` }}
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
      </Lane>
      {levels && (
        <div class="row hint">
          <small>Tap a sound to set its volume at a time, and a point twice to remove it. Drag the corners to fade, the ends to trim.</small>
          <Act class="plain" label={`Add a volume point to ${sound.name}`} act={add}>
            Add a volume point
          </Act>
        </div>
      )}
    </>
  );
}
