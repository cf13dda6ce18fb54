// Draws a frame of the film from the pictures of its clips.

import { correct, drawTurned, isAdjusted, sizeOf, windowAt } from './look';
import { nearestEven, sourceFrame, type Film, type Join, type PlacedSegment } from './plan';

/** A decoded picture, as displayed. */
export interface Picture {
  image: CanvasImageSource;
  width: number;
  height: number;
}

/** A picture that a frame of the film needs. */
export interface Need {
  segment: PlacedSegment;
  /** The index of the frame in the clip. */
  frame: number;
  /** The picture that is blended over it, and its weight. */
  upper: number;
  weight: number;
  /** When it is shown, in milliseconds from the segment's start. */
  atMs: number;
}

const segmentAt = (film: Film, frame: number): PlacedSegment[] => film.segments.filter((s) => s.begin <= frame && frame < s.end);

/** The pictures that a frame of the film shows, the outgoing one first. */
export const needs = (film: Film, frame: number): Need[] =>
  segmentAt(film, frame).map((segment) => {
    const i = frame - segment.begin;
    const lower = sourceFrame(segment, i);
    const { upper, weight } = segment.mixes?.[i] ?? { upper: lower, weight: 0 };
    return { segment, frame: lower, upper, weight, atMs: (i * film.rate.den * 1000) / film.rate.num };
  });

/** Only the picture with more weight of the two. */
export function nearer(need: Need): Need {
  const frame = need.weight > 0.5 ? need.upper : need.frame;
  return { ...need, frame, upper: frame, weight: 0 };
}

/** How much of a colour lies over a frame, from 0 to 1. */
interface Veil {
  color: 'black' | 'white';
  weight: number;
}

function veils(film: Film, frame: number, on: PlacedSegment[]): Veil[] {
  const found: Veil[] = [];
  const add = (color: Veil['color'], weight: number) => weight > 0 && found.push({ color, weight });
  const colorOf = (join: Join) => (join.type === 'fadeWhite' ? 'white' : 'black');
  for (const s of on) {
    if (s.next && isFade(s.next)) {
      const n = Math.floor(s.next.frames / 2);
      const i = frame - (s.end - n);
      if (i >= 0) add(colorOf(s.next), (i + 1) / (n + 1));
    }
    if (s.join && isFade(s.join)) {
      const n = s.join.frames - Math.floor(s.join.frames / 2);
      const i = frame - s.begin;
      if (i < n) add(colorOf(s.join), (n - i) / (n + 1));
    }
  }
  if (film.fadeIn && frame < film.fadeIn.frames) add(film.fadeIn.color, (film.fadeIn.frames - frame) / film.fadeIn.frames);
  if (film.fadeOut) {
    const i = frame - (film.frames - film.fadeOut.frames);
    if (i >= 0) add(film.fadeOut.color, (i + 1) / film.fadeOut.frames);
  }
  return found;
}

const isFade = (join: Join): boolean => join.type === 'fadeBlack' || join.type === 'fadeWhite';

/** Draws a frame. `pictureOf` returns a picture that `needs` listed, or undefined if it is not there yet: black. */
export function drawFrame(ctx: CanvasRenderingContext2D, film: Film, frame: number, pictureOf: (need: Need) => Picture | undefined): void {
  const { width, height } = ctx.canvas;
  const scale = width / film.width;
  const shown = needs(film, frame);
  ctx.setTransform(1, 0, 0, 1, 0, 0);
  ctx.globalAlpha = 1;
  ctx.fillStyle = 'black';
  ctx.fillRect(0, 0, width, height);
  const [first, second] = shown;
  if (first) drawShot(ctx, first, pictureOf(first));
  const join = second?.segment.join;
  if (second && join) {
    const w = (frame - second.segment.begin + 1) / (join.frames + 1);
    // A join draws the incoming picture on a separate canvas, so that its bars cover the outgoing picture, too.
    const layer = new OffscreenCanvas(width, height);
    const onLayer = layer.getContext('2d') as unknown as CanvasRenderingContext2D;
    onLayer.fillStyle = 'black';
    onLayer.fillRect(0, 0, width, height);
    drawShot(onLayer, second, pictureOf(second));
    joinOnto(ctx, layer, join, w, film, scale);
  }
  for (const { color, weight } of veils(film, frame, shown.map((n) => n.segment))) {
    ctx.globalAlpha = weight;
    ctx.fillStyle = color;
    ctx.fillRect(0, 0, width, height);
  }
  ctx.globalAlpha = 1;
}

/** Lays the incoming picture over the outgoing one, w of the way through the join. */
function joinOnto(ctx: CanvasRenderingContext2D, layer: OffscreenCanvas, join: Join, w: number, film: Film, scale: number): void {
  const { width, height } = ctx.canvas;
  if (join.type === 'dissolve') {
    ctx.globalAlpha = w;
    ctx.drawImage(layer, 0, 0);
    ctx.globalAlpha = 1;
    return;
  }
  const upright = join.direction === 'up' || join.direction === 'down';
  const d = nearestEven(w * (upright ? film.height : film.width)) * scale;
  // (x, y) is the direction in which the pictures move.
  const [x, y] = { left: [-1, 0], right: [1, 0], up: [0, -1], down: [0, 1] }[join.direction] as [number, number];
  if (join.type === 'push') {
    const outgoing = new OffscreenCanvas(width, height);
    outgoing.getContext('2d')?.drawImage(ctx.canvas, 0, 0);
    ctx.drawImage(outgoing, x * d, y * d);
  }
  // The incoming picture comes from the side opposite to the direction.
  const [dx, dy] = [x === 0 ? 0 : -x * (width - d), y === 0 ? 0 : -y * (height - d)];
  if (join.type === 'wipe') {
    ctx.save();
    ctx.beginPath();
    ctx.rect(dx, dy, width, height);
    ctx.clip();
    ctx.drawImage(layer, 0, 0);
    ctx.restore();
  } else {
    ctx.drawImage(layer, dx, dy);
  }
}

