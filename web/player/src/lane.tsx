// A sound on the film's own line: moved by its grip, trimmed at its ends.

import type { ComponentChildren } from 'preact';
import { shortest } from './draft';
import { seconds } from './media';
import { drag } from './strip';

/** Where in the film a sound begins, and which part of it is heard, in milliseconds. */
export interface Place {
  startMs: number;
  fromMs: number;
  /** Its end if absent. */
  toMs?: number | undefined;
}

/** How long a sound is heard, in milliseconds of the film. */
export function heardOf({ startMs, fromMs, toMs }: Place, lengthMs: number, filmMs: number, loop = false): number {
  const left = Math.max(1, filmMs - startMs);
  return loop ? left : Math.max(1, Math.min(left, Math.min(toMs ?? lengthMs, lengthMs) - fromMs));
}

export function Lane(props: {
  name: string;
  /** What screen readers say about its picture. */
  label: string;
  place: Place;
  /** How long the whole sound is, in milliseconds. */
  lengthMs: number;
  /** Pairs of the lowest and the highest sample. */
  peaks: number[];
  filmMs: number;
  loop?: boolean;
  move: (part: Partial<Place>) => void;
  /** A tap on the sound. */
  tap?: ((e: MouseEvent) => void) | undefined;
  /** Lines over the waveform, in a picture 100 wide and 40 high. */
  over?: ComponentChildren;
  /** Handles beside the picture. */
  children?: ComponentChildren;
}) {
  const { name, place, lengthMs, filmMs, loop, move } = props;
  const { startMs } = place;
  const heard = heardOf(place, lengthMs, filmMs, loop);
  const share = (ms: number) => `${(100 * ms) / filmMs}%`;
  const kept = (ms: number, least: number, most: number) => Math.round(Math.max(least, Math.min(most, ms)));
  /** Moves the thing that a handle stands for by a time of the film, from where it was. */
  const moves = {
    grip: (ms: number, was: Place) => move({ startMs: kept(was.startMs + ms, 0, filmMs - shortest) }),
    from: (ms: number, was: Place) => {
      const by = kept(ms, -Math.min(was.startMs, was.fromMs), heardOf(was, lengthMs, filmMs) - shortest);
      move({ startMs: was.startMs + by, fromMs: was.fromMs + by });
    },
    to: (ms: number, was: Place) => move({ toMs: kept(was.fromMs + heardOf(was, lengthMs, filmMs) + ms, was.fromMs + shortest, lengthMs) }),
  };
  const handle = (of: keyof typeof moves, label: string, at: number) => ({
    'aria-label': `${label} ${name}: drag it, or use the arrow keys`,
    style: { left: share(at) },
    onPointerDown: (e: PointerEvent) => {
      e.stopPropagation();
      const width = (e.currentTarget as HTMLElement).parentElement?.clientWidth ?? 1;
      drag(e, (_, dx) => moves[of]((dx * filmMs) / width, place));
    },
    onKeyDown: (e: KeyboardEvent) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
      if (!by) return;
      e.preventDefault();
      e.stopPropagation();
      moves[of](by * (e.shiftKey ? 10 : 100), place);
    },
  });
  return (
    <figure class="lane">
      <div class="bar">
        <svg viewBox="0 0 100 40" preserveAspectRatio="none" role="img" aria-label={props.label} onClick={props.tap}>
          <rect class="heard" x={(100 * startMs) / filmMs} y="0" width={(100 * heard) / filmMs} height="40" />
          <path class="wave" d={waveOf(props.peaks, lengthMs, place, heard, filmMs)} />
          {props.over}
        </svg>
        <button type="button" class="edge" {...handle('from', 'Begin of', startMs)} />
        {!loop && <button type="button" class="edge to" {...handle('to', 'End of', startMs + heard)} />}
        <button type="button" class="grip" {...handle('grip', 'Move', startMs + heard / 2)} title={seconds(startMs)}>
          ⠿
        </button>
        {props.children}
        <small class="name" style={{ left: share(startMs) }}>
          {name}
        </small>
      </div>
    </figure>
  );
}

/** The outline of a sound where it is heard, with the film 100 wide and 40 high. */
function waveOf(data: number[], lengthMs: number, { startMs, fromMs, toMs }: Place, heard: number, filmMs: number): string {
  const loudest = Math.max(1, ...data.map(Math.abs));
  const count = data.length / 2;
  const range = Math.max(1, Math.min(toMs ?? lengthMs, lengthMs) - fromMs);
  const columns = Math.min(1200, Math.max(100, Math.round((count * heard) / lengthMs)));
  let d = '';
  for (let k = 0; k < columns; k++) {
    const ms = fromMs + (((k / columns) * heard) % range);
    const i = Math.min(count - 1, Math.floor((ms / lengthMs) * count));
    const [low = 0, high = 0] = [data[2 * i], data[2 * i + 1]];
    d += `M${(100 * (startMs + (k / columns) * heard)) / filmMs} ${20 - (19 * high) / loudest}V${20 - (19 * low) / loudest}`;
  }
  return d;
}
