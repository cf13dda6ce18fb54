// The look and the time of a segment: turned, cropped, moved over, corrected, backwards, along a curve of speeds.

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { lengthOf, speedAt, type Adjust, type Crop, type Move, type Segment, type SpeedPoint } from './draft';
import { seconds } from './media';
import type { Rotation } from './preview/config';
import { drawTurned, sizeOf } from './preview/look';
import { Act, Slider } from './parts';
import { drag } from './strip';

interface Props {
  name: string;
  segment: Segment;
  picture: string;
  set: (part: Partial<Segment>) => void;
  has: (feature: string) => boolean;
}

const panes: [label: string, features: string[], pane: (props: Props) => ComponentChildren][] = [
  ['Crop', ['rotate', 'mirror', 'crop'], (props) => <Turn {...props} />],
  ['Move', ['moves'], (props) => <Moving {...props} />],
  ['Light', ['adjust'], (props) => <Light {...props} />],
  ['Time', ['reverse', 'smooth', 'speedPoints'], (props) => <Time {...props} />],
];

/** The buttons of a segment's look, each of which opens what it sets. */
export function Look(props: Props) {
  const [opened, open] = useState('');
  const offered = panes.filter(([, features]) => features.some(props.has));
  const pane = offered.find(([label]) => label === opened)?.[2];
  if (!offered.length) return null;
  return (
    <div class="look">
      <div class="tabs">
        {offered.map(([label]) => (
          <button key={label} type="button" aria-expanded={label === opened} aria-label={`${label}: ${props.name}`} onClick={() => open(label === opened ? '' : label)}>
            {label}
          </button>
        ))}
      </div>
      {pane && (
        <div class="pane" role="group" aria-label={`${opened} of ${props.name}`}>
          {pane(props)}
        </div>
      )}
    </div>
  );
}

/** Buttons, one of which is pressed. */
const Presets = (props: { of: string; names: readonly string[]; pressed: string; press: (name: string) => void }) => (
  <div class="tabs" role="group" aria-label={props.of}>
    {props.names.map((name) => (
      <button key={name} type="button" aria-pressed={name === props.pressed} onClick={() => props.press(name)}>
        {name}
      </button>
    ))}
  </div>
);

const whole: Crop = { left: 0, top: 0, right: 0, bottom: 0 };
type Picture = Pick<Segment, 'rotate' | 'mirror' | 'crop'>;

/** A quarter turn to the right, as the user sees the picture. The service mirrors after it turns. */
function turned(s: Segment): Partial<Segment> {
  const { left, top, right, bottom } = s.crop ?? whole;
  return {
    rotate: (((s.rotate ?? 0) + (s.mirror ? 270 : 90)) % 360) as Rotation,
    crop: s.crop && { left: bottom, top: left, right: top, bottom: right },
    focusX: 1 - (s.focusY ?? 0.5),
    focusY: s.focusX ?? 0.5,
  };
}

const mirrored = (s: Segment): Partial<Segment> => ({
  mirror: !s.mirror,
  crop: s.crop && { ...s.crop, left: s.crop.right, right: s.crop.left },
  focusX: 1 - (s.focusX ?? 0.5),
});

async function drawn(picture: string, look: Picture): Promise<string> {
  const image = new Image();
  image.src = picture;
  await image.decode();
  const size = { width: image.naturalWidth, height: image.naturalHeight };
  const { width, height } = sizeOf(size, look);
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(1, Math.round(width));
  canvas.height = Math.max(1, Math.round(height));
  const context = canvas.getContext('2d');
  if (!context) return picture;
  drawTurned(context, image, size, look, 0, 0, 1);
  return canvas.toDataURL('image/jpeg');
}

/** The picture of a clip as a segment turns, mirrors and crops it. */
export function usePicture(picture: string, look: Picture = {}): string {
  const { rotate, mirror, crop } = look;
  const [shown, show] = useState(picture);
  useEffect(() => {
    let left = false;
    if (!picture || (!rotate && !mirror && !crop)) show(picture);
    else drawn(picture, look).then((made) => left || show(made), () => {});
    return () => void (left = true);
  }, [picture, rotate, mirror, JSON.stringify(crop)]);
  return shown;
}

