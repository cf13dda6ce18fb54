// The settings of a segment.

import { lengthOf, type Clip, type Segment } from './draft';
import { Look } from './look';
import { seconds } from './media';
import { Act, Choice, Volume } from './parts';

const speeds: [value: string, label: string][] = [0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 4].map((v) => [String(v), `${v}×`]);

/** The speeds to choose from, and the segment's own if that is a different one: cutting a curve can give any speed. */
function speedsOf(s: Segment): [value: string, label: string][] {
  if (s.speedPoints) return [['', 'Curve'], ...speeds];
  const own = String(s.speed);
  return speeds.some(([value]) => value === own) ? speeds : [[own, `${s.speed.toFixed(2)}×`], ...speeds];
}

/** The settings of a segment that have no place on the line. */
export function Card(props: {
  name: string;
  segment: Segment;
  clip: Clip | undefined;
  set: (part: Partial<Segment>) => void;
  copy: () => void;
  remove: () => void;
  /** Shows another clip in its place. */
  replace: (file: File) => void;
  separate: (() => void) | undefined;
  has: (feature: string) => boolean;
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
        <Choice label="Speed" of={`Speed of ${name}`} value={s.speedPoints ? '' : String(s.speed)} options={speedsOf(s)} set={(v) => v && set({ speed: Number(v), speedPoints: undefined })} />
      </div>
      <Look name={name} segment={s} picture={props.clip?.picture ?? ''} set={set} has={props.has} />
      <div class="moves">
        {props.separate && (
          <Act class="plain" label={`Separate sound: ${name}`} act={props.separate}>
            Separate sound
          </Act>
        )}
        <label class="button plain">
          Replace
          <input
            type="file"
            class="unseen"
            accept="video/*,.mov,.mp4,.m4v,.webm"
            aria-label={`Replace the clip of ${name}`}
            onChange={(e) => {
              const [file] = e.currentTarget.files ?? [];
              if (file) props.replace(file);
              e.currentTarget.value = '';
            }}
          />
        </label>
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
