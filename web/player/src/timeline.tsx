// The timeline: the film's pieces along a line, the shape of the film, and the settings of the chosen segment.

import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { beatsOf, cutToBeats } from './beats';
import { Canvas } from './canvas';
import { Card } from './card';
import { beginsOf, duplicated, lasting, lengthOfAll, reshaped, roomOf, segmentAt, shortest, speedOf, without, type Draft, type Remove, type Segment } from './draft';
import { Act } from './parts';
import type { Peek } from './player';
import type { Change } from './projects';
import { useAnalysis } from './sound';
import type { Recording } from './speech';
import { Strip } from './strip';

const near = 250; // ms within which a cut snaps to an onset of the music

export function Timeline(props: {
  draft: Draft;
  change: Change;
  remove: Remove;
  /** Edits, and says what that did. */
  edit: (said: string, change: (old: Draft) => Draft) => void;
  has: (feature: string) => boolean;
  separate: (recording: Recording) => void;
  replace: (segment: number, file: File) => void;
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
  const music = draft.sounds.find((s) => !s.voice);
  const song = useAnalysis(music?.assetKey, has('analysis'));
  /** The onsets of the music on the film's line. */
  const beats = music && song ? beatsOf(music, song.onsetsMs ?? [], song.durationMs, lengthOfAll(segments) * 2) : [];
  const clipOf = (s: Segment) => draft.clips.find((c) => c.assetKey === s.assetKey);
  if (!segments.length) return <p class="empty">Add clips above, or take the sample material. They line up here.</p>;
  const open = segments.find((s) => s.id === props.chosen) ?? segmentAt(segments, props.at) ?? segments[0];
  const begins = beginsOf(segments);
  const set = (s: Segment, part: Partial<Segment>) =>
    change(
      (old) => ({ ...old, segments: old.segments.map((o) => (o.id === s.id ? { ...o, ...reshaped(s, part) } : o)) }),
      `${s.id} ${Object.keys(part).join()}`,
    );
  /** How much of its clip a segment may play so that the next cut falls on an onset of the music. */
  const onBeat = (s: Segment, i: number) =>
    (snaps ? beats : []).map((beat) => Math.round((beat - (begins[i] ?? 0)) * speedOf(s))).filter((ms) => ms >= shortest && ms <= roomOf(s, clipOf(s)));
  const snapped = (s: Segment, part: Partial<Segment>): Partial<Segment> => {
    const end = s.reverse ? part.fromMs : part.toMs;
    if (end === undefined) return part;
    const wanted = s.reverse ? s.toMs - end : end - s.fromMs;
    return lasting(s, onBeat(s, segments.indexOf(s)).find((ms) => Math.abs(ms - wanted) < near * speedOf(s)) ?? wanted);
  };
  /** Moves the end of a segment to the next onset, because steps from one would snap back to it. */
  const jump = (s: Segment, i: number, by: number) => {
    const played = s.toMs - s.fromMs;
    const lengths = [...onBeat(s, i), roomOf(s, clipOf(s))];
    const next = by > 0 ? lengths.find((ms) => ms > played) : lengths.findLast((ms) => ms < played);
    if (snaps && beats.length && next) set(s, lasting(s, next));
    return snaps && beats.length > 0;
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
        set={(s, part) => set(s, snapped(s, part))}
        joinAll={(join) => props.edit('All joins are the same now.', (old) => ({ ...old, segments: old.segments.map((s, i) => (i ? { ...s, join } : s)) }))}
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
          has={has}
          copy={() => change((old) => duplicated(old, open.id))}
          replace={(file) => props.replace(open.id, file)}
          remove={() => props.remove(`Segment ${segments.indexOf(open) + 1}`, (old) => without(old, open.id))}
          separate={
            has('separate.v3')
              ? () => props.separate({ name: clipOf(open)?.name ?? 'Clip', assetKey: open.assetKey, fromMs: open.fromMs, toMs: open.toMs, segment: open.id })
              : undefined
          }
        />
      )}
      {music && song && (
        <div class="row beats">
          <Act
            off={!beats.length}
            act={() => {
              const { draft: cut, moved } = cutToBeats(draft, beats);
              props.edit(moved ? `${moved} ${moved === 1 ? 'cut is' : 'cuts are'} on the beat now.` : 'Every cut that can be is on the beat.', () => cut);
            }}
          >
            Cut to the beat
          </Act>
        <label class="check">
          <input type="checkbox" checked={snaps} onChange={(e) => setSnaps(e.currentTarget.checked)} /> Snap the end of a segment to the beat
        </label>
        </div>
      )}
      {has('canvas') && <Canvas draft={draft} change={change} segment={open} clip={clipOf} set={set} has={has} />}
    </>
  );
}
