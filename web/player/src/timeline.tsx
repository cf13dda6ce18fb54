// The timeline: the film's pieces along a line, the shape of the film, and the settings of the chosen segment.

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { beginsOf, duplicated, lengthOf, shortest, without, type Clip, type Draft, type EndColor, type Fit, type Segment } from './draft';
import { analysisOf } from './files';
import { seconds } from './media';
import { Act, Choice, Volume } from './parts';
import type { Peek } from './player';
import type { Change } from './projects';
import type { Recording } from './speech';
import { Strip } from './strip';
import type { Remove } from './studio';

const near = 250; // ms within which a cut snaps to an onset of the music

type Options = [value: string, label: string][];
const aspects: Options = [['', 'As filmed'], ['9:16', '9:16 story'], ['1:1', '1:1 square'], ['4:5', '4:5 feed'], ['16:9', '16:9 wide']]; // prettier-ignore
const fits: Options = [['contain', 'Bars'], ['cover', 'Fill'], ['blur', 'Blurred bars']]; // prettier-ignore
const sizes: Options = [['', 'As filmed'], ['720', '720p'], ['1080', '1080p'], ['2160', '4K']]; // prettier-ignore
const rates: Options = [['', 'As filmed'], ['24', '24'], ['25', '25'], ['30', '30'], ['50', '50'], ['60', '60']]; // prettier-ignore
const openings: Options = [['', 'At once'], ['black', 'From black'], ['white', 'From white']]; // prettier-ignore
const endings: Options = [['', 'At once'], ['black', 'To black'], ['white', 'To white']]; // prettier-ignore

