// The segments of the film, in order: each is a clip, cut and at its speed, joined
// to the one before it, on one canvas.

import { useEffect, useState } from 'preact/hooks';
import { beginsOf, duplicated, lengthOf, lengthOfAll, without, type Clip, type Draft, type Fit, type JoinType, type Segment } from './draft';
import { seconds } from './media';
import { Act, focusNext, Popover, Slider, Volume } from './parts';
import { analysisOf } from './sound';
import type { Recording } from './speech';
import type { Change, Remove } from './studio';

const shortest = 200; // ms of a clip
const near = 250; // ms within which a cut snaps to an onset of the music

const joins: [JoinType | 'cut', string, string][] = [
  ['cut', 'Cut', '|'],
  ['dissolve', 'Dissolve', '⨉'],
  ['fadeBlack', 'Through black', '◼'],
  ['fadeWhite', 'Through white', '◻'],
];
const aspects: [string, string][] = [['', 'As filmed'], ['9:16', '9:16 story'], ['1:1', '1:1 square'], ['4:5', '4:5 feed'], ['16:9', '16:9 wide']]; // prettier-ignore
const fits: [Fit, string][] = [['contain', 'Bars'], ['cover', 'Fill'], ['blur', 'Blurred bars']]; // prettier-ignore

export function Timeline(props: {
  draft: Draft;
  change: Change;
  remove: Remove;
  has: (feature: string) => boolean;
  separate: (recording: Recording) => void;
}) {
  const { draft, change, has } = props;
  const { segments } = draft;
  const [chosen, choose] = useState<number>();
  const [snaps, setSnaps] = useState(false);
  const beats = useOnsets(snaps && has('analysis') ? draft.music?.assetKey : undefined);
  const edit = (f: (old: Segment[]) => Segment[]) => change((old) => ({ ...old, segments: f(old.segments) }));
  const clipOf = (s: Segment) => draft.clips.find((c) => c.assetKey === s.assetKey);
  if (!segments.length) return <p class="empty">Add clips above, or take the sample material. They line up here.</p>;
  const open = segments.some((s) => s.id === chosen) ? chosen : segments[0]?.id;
  const begins = beginsOf(segments);
  const set = (s: Segment, part: Partial<Segment>) => edit((old) => old.map((o) => (o.id === s.id ? { ...o, ...part } : o)));
  const clipEnd = (s: Segment) => clipOf(s)?.durationMs ?? s.toMs;
  /** The ends of a segment at which the next cut falls on an onset of the music. */
  const endsOnBeat = (s: Segment, i: number) =>
    beats.map((beat) => Math.round(s.fromMs + (beat - (begins[i] ?? 0)) * s.speed)).filter((ms) => ms >= s.fromMs + shortest && ms <= clipEnd(s));
  const snapped = (s: Segment, i: number, toMs: number) => endsOnBeat(s, i).find((ms) => Math.abs(ms - toMs) < near * s.speed) ?? toMs;
  /** Moves the end of a segment to the next onset, because steps from one would snap back to it. */
  const jump = (s: Segment, i: number, by: number) => {
    const ends = [...endsOnBeat(s, i), clipEnd(s)];
    const toMs = by > 0 ? ends.find((ms) => ms > s.toMs) : ends.findLast((ms) => ms < s.toMs);
    if (beats.length && toMs) set(s, { toMs });
    return beats.length > 0;
  };
  return (
    <>
      <div class="strip">
        {segments.map((s, i) => (
          <div key={s.id} class="piece" style={{ flexGrow: lengthOf(s) }}>
            {i > 0 && <Join segment={s} name={`Join before Segment ${i + 1}`} has={has} set={(join) => set(s, { join })} />}
            <button
              type="button"
              class="shot"
              aria-pressed={s.id === open}
              aria-label={`Edit Segment ${i + 1}, ${seconds(lengthOf(s))}`}
              style={{ backgroundImage: `url(${clipOf(s)?.picture ?? ''})` }}
              onClick={() => choose(s.id)}
            >
              {lengthOf(s) / lengthOfAll(segments) > 0.12 && seconds(lengthOf(s))}
            </button>
          </div>
        ))}
      </div>
      {has('canvas') && <Canvas draft={draft} change={change} segment={segments.find((s) => s.id === open)} clip={clipOf} set={set} />}
      {has('analysis') && draft.music && (
        <label class="check">
          <input type="checkbox" checked={snaps} onChange={(e) => setSnaps(e.currentTarget.checked)} /> Snap the end of a segment to the beat of the music
        </label>
      )}
      <ol class="segments">
        {segments.map((s, i) => (
          <Card
            key={s.id}
            name={`Segment ${i + 1}`}
            segment={s}
            clip={clipOf(s)}
            open={s.id === open}
            choose={() => choose(s.id)}
            set={(part) => set(s, part.toMs === undefined ? part : { ...part, toMs: snapped(s, i, part.toMs) })}
            move={(by) => {
              choose(s.id);
              edit((old) => {
                const rest = old.filter((o) => o.id !== s.id);
                return [...rest.slice(0, i + by), s, ...rest.slice(i + by)];
              });
              focusNext(document.activeElement); // an element that moves loses the focus
            }}
            jump={(by) => jump(s, i, by)}
            first={i === 0}
            last={i === segments.length - 1}
            copy={() => change((old) => duplicated(old, s))}
            remove={() => props.remove(`Segment ${i + 1}`, (old) => without(old, s.id))}
            separate={has('separate.v3') ? () => props.separate({ name: clipOf(s)?.name ?? 'Clip', assetKey: s.assetKey, fromMs: s.fromMs, toMs: s.toMs, segment: s.id }) : undefined}
          />
        ))}
      </ol>
    </>
  );
}