/** Two pictures of a clip, one blended over the other. */
export function blended(lower: Picture, upper: Picture, weight: number): Picture {
  const { width, height } = lower;
  const image = new OffscreenCanvas(width, height);
  const ctx = image.getContext('2d');
  if (ctx) {
    ctx.drawImage(lower.image, 0, 0, width, height);
    ctx.globalAlpha = weight;
    ctx.drawImage(upper.image, 0, 0, width, height);
  }
  return { image, width, height };
}

/** Draws a clip's picture onto the whole canvas, with its segment's look. */
function drawShot(ctx: CanvasRenderingContext2D, { segment, atMs }: Need, picture: Picture | undefined): void {
  if (!picture) return;
  const { adjust, moves } = segment.config;
  const window = windowAt(moves, atMs);
  if (!window && !isAdjusted(adjust)) {
    fit(ctx, segment, picture);
    return;
  }
  const { width, height } = ctx.canvas;
  const layer = new OffscreenCanvas(width, height);
  const onLayer = layer.getContext('2d', { willReadFrequently: isAdjusted(adjust) }) as unknown as CanvasRenderingContext2D;
  onLayer.fillStyle = 'black';
  onLayer.fillRect(0, 0, width, height);
  const { x, y, w, h } = fit(onLayer, segment, picture);
  if (isAdjusted(adjust)) correct(onLayer, adjust, x, y, w, h);
  const { x: left, y: top, share } = window ?? { x: 0, y: 0, share: 1 };
  ctx.drawImage(layer, left * width, top * height, share * width, share * height, 0, 0, width, height);
}

/** Draws a picture as its segment's fit says. Returns the area that it has drawn: everything except black bars. */
function fit(ctx: CanvasRenderingContext2D, segment: PlacedSegment, picture: Picture): { x: number; y: number; w: number; h: number } {
  const { width, height } = ctx.canvas;
  const shown = sizeOf(picture, segment.config);
  const cover = Math.max(width / shown.width, height / shown.height);
  const contain = Math.min(width / shown.width, height / shown.height);
  const at = (room: number, length: number, focus: number) => Math.min(0, Math.max(room - length, room / 2 - focus * length));
  const place = (on: CanvasRenderingContext2D, scale: number, x: number, y: number) => drawTurned(on, picture.image, picture, segment.config, x, y, scale);
  const all = { x: 0, y: 0, w: width, h: height };
  const [wide, high] = [shown.width * cover, shown.height * cover];
  if (segment.fit === 'cover') {
    place(ctx, cover, at(width, wide, segment.focusX), at(height, high, segment.focusY));
    return all;
  }
  const blurs = segment.fit === 'blur' && cover > contain * 1.005;
  if (blurs) {
    const scale = blurredSide / Math.min(width, height);
    const small = new OffscreenCanvas(Math.max(2, Math.round(width * scale)), Math.max(2, Math.round(height * scale)));
    const onSmall = small.getContext('2d', { willReadFrequently: true }) as unknown as CanvasRenderingContext2D;
    onSmall.imageSmoothingQuality = 'high';
    place(onSmall, cover * scale, at(width, wide, segment.focusX) * scale, at(height, high, segment.focusY) * scale);
    const pixels = onSmall.getImageData(0, 0, small.width, small.height);
    blur(pixels);
    onSmall.putImageData(pixels, 0, 0);
    ctx.drawImage(small, 0, 0, width, height);
  }
  const [x, y] = [(width - shown.width * contain) / 2, (height - shown.height * contain) / 2];
  place(ctx, contain, x, y);
  if (blurs) return all;
  const [left, top] = [Math.round(x), Math.round(y)];
  return { x: left, y: top, w: width - 2 * left, h: height - 2 * top };
}

// The service blurs a background at a small size as well, mirrored at its edges.
const blurredSide = 64;
const sigma = 4;
const kernel = Array.from({ length: 6 * sigma + 1 }, (_, k) => Math.exp(-((k - 3 * sigma) ** 2) / (2 * sigma ** 2)));
const weight = kernel.reduce((sum, k) => sum + k, 0);

function blur({ data, width, height }: ImageData): void {
  const along = (length: number, lines: number, step: number, next: number) => {
    const line = new Float32Array(length);
    for (let n = 0; n < lines; n++) {
      for (let c = 0; c < 3; c++) {
        for (let i = 0; i < length; i++) line[i] = data[n * next + i * step + c] ?? 0;
        for (let i = 0; i < length; i++) {
          let sum = 0;
          for (let k = 0; k < kernel.length; k++) {
            let at = i + k - 3 * sigma;
            if (at < 0) at = -at - 1;
            if (at >= length) at = 2 * length - 1 - at;
            sum += (kernel[k] ?? 0) * (line[Math.max(0, at)] ?? 0);
          }
          data[n * next + i * step + c] = sum / weight;
        }
      }
    }
  };
  along(width, height, 4, 4 * width);
  along(height, width, 4 * width, 4);
}