/** The most that two opposite sides lose together. The service allows 0.9, but needs 16 pixels of the picture. */
const mostCropped = 0.8;
const corners = [['left', 'top'], ['right', 'top'], ['left', 'bottom'], ['right', 'bottom']] as const; // prettier-ignore
const opposite = { left: 'right', right: 'left', top: 'bottom', bottom: 'top' } as const;
type Side = keyof Crop;

function Turn({ name, segment: s, picture, set, has }: Props) {
  const shown = usePicture(picture, { rotate: s.rotate ?? 0, mirror: !!s.mirror });
  const [ratio, setRatio] = useState(16 / 9);
  const crop = s.crop ?? whole;
  const keep = (next: Crop) => set({ crop: Object.values(next).some(Boolean) ? next : undefined });
  /** Moves two sides to the new place of a corner. */
  const pull = (was: Crop, sides: readonly [Side, Side], by: [number, number]) => {
    const next = { ...was };
    sides.forEach((side, i) => {
      const share = was[side] + (side === 'left' || side === 'top' ? 1 : -1) * (by[i] ?? 0);
      next[side] = Math.round(1000 * Math.min(mostCropped - was[opposite[side]], Math.max(0, share))) / 1000;
    });
    keep(next);
  };
  const percent = (share: number) => `${Math.round(share * 1000) / 10}%`;
  return (
    <>
      <div class="tabs">
        {has('rotate') && (
          <button type="button" aria-label={`Turn ${name} to the right`} onClick={() => set(turned(s))}>
            Turn {s.rotate ? `(${s.rotate}°)` : ''}
          </button>
        )}
        {has('mirror') && (
          <button type="button" aria-label={`Mirror ${name}`} aria-pressed={!!s.mirror} onClick={() => set(mirrored(s))}>
            Mirror
          </button>
        )}
        {has('crop') && (
          <Act off={!s.crop} label={`Whole picture of ${name}`} act={() => keep(whole)}>
            Whole
          </Act>
        )}
      </div>
      {has('crop') && (
        <div class="cropper" style={{ '--ratio': ratio }}>
          {shown && <img src={shown} alt="" draggable={false} onLoad={(e) => setRatio(e.currentTarget.naturalWidth / e.currentTarget.naturalHeight)} />}
          <div class="dim">
            <div class="kept" style={{ left: percent(crop.left), top: percent(crop.top), right: percent(crop.right), bottom: percent(crop.bottom) }} />
          </div>
          {corners.map((sides) => (
            <button
              key={sides.join()}
              type="button"
              class="corner"
              style={{ [sides[0]]: percent(crop[sides[0]]), [sides[1]]: percent(crop[sides[1]]) }}
              aria-label={`Crop from the ${sides[1]} ${sides[0]}, ${percent(crop[sides[0]])} and ${percent(crop[sides[1]])}: drag it, or use the arrow keys`}
              onPointerDown={(e) => {
                const box = (e.currentTarget.parentElement ?? e.currentTarget).getBoundingClientRect();
                drag(e, (m) => pull(crop, sides, [(m.clientX - e.clientX) / box.width, (m.clientY - e.clientY) / box.height]));
              }}
              onKeyDown={(e) => {
                const by = ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] } as Record<string, [number, number]>)[e.key];
                if (!by) return;
                e.preventDefault();
                const step = e.shiftKey ? 0.002 : 0.02;
                pull(crop, sides, [by[0] * step, by[1] * step]);
              }}
            />
          ))}
        </div>
      )}
    </>
  );
}

const ways = ['Still', 'Zoom in', 'Zoom out', 'Pan right', 'Pan left'] as const;
type Way = (typeof ways)[number];
const usualScale = 1.25;

/** From the first frame to the last. A pan goes from one edge of the picture to the other. */
function movesOf(way: Way, scale: number, lengthMs: number): Move[] | undefined {
  if (way === 'Still') return undefined;
  const edge = Math.round(500 / scale) / 1000; // of the window, from its centre
  const begin = { atMs: 0, scale: way === 'Zoom in' ? 1 : scale, x: way === 'Pan right' ? edge : way === 'Pan left' ? 1 - edge : 0.5, y: 0.5 };
  const end = { scale: way === 'Zoom out' ? 1 : scale, x: 1 - begin.x, y: 0.5 };
  return [begin, { atMs: Math.max(1, Math.round(lengthMs)), ...end }];
}