/** The times in a piece of music at which an editor would cut, in milliseconds. */
function useOnsets(assetKey: string | undefined): number[] {
  const [onsets, set] = useState<number[]>([]);
  useEffect(() => {
    set([]);
    if (assetKey) analysisOf(assetKey).then((found) => set(found.onsetsMs ?? []), () => {});
  }, [assetKey]);
  return assetKey ? onsets : [];
}

/** The transition between two segments: a click opens its kind and its length. */
function Join(props: { segment: Segment; name: string; has: (feature: string) => boolean; set: (join: Segment['join']) => void }) {
  const { segment, has, set } = props;
  const offered = joins.filter(([type]) => type === 'cut' || has(`transition.${type}`));
  const type = segment.join?.type ?? 'cut';
  const length = segment.join?.durationMs ?? 500;
  if (offered.length < 2) return null;
  const sign = joins.find(([t]) => t === type)?.[2];
  return (
    <Popover class="join" label={props.name} button={sign}>
      <label class="slider">
        <span>{props.name}</span>
        <select
          aria-label={`Kind of ${props.name}`}
          value={type}
          onChange={(e) => {
            const next = e.currentTarget.value as JoinType | 'cut';
            set(next === 'cut' ? undefined : { type: next, durationMs: length });
          }}
        >
          {offered.map(([t, label]) => (
            <option key={t} value={t}>
              {label}
            </option>
          ))}
        </select>
      </label>
      {type !== 'cut' && (
        <Slider label="Length" of={`Length of ${props.name}`} min={100} max={5000} step={100} value={length} text={seconds(length)} set={(durationMs) => set({ type, durationMs })} />
      )}
    </Popover>
  );
}

