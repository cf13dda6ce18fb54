// The film along a line: pieces that are trimmed and moved by hand, the joins between them, the playhead, and below
// them the other sounds at each time.

import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { beginsOf, clipTimeAt, firstEnd, lengthOf, lengthOfAll, shortestOf, speedOf, type Clip, type Direction, type JoinType, type Segment } from './draft';
import { storyboardOf } from './files';
import { seconds } from './media';
import { Act, focusNext, Popover, Slider, useAnswer } from './parts';
import type { Peek } from './player';
import type { Look } from './preview/config';
import { drawTurned, isCropped, sizeOf } from './preview/look';

const joins: [JoinType | 'cut', string, string][] = [
  ['cut', 'Cut', '|'],
  ['dissolve', 'Dissolve', '⨉'],
  ['fadeBlack', 'Through black', '◼'],
  ['fadeWhite', 'Through white', '◻'],
  ['wipe', 'Wipe', '◧'],
  ['slide', 'Slide', '◪'],
  ['push', 'Push', '⇤'],
];
const directions: [Direction, string][] = [['left', 'to the left'], ['right', 'to the right'], ['up', 'up'], ['down', 'down']]; // prettier-ignore
const largest = 16; // of the zoom
const finger = 44; // pixels that a finger needs

/** How near the edge of a scrolled line a finger scrolls it, in pixels. */
const edge = 36;

/**
 * Follows a finger until it is lifted. `moved` receives how far it has come, in pixels. A line that scrolls goes on
 * scrolling while the finger stays at its edge, and that distance counts as well.
 */
export function drag(e: PointerEvent, moved: (e: PointerEvent, dx: number) => void, done: () => void = () => {}): void {
  if (e.pointerType === 'mouse') e.preventDefault(); // selects no text
  const handle = e.currentTarget as HTMLElement;
  const line = handle.closest('.scroll');
  const [from, scrolled] = [e.clientX, line?.scrollLeft ?? 0];
  let [last, turns] = [e, 0];
  const follow = () => moved(last, last.clientX - from + (line?.scrollLeft ?? 0) - scrolled);
  const move = (m: Event) => {
    last = m as PointerEvent;
    follow();
  };
  const turn = () => {
    turns = requestAnimationFrame(turn);
    if (!line || last === e) return;
    const box = line.getBoundingClientRect();
    const by = last.clientX < box.left + edge ? -8 : last.clientX > box.right - edge ? 8 : 0;
    const before = line.scrollLeft;
    line.scrollLeft += by;
    if (line.scrollLeft !== before) follow();
  };
  handle.setPointerCapture(e.pointerId);
  handle.addEventListener('pointermove', move);
  turns = requestAnimationFrame(turn);
  handle.addEventListener(
    'lostpointercapture',
    () => {
      cancelAnimationFrame(turns);
      handle.removeEventListener('pointermove', move);
      done();
    },
    { once: true },
  );
}