/** The preset that some moves correspond to, '' if none. */
function wayOf(moves: Move[] | undefined): Way | '' {
  const [begin, end, more] = moves ?? [];
  if (!begin) return 'Still';
  if (!end || more) return '';
  if (begin.scale !== end.scale) return begin.scale < end.scale ? 'Zoom in' : 'Zoom out';
  return begin.x < end.x ? 'Pan right' : 'Pan left';
}

function Moving({ name, segment: s, set }: Props) {
  const way = wayOf(s.moves);
  const scale = Math.max(1.05, ...(s.moves ?? [{ scale: usualScale }]).map((m) => m.scale));
  return (
    <>
      <Presets of={`Moves of ${name}`} names={ways} pressed={way} press={(w) => set({ moves: movesOf(w as Way, scale, lengthOf(s)) })} />
      {way && way !== 'Still' && (
        <Slider label="How near" of={`How near ${name} comes`} min={1.05} max={4} step={0.05} value={scale} text={`${scale.toFixed(2)}×`} set={(v) => set({ moves: movesOf(way, v, lengthOf(s)) })} reset={() => set({ moves: movesOf(way, usualScale, lengthOf(s)) })} />
      )}
    </>
  );
}

const lights: [keyof Adjust, string][] = [['exposure', 'Exposure'], ['contrast', 'Contrast'], ['saturation', 'Saturation'], ['warmth', 'Warmth'], ['tint', 'Tint']]; // prettier-ignore

function Light({ name, segment: s, set }: Props) {
  const put = (field: keyof Adjust, value: number) => {
    const { [field]: _, ...others } = s.adjust ?? {};
    const adjust: Adjust = value ? { ...others, [field]: value } : others;
    set({ adjust: Object.keys(adjust).length ? adjust : undefined });
  };
  return (
    <>
      {lights.map(([field, label]) => {
        const value = s.adjust?.[field] ?? 0;
        const text = `${value > 0 ? '+' : ''}${Math.round(value * 100)}`;
        return <Slider key={field} label={label} of={`${label} of ${name}`} min={-1} max={1} step={0.05} value={value} text={text} set={(v) => put(field, v)} reset={() => put(field, 0)} />;
      })}
      <small>Tap a slider twice for 0.</small>
    </>
  );
}

/** Speeds at shares of the segment. */
const curves: Record<string, [share: number, speed: number][]> = {
  'Ramp up': [[0, 0.5], [1, 2]],
  'Ramp down': [[0, 2], [1, 0.5]],
  Hero: [[0, 2], [0.4, 0.4], [0.6, 0.4], [1, 2]],
  Bullet: [[0, 3], [0.4, 3], [0.5, 0.2], [0.6, 0.2], [0.7, 3], [1, 3]],
  Montage: [[0, 1], [0.25, 3], [0.5, 0.6], [0.75, 3], [1, 1]],
}; // prettier-ignore
const even = 'Even';

const curveOf = (shape: [share: number, speed: number][], rangeMs: number): SpeedPoint[] =>
  shape.map(([share, speed]) => ({ atMs: Math.round(share * rangeMs), speed }));

function Time({ name, segment: s, set, has }: Props) {
  const range = s.toMs - s.fromMs;
  const same = (shape: [number, number][]) => JSON.stringify(curveOf(shape, range)) === JSON.stringify(s.speedPoints);
  const pressed = s.speedPoints ? (Object.entries(curves).find(([, shape]) => same(shape))?.[0] ?? '') : even;
  const press = (curve: string) => {
    const shape = curves[curve];
    set({ speed: shape || s.speedPoints ? 1 : s.speed, speedPoints: shape && curveOf(shape, range) });
  };
  return (
    <>
      <div class="switches">
        {has('reverse') && (
          <label class="check">
            <input type="checkbox" aria-label={`Play ${name} backwards`} checked={!!s.reverse} onChange={(e) => set({ reverse: e.currentTarget.checked })} /> Backwards
          </label>
        )}
        {has('smooth') && (
          <label class="check">
            <input type="checkbox" aria-label={`Smooth slow motion of ${name}`} checked={!!s.smooth} onChange={(e) => set({ smooth: e.currentTarget.checked })} /> Smooth slow motion
          </label>
        )}
      </div>
      {s.reverse && <small>Backwards, a segment is heard with its own sound, without stems.</small>}
      {has('speedPoints') && <Presets of={`Speed curve of ${name}`} names={[even, ...Object.keys(curves)]} pressed={pressed} press={press} />}
      {has('speedPoints') && s.speedPoints && <Curve name={name} points={s.speedPoints} range={range} keep={(speedPoints) => set({ speedPoints })} />}
    </>
  );
}