/** The shape of the film, how clips fill it, and which part of a clip stays visible. */
function Canvas(props: {
  draft: Draft;
  change: Change;
  segment: Segment | undefined;
  clip: (s: Segment) => Clip | undefined;
  set: (s: Segment, part: Partial<Segment>) => void;
}) {
  const { draft, change, segment: s, set } = props;
  const picture = s && props.clip(s)?.picture;
  const [width = 16, height = 9] = (draft.aspect || '16:9').split(':').map(Number);
  const fit = draft.fit ?? 'contain';
  const focus = (x: number, y: number) => s && set(s, { focusX: Math.min(1, Math.max(0, x)), focusY: Math.min(1, Math.max(0, y)) });
  const at = { x: s?.focusX ?? 0.5, y: s?.focusY ?? 0.5 };
  const position = `${at.x * 100}% ${at.y * 100}%`;
  return (
    <div class="canvas">
      <div class="knobs">
        <label class="slider">
          <span>Format</span>
          <select value={draft.aspect ?? ''} onChange={(e) => change((old) => ({ ...old, aspect: e.currentTarget.value }))}>
            {aspects.map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <label class="slider">
          <span>Fit</span>
          <select value={fit} onChange={(e) => change((old) => ({ ...old, fit: e.currentTarget.value as Fit }))}>
            {fits.map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </label>
      </div>
      {picture && (draft.aspect || fit !== 'contain') && (
        <div
          class={`preview ${fit}`}
          style={{ aspectRatio: `${width} / ${height}` }}
          tabIndex={fit === 'cover' ? 0 : undefined}
          role={fit === 'cover' ? 'slider' : 'img'}
          aria-label={fit === 'cover' ? 'What stays in sight: drag, or use the arrow keys' : 'How the clip fills the film'}
          aria-valuenow={fit === 'cover' ? Math.round(at.x * 100) : undefined}
          aria-valuetext={fit === 'cover' ? `${Math.round(at.x * 100)} % from the left, ${Math.round(at.y * 100)} % from the top` : undefined}
          onPointerMove={(e) => {
            if (fit !== 'cover' || !e.buttons) return;
            const hidden = overhang(e.currentTarget, e.currentTarget.querySelector('img'));
            focus(at.x - (hidden.x && e.movementX / hidden.x), at.y - (hidden.y && e.movementY / hidden.y));
          }}
          onKeyDown={(e) => {
            const [x, y] = ({ ArrowLeft: [-0.05, 0], ArrowRight: [0.05, 0], ArrowUp: [0, -0.05], ArrowDown: [0, 0.05] } as Record<string, [number, number]>)[e.key] ?? [0, 0];
            if (fit !== 'cover' || (!x && !y)) return;
            e.preventDefault();
            focus(at.x + x, at.y + y);
          }}
        >
          {fit === 'blur' && <img class="behind" src={picture} alt="" />}
          <img src={picture} alt="" style={{ objectPosition: position }} draggable={false} />
        </div>
      )}
    </div>
  );
}

/** How many pixels of a picture that covers its box are hidden, so that a dragged picture follows the finger. */
function overhang(box: HTMLElement, img: HTMLImageElement | null): { x: number; y: number } {
  if (!img?.naturalWidth) return { x: 0, y: 0 };
  const scale = Math.max(box.clientWidth / img.naturalWidth, box.clientHeight / img.naturalHeight);
  return { x: Math.round(img.naturalWidth * scale - box.clientWidth), y: Math.round(img.naturalHeight * scale - box.clientHeight) };
}

function Card(props: {
  name: string;
  segment: Segment;
  clip: Clip | undefined;
  open: boolean;
  choose: () => void;
  set: (part: Partial<Segment>) => void;
  jump: (by: number) => boolean;
  move: (by: number) => void;
  first: boolean;
  last: boolean;
  copy: () => void;
  remove: () => void;
  separate: (() => void) | undefined;
}) {
  const { name, segment: s, set } = props;
  const end = props.clip?.durationMs ?? s.toMs;
  return (
    <li>
      <button type="button" class="face" aria-expanded={props.open} onClick={props.choose}>
        {props.clip?.picture && <img src={props.clip.picture} alt="" />}
        <span>
          <strong>{props.clip?.name ?? 'Clip'}</strong>
          <small>
            {name}, {seconds(lengthOf(s))}
          </small>
        </span>
      </button>
      {props.open && (
        <div class="knobs">
          <Slider label="From" of={`Start of ${name}`} value={s.fromMs} max={end} step={100} text={seconds(s.fromMs)} set={(v) => set({ fromMs: Math.min(v, s.toMs - shortest) })} />
          <Slider label="To" of={`End of ${name}`} value={s.toMs} max={end} step={100} text={seconds(s.toMs)} set={(v) => set({ toMs: Math.max(v, s.fromMs + shortest) })} jump={props.jump} />
          <Volume of={name} value={s.volume} set={(volume) => set({ volume })} />
          <label class="slider">
            <span>Speed</span>
            <select aria-label={`Speed of ${name}`} value={s.speed} onChange={(e) => set({ speed: Number(e.currentTarget.value) })}>
              {[0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 4].map((v) => (
                <option key={v} value={v}>
                  {v}×
                </option>
              ))}
            </select>
          </label>
        </div>
      )}
      <div class="moves" hidden={!props.open}>
        {props.separate && (
          <Act class="plain" label={`Separate its sound: ${name}`} act={props.separate}>
            Separate its sound
          </Act>
        )}
        <Act class="plain" label={`Move ${name} earlier`} off={props.first} act={() => props.move(-1)}>
          ←
        </Act>
        <Act class="plain" label={`Move ${name} later`} off={props.last} act={() => props.move(1)}>
          →
        </Act>
        <Act class="plain" label={`Duplicate ${name}`} act={props.copy}>
          Duplicate
        </Act>
        <Act class="plain" label={`Remove ${name}`} act={props.remove}>
          Remove
        </Act>
      </div>
    </li>
  );
}