export function Strip(props: {
  segments: Segment[];
  clip: (s: Segment) => Clip | undefined;
  has: (feature: string) => boolean;
  chosen: number | undefined;
  choose: (id: number) => void;
  set: (s: Segment, part: Partial<Segment>) => void;
  /** Joins all segments in the same way. */
  joinAll: (join: Segment['join']) => void;
  /** Moves a segment to a place in the order. */
  place: (s: Segment, index: number) => void;
  /** Moves an end of a segment to the next beat of the music instead, if cuts snap to it. */
  jump: (s: Segment, index: number, by: number) => boolean;
  at: number;
  seek: (ms: number) => void;
  peek: (peek: Peek | undefined) => void;
  /** Lanes below the pieces, on the same line. */
  children?: ComponentChildren;
}) {
  const { segments, chosen, set, seek } = props;
  const rail = useRef<HTMLDivElement>(null);
  const [zoom, setZoom] = useState(1);
  const [width, setWidth] = useState(0);
  /** The piece before which a dragged one will be dropped. */
  const [target, setTarget] = useState<number>();
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(entry?.contentRect.width ?? 0));
    if (rail.current) watch.observe(rail.current);
    return () => watch.disconnect();
  }, []);
  /** While an end is trimmed, the line keeps its scale, and the trimmed end stays under the finger. */
  const [held, hold] = useState<{ total: number; index: number; shift: number }>();
  const total = held?.total ?? Math.max(1, lengthOfAll(segments));
  const begins = beginsOf(segments).map((ms, i) => (held && i >= held.index ? ms + held.shift : ms));
  const share = (ms: number) => `${(100 * ms) / total}%`;
  const timeAt = (x: number) => {
    const box = rail.current?.getBoundingClientRect();
    return box ? Math.min(total, Math.max(0, ((x - box.left) / box.width) * total)) : 0;
  };
  const msPerPixel = total / Math.max(1, width);
  const pinch = usePinch(zoom, (z) => setZoom(Math.min(largest, Math.max(1, z))));
  useSight(rail, zoom, props.at / total);
  /** How far an end moves in its clip while it moves by a time of the film: backwards in a reversed segment. */
  const pace = (s: Segment) => (s.reverse ? -speedOf(s) : speedOf(s));
  const trim = (s: Segment, i: number, end: 'fromMs' | 'toMs') => (e: PointerEvent) => {
    const [was, ms] = [s[end], msPerPixel];
    const hand = { total, index: i, shift: 0 };
    hold(hand);
    drag(
      e,
      (_, dx) => {
        const now = trimTo(s, end, was + dx * ms * pace(s));
        if (end === firstEnd(s)) hold({ ...hand, shift: (now - was) / pace(s) });
      },
      () => {
        hold(undefined);
        props.peek(undefined);
      },
    );
  };
  const trimTo = (s: Segment, end: 'fromMs' | 'toMs', wanted: number): number => {
    const clip = props.clip(s);
    const [last, least] = [clip?.durationMs ?? s.toMs, shortestOf(clip)];
    const ms = Math.round(end === 'fromMs' ? Math.max(0, Math.min(s.toMs - least, wanted)) : Math.min(last, Math.max(s.fromMs + least, wanted)));
    set(s, { [end]: ms });
    props.peek({ assetKey: s.assetKey, atMs: end === 'fromMs' ? ms : ms - 1 });
    return ms;
  };
  const handle = (s: Segment, i: number, end: 'fromMs' | 'toMs') => {
    const first = end === firstEnd(s);
    const name = `${first ? 'Start' : 'End'} of Segment ${i + 1}`;
    return (
      <span
        key={end}
        class={`trim ${first ? 'from' : 'to'}`}
        role="slider"
        tabIndex={0}
        aria-label={name}
        aria-valuemin={0}
        aria-valuemax={props.clip(s)?.durationMs ?? s.toMs}
        aria-valuenow={s[end]}
        aria-valuetext={seconds(s[end])}
        onPointerDown={trim(s, i, end)}
        onBlur={() => props.peek(undefined)}
        onKeyDown={(e) => {
          const by = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
          if (!by) return;
          e.preventDefault();
          e.stopPropagation();
          if (!first && props.jump(s, i, by)) return;
          trimTo(s, end, s[end] + (s.reverse ? -by : by) * (e.shiftKey ? 10 : 100));
        }}
      />
    );
  };
  const grip = (s: Segment, i: number) => (
    <button
      type="button"
      class="grip"
      aria-label={`Move Segment ${i + 1}: drag it, or use the arrow keys`}
      onPointerDown={(e) => {
        let index = i;
        drag(
          e,
          (m) => {
            // The place among the others, by their middles.
            const at = timeAt(m.clientX);
            index = segments.filter((o, k) => o.id !== s.id && (begins[k] ?? 0) + lengthOf(o) / 2 < at).length;
            setTarget(index === i ? undefined : index > i ? index + 1 : index);
          },
          () => {
            setTarget(undefined);
            if (index !== i) props.place(s, index); // not earlier: a piece that moves within the page loses its finger
          },
        );
      }}
      onKeyDown={(e) => {
        const by = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
        if (!by) return;
        e.preventDefault();
        e.stopPropagation();
        props.place(s, Math.min(segments.length - 1, Math.max(0, i + by)));
        focusNext(e.currentTarget); // an element that moves loses the focus
      }}
    >
      ⠿
    </button>
  );
  /** Whether a join is too narrow for a finger. Joins of the chosen piece never count as too narrow. Zooming in makes room. */
  const crowded = (s: Segment, before: Segment | undefined) => [s, before].every((o) => o && o.id !== chosen && pixels(o) < finger);
  const pixels = (s: Segment) => (lengthOf(s) / total) * width;
  return (
    <div class="timeline" {...pinch}>
      <div class="zoom">
        <button type="button" class="plain" aria-label="Zoom out" disabled={zoom === 1} onClick={() => setZoom(Math.max(1, zoom / 2))}>
          −
        </button>
        <button type="button" class="plain" aria-label="Zoom in" disabled={zoom === largest} onClick={() => setZoom(Math.min(largest, zoom * 2))}>
          +
        </button>
      </div>
      <div class="scroll">
        <div ref={rail} class="rail" style={{ width: `${zoom * 100}%`, '--seen': `${width / zoom}px` }}>
          <div class="ruler" aria-hidden="true" onPointerDown={(e) => (seek(timeAt(e.clientX)), drag(e, (m) => seek(timeAt(m.clientX))))}>
            {ticks(total, width).map((ms) => (
              <span key={ms} style={{ left: share(ms) }}>
                {seconds(ms).replace('.0 s', ' s')}
              </span>
            ))}
          </div>
          <div class="pieces">
            {segments.map((s, i) => (
              <div key={s.id} class="piece" style={{ left: share(begins[i] ?? 0), width: share(lengthOf(s)) }}>
                <button
                  type="button"
                  class="shot"
                  aria-pressed={s.id === chosen}
                  aria-label={`Edit Segment ${i + 1}, ${seconds(lengthOf(s))}`}
                  onClick={(e) => {
                    props.choose(s.id);
                    // A key press has no place.
                    if (e.detail) seek(timeAt(e.clientX));
                  }}
                >
                  <Filmstrip segment={s} clip={props.clip(s)} width={(lengthOf(s) / total) * width} has={props.has} />
                  <span>{(lengthOf(s) / total) * width > 60 && seconds(lengthOf(s))}</span>
                </button>
                {s.id === chosen && (
                  <>
                    {handle(s, i, firstEnd(s))}
                    {pixels(s) > 2 * finger && grip(s, i)}
                    {handle(s, i, s.reverse ? 'fromMs' : 'toMs')}
                  </>
                )}
              </div>
            ))}
            {segments.slice(1).map((s, k) => crowded(s, segments[k]) ? null : (
              <div key={s.id} class="seam" style={{ left: share(begins[k + 1] ?? 0) }}>
                <Join segment={s} name={`Join of Segments ${k + 1} and ${k + 2}`} has={props.has} set={(join) => set(s, { join })} all={segments.length > 2 ? props.joinAll : undefined} />
              </div>
            ))}
          </div>
          {target !== undefined && <span class="target" style={{ left: share(begins[target] ?? total) }} />}
          {props.children}
          <span class="playhead" aria-hidden="true" style={{ left: share(Math.min(total, props.at)) }} />
        </div>
      </div>
    </div>
  );
}