const mostPoints = 16;
const bounded = (speed: number) => Math.round(100 * Math.min(10, Math.max(0.1, speed))) / 100;
/** How far an arrow key moves a point: in milliseconds, and by which factor of its speed. */
const steps: Record<string, [ms: number, factor: number]> = { ArrowUp: [0, 1.1], ArrowDown: [0, 1 / 1.1], ArrowLeft: [-50, 1], ArrowRight: [50, 1] };

/** The speed along the segment's clip, from 0.1 at the bottom over 1 in the middle to 10 at the top. */
function Curve({ name, points, range, keep }: { name: string; points: SpeedPoint[]; range: number; keep: (points: SpeedPoint[]) => void }) {
  const x = (ms: number) => (100 * ms) / range;
  const y = (speed: number) => 20 * (1 - Math.log10(speed));
  /** Moves a point, in time up to its neighbours. The first one stays at the start. */
  const put = (i: number, atMs: number, speed: number) => {
    const [least, most] = [(points[i - 1]?.atMs ?? -1) + 1, points[i + 1] ? (points[i + 1]?.atMs ?? 0) - 1 : Math.max(range, points[i]?.atMs ?? 0)];
    keep(points.map((p, n) => (n === i ? { atMs: i ? Math.round(Math.min(most, Math.max(least, atMs))) : 0, speed: bounded(speed) } : p)));
  };
  const remove = (i: number) => i > 0 && points.length > 2 && keep(points.filter((_, n) => n !== i));
  /** Adds a point in the middle of the longest stretch without one. */
  const add = () => {
    const gaps = points.map((p, i) => ({ from: p.atMs, to: points[i + 1]?.atMs ?? range }));
    const { from, to } = gaps.reduce((a, b) => (b.to - b.from > a.to - a.from ? b : a));
    const { speed, atMs } = speedAt(points, Math.round((from + to) / 2));
    if (atMs > from && atMs < to) keep([...points, { atMs, speed: bounded(speed) }].sort((a, b) => a.atMs - b.atMs));
  };
  const line = Array.from({ length: 101 }, (_, k) => `${k},${y(speedAt(points, (k * range) / 100).speed)}`);
  return (
    <>
      <div class="curve">
        <svg viewBox="0 0 100 40" preserveAspectRatio="none" role="img" aria-label={`Speed along ${name}, ${points.length} points`}>
          <rect width="100" height="40" />
          <line class="even" x1="0" x2="100" y1="20" y2="20" />
          <polyline class="level" points={line.join(' ')} />
        </svg>
        <small style={{ top: 0 }}>10×</small>
        <small style={{ top: 'calc(50% - 0.7em)' }}>1×</small>
        <small style={{ bottom: 0 }}>0.1×</small>
        {points.map((p, i) => (
          <button
            key={i}
            type="button"
            class="point"
            style={{ left: `${x(p.atMs)}%`, top: `${(100 * y(p.speed)) / 40}%` }}
            aria-label={`Speed point at ${seconds(p.atMs)}, ${p.speed.toFixed(2)}×. Arrow keys change it, Delete removes it.`}
            onPointerDown={(e) => {
              const box = (e.currentTarget.parentElement ?? e.currentTarget).getBoundingClientRect();
              drag(e, (m) => put(i, p.atMs + ((m.clientX - e.clientX) * range) / box.width, 10 ** (Math.log10(p.speed) - (2 * (m.clientY - e.clientY)) / box.height)));
            }}
            onDblClick={() => remove(i)}
            onKeyDown={(e) => {
              const [ms, factor] = steps[e.key] ?? [];
              if (e.key === 'Delete' || e.key === 'Backspace') remove(i);
              else if (ms !== undefined && factor !== undefined) put(i, p.atMs + ms, p.speed * factor);
              else return;
              e.preventDefault();
              e.stopPropagation();
            }}
          />
        ))}
      </div>
      <div class="row">
        <small>Drag the points; tap one twice to remove it.</small>
        <Act class="plain" off={points.length >= mostPoints} label={`Add a point to the curve of ${name}`} act={add}>
          Add a point
        </Act>
      </div>
    </>
  );
}