export function Timeline(props: {
  draft: Draft;
  change: Change;
  remove: Remove;
  has: (feature: string) => boolean;
  separate: (recording: Recording) => void;
  chosen: number | undefined;
  choose: (id: number) => void;
  at: number;
  seek: (ms: number) => void;
  peek: (peek: Peek | undefined) => void;
  /** Lanes below the pieces. */
  children?: ComponentChildren;
}) {
  const { draft, change, has, choose } = props;
  const { segments } = draft;
  const [snaps, setSnaps] = useState(false);
  const beats = useOnsets(snaps && has('analysis') ? draft.music?.assetKey : undefined);
  const clipOf = (s: Segment) => draft.clips.find((c) => c.assetKey === s.assetKey);
  if (!segments.length) return <p class="empty">Add clips above, or take the sample material. They line up here.</p>;
  const open = segments.find((s) => s.id === props.chosen) ?? segments[0];
  const begins = beginsOf(segments);
  const set = (s: Segment, part: Partial<Segment>) =>
    change((old) => ({ ...old, segments: old.segments.map((o) => (o.id === s.id ? { ...o, ...part } : o)) }), `${s.id} ${Object.keys(part).join()}`);
  const clipEnd = (s: Segment) => clipOf(s)?.durationMs ?? s.toMs;
  /** The ends of a segment at which the next cut falls on an onset of the music. */
  const endsOnBeat = (s: Segment, i: number) =>
    beats
      .map((beat) => Math.round(s.fromMs + ((draft.music?.startMs ?? 0) + beat - (draft.music?.fromMs ?? 0) - (begins[i] ?? 0)) * s.speed))
      .filter((ms) => ms >= s.fromMs + shortest && ms <= clipEnd(s));
  const snapped = (s: Segment, toMs: number) => endsOnBeat(s, segments.indexOf(s)).find((ms) => Math.abs(ms - toMs) < near * s.speed) ?? toMs;
  /** Moves the end of a segment to the next onset, because steps from one would snap back to it. */
  const jump = (s: Segment, i: number, by: number) => {
    const ends = [...endsOnBeat(s, i), clipEnd(s)];
    const toMs = by > 0 ? ends.find((ms) => ms > s.toMs) : ends.findLast((ms) => ms < s.toMs);
    if (beats.length && toMs) set(s, { toMs });
    return beats.length > 0;
  };
  const place = (s: Segment, index: number) => {
    choose(s.id);
    change((old) => {
      const rest = old.segments.filter((o) => o.id !== s.id);
      return { ...old, segments: [...rest.slice(0, index), s, ...rest.slice(index)] };
    }, `${s.id} place`);
  };
  return (
    <>
      <Strip
        segments={segments}
        clip={clipOf}
        has={has}
        chosen={open?.id}
        choose={choose}
        set={(s, part) => set(s, part.toMs === undefined ? part : { toMs: snapped(s, part.toMs) })}
        place={place}
        jump={jump}
        at={props.at}
        seek={props.seek}
        peek={props.peek}
      >
        {props.children}
      </Strip>
      {open && (
        <Card
          name={`Segment ${segments.indexOf(open) + 1}`}
          segment={open}
          clip={clipOf(open)}
          set={(part) => set(open, part)}
          copy={() => change((old) => duplicated(old, open))}
          remove={() => props.remove(`Segment ${segments.indexOf(open) + 1}`, (old) => without(old, open.id))}
          separate={
            has('separate.v3')
              ? () => props.separate({ name: clipOf(open)?.name ?? 'Clip', assetKey: open.assetKey, fromMs: open.fromMs, toMs: open.toMs, segment: open.id })
              : undefined
          }
        />
      )}
      {has('analysis') && draft.music && (
        <label class="check">
          <input type="checkbox" checked={snaps} onChange={(e) => setSnaps(e.currentTarget.checked)} /> Snap the end of a segment to the beat of the music
        </label>
      )}
      {has('canvas') && <Canvas draft={draft} change={change} segment={open} clip={clipOf} set={set} has={has} />}
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

/** The shape of the film, how clips fill it, and which part of a clip stays visible. */
function Canvas(props: {
  draft: Draft;
  change: Change;
  segment: Segment | undefined;
  clip: (s: Segment) => Clip | undefined;
  set: (s: Segment, part: Partial<Segment>) => void;
  has: (feature: string) => boolean;
}) {
  const { draft, change, segment: s, set, has } = props;
  const picture = s && props.clip(s)?.picture;
  const [width = 16, height = 9] = (draft.aspect || '16:9').split(':').map(Number);
  const fit = draft.fit ?? 'contain';
  const focus = (x: number, y: number) => s && set(s, { focusX: Math.min(1, Math.max(0, x)), focusY: Math.min(1, Math.max(0, y)) });
  const at = { x: s?.focusX ?? 0.5, y: s?.focusY ?? 0.5 };
  const position = `${at.x * 100}% ${at.y * 100}%`;
  return (
    <div class="canvas">
      <div class="knobs">
        <Choice label="Format" value={draft.aspect ?? ''} options={aspects} set={(aspect) => change((old) => ({ ...old, aspect }))} />
        <Choice label="Fit" value={fit} options={fits} set={(f) => change((old) => ({ ...old, fit: f as Fit }))} />
        {has('canvas.shortSide') && (
          <Choice label="Size" value={String(draft.shortSide ?? '')} options={sizes} set={(v) => change((old) => ({ ...old, shortSide: Number(v) || undefined }))} />
        )}
        {has('canvas.frameRate') && (
          <Choice label="Frames a second" value={String(draft.frameRate ?? '')} options={rates} set={(v) => change((old) => ({ ...old, frameRate: Number(v) || undefined }))} />
        )}
        {has('fadeIn') && <Choice label="Opens" value={draft.fadeIn ?? ''} options={openings} set={(v) => change((old) => ({ ...old, fadeIn: (v || undefined) as EndColor | undefined }))} />}
        {has('fadeOut') && <Choice label="Ends" value={draft.fadeOut ?? ''} options={endings} set={(v) => change((old) => ({ ...old, fadeOut: (v || undefined) as EndColor | undefined }))} />}
      </div>
      {picture && fit === 'cover' && (
        <div
          class="preview cover"
          style={{ aspectRatio: `${width} / ${height}` }}
          tabIndex={0}
          role="slider"
          aria-label="What stays in sight: drag, or use the arrow keys"
          aria-valuenow={Math.round(at.x * 100)}
          aria-valuetext={`${Math.round(at.x * 100)} % from the left, ${Math.round(at.y * 100)} % from the top`}
          onPointerMove={(e) => {
            if (!e.buttons) return;
            const hidden = overhang(e.currentTarget, e.currentTarget.querySelector('img'));
            focus(at.x - (hidden.x && e.movementX / hidden.x), at.y - (hidden.y && e.movementY / hidden.y));
          }}
          onKeyDown={(e) => {
            const [x, y] = ({ ArrowLeft: [-0.05, 0], ArrowRight: [0.05, 0], ArrowUp: [0, -0.05], ArrowDown: [0, 0.05] } as Record<string, [number, number]>)[e.key] ?? [0, 0];
            if (!x && !y) return;
            e.preventDefault();
            focus(at.x + x, at.y + y);
          }}
        >
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

const speeds: Options = [0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 4].map((v) => [String(v), `${v}×`]);

/** The settings of a segment that have no place on the line. */
function Card(props: {
  name: string;
  segment: Segment;
  clip: Clip | undefined;
  set: (part: Partial<Segment>) => void;
  copy: () => void;
  remove: () => void;
  separate: (() => void) | undefined;
}) {
  const { name, segment: s, set } = props;
  return (
    <div class="card" role="group" aria-label={name}>
      <div class="face">
        <strong>{props.clip?.name ?? 'Clip'}</strong>
        <small>
          {name}, {seconds(lengthOf(s))}
        </small>
      </div>
      <div class="knobs">
        <Volume of={name} value={s.volume} set={(volume) => set({ volume })} />
        <Choice label="Speed" of={`Speed of ${name}`} value={String(s.speed)} options={speeds} set={(v) => set({ speed: Number(v) })} />
      </div>
      <div class="moves">
        {props.separate && (
          <Act class="plain" label={`Separate sound: ${name}`} act={props.separate}>
            Separate sound
          </Act>
        )}
        <Act class="plain" label={`Duplicate ${name}`} act={props.copy}>
          Duplicate
        </Act>
        <Act class="plain" label={`Remove ${name}`} act={props.remove}>
          Remove
        </Act>
      </div>
    </div>
  );
}