/** Times to print on the ruler, at least 70 pixels apart. */
function ticks(total: number, width: number): number[] {
  const least = (70 * total) / Math.max(70, width);
  const step = [500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 300_000].find((s) => s >= least) ?? 600_000;
  const last = total - (24 * total) / Math.max(70, width); // a label at this time ends where the line ends
  return Array.from({ length: Math.floor(last / step) + 1 }, (_, k) => k * step);
}

/** Keeps the playhead in sight: at its place while the line is zoomed, and by whole pages while the film plays. */
function useSight(rail: { current: HTMLElement | null }, zoom: number, share: number): void {
  const seen = useRef({ zoom, x: 0 });
  useLayoutEffect(() => {
    const line = rail.current?.parentElement;
    if (!line || !rail.current) return;
    const at = share * rail.current.clientWidth;
    const x = at - line.scrollLeft;
    const room = rail.current.parentElement?.clientWidth ?? 0;
    if (zoom !== seen.current.zoom) line.scrollLeft = at - Math.min(room * 0.9, Math.max(room * 0.1, seen.current.x));
    else if (x < 0 || x > room) line.scrollLeft = at - room * 0.1;
    seen.current = { zoom, x: at - line.scrollLeft };
  }, [zoom, share]);
}

/** Two fingers that move apart enlarge the timeline, and nothing else. */
function usePinch(zoom: number, set: (zoom: number) => void) {
  const fingers = useRef(new Map<number, number>());
  const begun = useRef({ distance: 1, zoom: 1 });
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const own = (e: TouchEvent) => e.touches.length > 1 && e.cancelable && e.preventDefault();
    box.current?.addEventListener('touchmove', own, { passive: false });
  }, []);
  const distance = () => {
    const [a = 0, b = 0] = [...fingers.current.values()];
    return Math.max(1, Math.abs(a - b));
  };
  const lift = (e: PointerEvent) => void fingers.current.delete(e.pointerId);
  return {
    ref: box,
    onPointerDownCapture: (e: PointerEvent) => {
      if (e.pointerType !== 'touch') return;
      fingers.current.set(e.pointerId, e.clientX);
      begun.current = { distance: distance(), zoom };
    },
    onPointerMoveCapture: (e: PointerEvent) => {
      if (!fingers.current.has(e.pointerId)) return;
      fingers.current.set(e.pointerId, e.clientX);
      if (fingers.current.size === 2) set((begun.current.zoom * distance()) / begun.current.distance);
    },
    onPointerUpCapture: lift,
    onPointerCancelCapture: lift,
  };
}

