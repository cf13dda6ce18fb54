// The shape of the film, and which part of a clip stays visible.

import type { Clip, Draft, EndColor, Fit, Segment } from './draft';
import { usePicture } from './look';
import { Choice } from './parts';
import type { Change } from './projects';

type Options = [value: string, label: string][];
const aspects: Options = [['', 'As filmed'], ['9:16', '9:16 story'], ['1:1', '1:1 square'], ['4:5', '4:5 feed'], ['16:9', '16:9 wide']]; // prettier-ignore
const fits: Options = [['contain', 'Bars'], ['cover', 'Fill'], ['blur', 'Blurred bars']]; // prettier-ignore
const sizes: Options = [['', 'As filmed'], ['720', '720p'], ['1080', '1080p'], ['2160', '4K']]; // prettier-ignore
const rates: Options = [['', 'As filmed'], ['24', '24'], ['25', '25'], ['30', '30'], ['50', '50'], ['60', '60']]; // prettier-ignore
const openings: Options = [['', 'At once'], ['black', 'From black'], ['white', 'From white']]; // prettier-ignore
const endings: Options = [['', 'At once'], ['black', 'To black'], ['white', 'To white']]; // prettier-ignore

/** The shape of the film, how clips fill it, and which part of a clip stays visible. */
export function Canvas(props: {
  draft: Draft;
  change: Change;
  segment: Segment | undefined;
  clip: (s: Segment) => Clip | undefined;
  set: (s: Segment, part: Partial<Segment>) => void;
  has: (feature: string) => boolean;
}) {
  const { draft, change, segment: s, set, has } = props;
  const picture = usePicture((s && props.clip(s)?.picture) ?? '', s);
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
