// A segment's look: how its picture is turned, cropped, moved over and corrected, by the rules of the renderer.

import type { Adjust, Look, Move } from './config';

export interface Size {
  width: number;
  height: number;
}

const swapsSides = (look: Look): boolean => (look.rotate ?? 0) % 180 !== 0;
const round = (n: number): number => Math.round(n * 1e6) / 1e6; // shares such as 0.1 have no exact binary form

export const isCropped = ({ crop }: Look): boolean => !!crop && !!(crop.left || crop.top || crop.right || crop.bottom);

/** The size of a picture after it is turned and cropped. */
export function sizeOf(picture: Size, look: Look): Size {
  const [width, height] = swapsSides(look) ? [picture.height, picture.width] : [picture.width, picture.height];
  const { left = 0, top = 0, right = 0, bottom = 0 } = look.crop ?? {};
  return { width: round(width * (1 - left - right)), height: round(height * (1 - top - bottom)) };
}

/** Draws the turned and cropped picture with its upper left corner at (x, y). */
export function drawTurned(ctx: CanvasRenderingContext2D, image: CanvasImageSource, picture: Size, look: Look, x: number, y: number, scale: number): void {
  const { width, height } = sizeOf(picture, look);
  const [w, h] = swapsSides(look) ? [picture.height, picture.width] : [picture.width, picture.height];
  const { left = 0, top = 0 } = look.crop ?? {};
  ctx.save();
  if (isCropped(look)) {
    ctx.beginPath();
    ctx.rect(x, y, width * scale, height * scale);
    ctx.clip();
  }
  ctx.transform(scale, 0, 0, scale, x - left * w * scale, y - top * h * scale);
  if (look.mirror) ctx.transform(-1, 0, 0, 1, w, 0);
  if (look.rotate === 90) ctx.transform(0, 1, -1, 0, w, 0);
  if (look.rotate === 180) ctx.transform(-1, 0, 0, -1, w, h);
  if (look.rotate === 270) ctx.transform(0, -1, 1, 0, 0, h);
  ctx.drawImage(image, 0, 0, picture.width, picture.height);
  ctx.restore();
}

/** The move in effect at a time, in milliseconds from the segment's start: the scale changes geometrically, the rest evenly. */
export function moveAt(moves: Move[], ms: number): Required<Omit<Move, 'atMs'>> {
  const next = moves.findIndex((m) => m.atMs > ms);
  const a = moves[next < 0 ? moves.length - 1 : Math.max(0, next - 1)];
  const b = next < 0 ? a : moves[next];
  const along = a && b && b.atMs > a.atMs ? (ms - a.atMs) / (b.atMs - a.atMs) : 0;
  const even = (from = 0.5, to = 0.5) => from + (to - from) * along;
  return { scale: (a?.scale ?? 1) * ((b?.scale ?? 1) / (a?.scale ?? 1)) ** along, x: even(a?.x, b?.x), y: even(a?.y, b?.y) };
}

/** The part of a canvas that fills the canvas at that time, as shares of its sides; undefined if it is the whole canvas. */
export function windowAt(moves: Move[] | null | undefined, ms: number): { x: number; y: number; share: number } | undefined {
  if (!moves?.length) return undefined;
  const { scale, x, y } = moveAt(moves, ms);
  if (scale === 1) return undefined;
  const share = 1 / scale;
  const edge = (middle: number) => Math.min(1 - share, Math.max(0, middle - share / 2));
  return { x: edge(x), y: edge(y), share };
}

export const isAdjusted = (adjust: Adjust | null | undefined): adjust is Adjust => !!adjust && Object.values(adjust).some(Boolean);

// Of BT.709.
const [red, green, blue] = [0.2126, 0.7152, 0.0722];

/** Corrects light and colours of a part of a canvas. */
export function correct(ctx: CanvasRenderingContext2D, adjust: Adjust, x: number, y: number, width: number, height: number): void {
  const { exposure = 0, contrast = 0, saturation = 0, warmth = 0, tint = 0 } = adjust;
  const gain = 2 ** exposure;
  const [light, colour] = [gain * (1 + contrast), gain * (1 + saturation)];
  const [dark, toBlue, toRed] = [-contrast / 2, -0.06 * warmth + 0.04 * tint, 0.06 * warmth + 0.04 * tint];
  const half = (v: number) => Math.min(0.5, Math.max(-0.5, v));
  const pixels = ctx.getImageData(x, y, width, height);
  const { data } = pixels;
  for (let i = 0; i < data.length; i += 4) {
    const [r, g, b] = [(data[i] ?? 0) / 255, (data[i + 1] ?? 0) / 255, (data[i + 2] ?? 0) / 255];
    const luma = red * r + green * g + blue * b;
    const l = Math.min(1, Math.max(0, light * luma + dark));
    const u = half((colour * (b - luma)) / (2 * (1 - blue)) + toBlue);
    const v = half((colour * (r - luma)) / (2 * (1 - red)) + toRed);
    const [newRed, newBlue] = [l + 2 * (1 - red) * v, l + 2 * (1 - blue) * u];
    data[i] = 255 * newRed; // the array rounds and clips
    data[i + 1] = (255 * (l - red * newRed - blue * newBlue)) / green;
    data[i + 2] = 255 * newBlue;
  }
  ctx.putImageData(pixels, x, y);
}