/** The service's pictures of a clip, each a tile of one image. */
interface Board {
  url: string;
  image: HTMLImageElement;
  tileWidth: number;
  count: number;
}

const boardTiles = 24;
const boardHeight = 90;
const boards = new Map<string, Promise<Board>>();

async function makeBoard(assetKey: string): Promise<Board> {
  const url = URL.createObjectURL(await storyboardOf(assetKey, boardTiles, boardHeight));
  const image = new Image();
  image.src = url;
  await image.decode();
  return { url, image, tileWidth: image.naturalWidth / boardTiles, count: boardTiles };
}

/** The board of a clip, made once. */
function boardOf(assetKey: string): Promise<Board> {
  const made = boards.get(assetKey) ?? makeBoard(assetKey);
  boards.set(assetKey, made);
  made.catch(() => boards.delete(assetKey));
  return made;
}

/** The longest side of a turned tile, in pixels. */
const mostTile = 400;

/** The same tiles, each turned and cropped. */
async function turnedBoard(board: Board, look: Look): Promise<Board> {
  const tile = { width: board.tileWidth, height: boardHeight };
  const size = sizeOf(tile, look);
  const tileWidth = (size.width * boardHeight) / size.height;
  const scale = Math.min(1, mostTile / tileWidth) * (boardHeight / size.height);
  const canvas = document.createElement('canvas');
  const width = Math.max(1, Math.round(size.width * scale));
  Object.assign(canvas, { width: width * board.count, height: Math.max(1, Math.round(size.height * scale)) });
  const context = canvas.getContext('2d');
  const tiles = await Promise.all(Array.from({ length: board.count }, (_, n) => createImageBitmap(board.image, n * tile.width, 0, tile.width, tile.height)));
  tiles.forEach((image, n) => {
    if (context) drawTurned(context, image, tile, look, n * width, 0, scale);
    image.close();
  });
  const blob = await new Promise<Blob | null>((done) => canvas.toBlob(done, 'image/jpeg', 0.8));
  if (!blob) throw new Error('the browser made no picture');
  return { ...board, url: URL.createObjectURL(blob), tileWidth };
}

