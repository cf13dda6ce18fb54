// The segments of the film, in order: each is a clip, cut and at its speed.

import { lengthOf, lengthOfAll, nextId, type Clip, type Draft, type Segment } from './draft';
import { seconds } from './media';
import { Slider, Volume } from './parts';
import type { Change } from './studio';

const shortest = 200; // ms of a clip

export function Timeline({ draft, change }: { draft: Draft; change: Change }) {
  const { segments } = draft;
  const edit = (f: (old: Segment[]) => Segment[]) => change((old) => ({ ...old, segments: f(old.segments) }));
  const clipOf = (s: Segment) => draft.clips.find((c) => c.assetKey === s.assetKey);
  if (!segments.length) return <p class="empty">Drop clips above, or take the sample material. They line up here.</p>;
  return (
    <>
      <div class="strip" aria-hidden="true">
        {segments.map((s) => (
          <span key={s.id} style={{ flexGrow: lengthOf(s), backgroundImage: `url(${clipOf(s)?.picture ?? ''})` }}>
            {lengthOf(s) / lengthOfAll(segments) > 0.12 && seconds(lengthOf(s))}
          </span>
        ))}
      </div>
      <ol class="segments">
        {segments.map((s, i) => (
          <Card
            key={s.id}
            name={`Segment ${i + 1}`}
            segment={s}
            clip={clipOf(s)}
            set={(part) => edit((old) => old.map((o) => (o.id === s.id ? { ...o, ...part } : o)))}
            move={(by) =>
              edit((old) => {
                const rest = old.filter((o) => o.id !== s.id);
                return [...rest.slice(0, i + by), s, ...rest.slice(i + by)];
              })
            }
            first={i === 0}
            last={i === segments.length - 1}
            copy={() => edit((old) => [...old.slice(0, i + 1), { ...s, id: nextId(old) }, ...old.slice(i + 1)])}
            remove={() => edit((old) => old.filter((o) => o.id !== s.id))}
          />
        ))}
      </ol>
    </>
  );
}

function Card(props: {
  name: string;
  segment: Segment;
  clip: Clip | undefined;
  set: (part: Partial<Segment>) => void;
  move: (by: number) => void;
  first: boolean;
  last: boolean;
  copy: () => void;
  remove: () => void;
}) {
  const { name, segment: s, set } = props;
  const end = props.clip?.durationMs ?? s.toMs;
  return (
    <li>
      <div class="face">
        {props.clip?.picture && <img src={props.clip.picture} alt="" />}
        <div>
          <strong>{props.clip?.name ?? 'Clip'}</strong>
          <small>
            {name}, {seconds(lengthOf(s))}
          </small>
        </div>
      </div>
      <div class="knobs">
        <Slider label="From" of={`Start of ${name}`} value={s.fromMs} max={end} step={100} text={seconds(s.fromMs)} set={(v) => set({ fromMs: Math.min(v, s.toMs - shortest) })} />
        <Slider label="To" of={`End of ${name}`} value={s.toMs} max={end} step={100} text={seconds(s.toMs)} set={(v) => set({ toMs: Math.max(v, s.fromMs + shortest) })} />
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
      <div class="moves">
        <button type="button" class="plain" aria-label={`Move ${name} earlier`} disabled={props.first} onClick={() => props.move(-1)}>
          ←
        </button>
        <button type="button" class="plain" aria-label={`Move ${name} later`} disabled={props.last} onClick={() => props.move(1)}>
          →
        </button>
        <button type="button" class="plain" aria-label={`Repeat ${name}`} onClick={props.copy}>
          Repeat
        </button>
        <button type="button" class="plain" aria-label={`Remove ${name}`} onClick={props.remove}>
          Remove
        </button>
      </div>
    </li>
  );
}