/** The board of a segment, as its look turns, mirrors and crops it. */
function useBoard({ assetKey, rotate, mirror, crop }: Segment, on: boolean): Board | undefined {
  const board = useAnswer(on ? assetKey : '', () => boardOf(assetKey));
  const [turned, set] = useState<Board>();
  const look = { rotate, mirror, crop };
  const plain = !rotate && !mirror && !isCropped(look);
  useEffect(() => {
    if (!board || plain) return set(undefined);
    let left = false;
    // A finger that drags a corner need not wait for it.
    const timer = setTimeout(() => turnedBoard(board, look).then((made) => (left ? URL.revokeObjectURL(made.url) : set(made)), () => {}), 100);
    return () => {
      left = true;
      clearTimeout(timer);
    };
  }, [board, JSON.stringify(look)]);
  useEffect(() => () => void (turned && URL.revokeObjectURL(turned.url)), [turned]);
  return board && (plain ? board : (turned ?? board));
}

/** Pictures of the piece's own times, side by side. */
function Filmstrip(props: { segment: Segment; clip: Clip | undefined; width: number; has: (feature: string) => boolean }) {
  const { segment: s, clip, width } = props;
  const board = useBoard(s, props.has('storyboard'));
  if (!board) return <span class="strip-picture" style={{ backgroundImage: `url(${clip?.picture ?? ''})` }} />;
  const height = 67; // of a piece, in pixels
  const tile = (board.tileWidth * height) / boardHeight;
  const slots = Math.min(60, Math.max(1, Math.round(width / tile)));
  const whole = clip?.durationMs ?? s.toMs;
  return (
    <span class="filmstrip">
      {Array.from({ length: slots }, (_, k) => {
        const ms = clipTimeAt(s, ((k + 0.5) / slots) * lengthOf(s));
        const n = Math.min(board.count - 1, Math.floor((ms / whole) * board.count));
        const middle = (width / slots - tile) / 2;
        return (
          <span key={k} style={{ backgroundImage: `url(${board.url})`, backgroundSize: `${tile * board.count}px ${height}px`, backgroundPosition: `${middle - n * tile}px 0` }} />
        );
      })}
    </span>
  );
}

/** The transition between two segments: a click opens its kind and its length. */
function Join(props: { segment: Segment; name: string; has: (feature: string) => boolean; set: (join: Segment['join']) => void; all: ((join: Segment['join']) => void) | undefined }) {
  const { segment, has, set } = props;
  const offered = joins.filter(([type]) => type === 'cut' || has(`transition.${type}`));
  const type = segment.join?.type ?? 'cut';
  const length = segment.join?.durationMs ?? 500;
  const direction = segment.join?.direction ?? 'left';
  if (offered.length < 2) return null;
  const sign = joins.find(([t]) => t === type)?.[2];
  return (
    <Popover class="join" label={props.name} button={sign}>
      {(close) => (
        <>
          <label class="slider">
            <span>{props.name}</span>
            <select
              aria-label={`Kind of ${props.name}`}
              value={type}
              onChange={(e) => {
                const next = e.currentTarget.value as JoinType | 'cut';
                set(next === 'cut' ? undefined : { type: next, durationMs: length, direction });
              }}
            >
              {offered.map(([t, label]) => (
                <option key={t} value={t}>
                  {label}
                </option>
              ))}
            </select>
          </label>
          {(type === 'wipe' || type === 'slide' || type === 'push') && (
            <label class="slider">
              <span>Moves</span>
              <select aria-label={`Direction of ${props.name}`} value={direction} onChange={(e) => set({ type, durationMs: length, direction: e.currentTarget.value as Direction })}>
                {directions.map(([d, label]) => (
                  <option key={d} value={d}>
                    {label}
                  </option>
                ))}
              </select>
            </label>
          )}
          {type !== 'cut' && (
            <Slider label="Length" of={`Length of ${props.name}`} min={100} max={5000} step={100} value={length} text={seconds(length)} set={(durationMs) => set({ type, durationMs, direction })} />
          )}
          {props.all && (
            <Act
              act={() => {
                props.all?.(segment.join);
                close();
              }}
            >
              Take it for every join
            </Act>
          )}
        </>
      )}
    </Popover>
  );
}
