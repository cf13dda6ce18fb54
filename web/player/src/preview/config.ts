// The part of a render's request that decides what the viewer sees and hears. The preview reads the same fields as the service.

export type Fit = 'contain' | 'cover' | 'blur';
export type JoinType = 'dissolve' | 'fadeBlack' | 'fadeWhite' | 'wipe' | 'slide' | 'push';
export type Direction = 'left' | 'right' | 'up' | 'down';

export interface VolumePoint {
  atMs: number;
  volume: number;
}

export interface Crop {
  left?: number;
  top?: number;
  right?: number;
  bottom?: number;
}

export interface Move {
  atMs: number;
  scale?: number;
  x?: number;
  y?: number;
}

export interface Adjust {
  exposure?: number;
  contrast?: number;
  saturation?: number;
  warmth?: number;
  tint?: number;
}

/** A turn clockwise, in degrees. */
export type Rotation = 0 | 90 | 180 | 270;

/** How a segment's picture is turned, cropped, moved over and corrected. */
export interface Look {
  rotate?: Rotation | null | undefined;
  mirror?: boolean | null | undefined;
  crop?: Crop | null | undefined;
  moves?: Move[] | null | undefined;
  adjust?: Adjust | null | undefined;
}

/** A speed at a time of the clip since the start of the trimmed range, in playing order. */
export interface SpeedPoint {
  atMs: number;
  speed: number;
}

export interface SegmentConfig extends Look {
  reverse?: boolean | null;
  smooth?: boolean | null;
  speedPoints?: SpeedPoint[] | null;
  sourceAssetKey: string;
  durationMs: number;
  trimStartMs?: number;
  trimEndMs?: number | null;
  speedScale?: number;
  volumeScale?: number;
  volumePoints?: VolumePoint[] | null;
  transition?: { type: JoinType; durationMs?: number; direction?: Direction } | null;
  fit?: Fit | null;
  focusX?: number;
  focusY?: number;
}

export interface MusicConfig {
  audioAssetKey: string;
  startMs: number;
  sourceTrimStartMs?: number;
  sourceTrimEndMs?: number;
  endMs?: number;
  volume?: number;
  speed?: number;
  fadeInMs?: number;
  fadeOutMs?: number;
  loop?: boolean;
  ducking?: { amountDb?: number; attackMs?: number; releaseMs?: number } | null;
  voice?: boolean;
  volumePoints?: VolumePoint[] | null;
}

export interface DirectiveConfig {
  rangeStartMs: number;
  rangeEndMs: number;
  muteOriginalSegmentAudio?: boolean;
  sourceOffsetMs?: number;
  appliedSpeedScale?: number;
  selections?: { stemId: string; separationJobId?: string | null; volume?: number; volumePoints?: VolumePoint[] | null }[];
}

export interface EndConfig {
  color?: 'black' | 'white';
  durationMs?: number;
}

export interface FilmConfig {
  canvas?: {
    aspect?: string;
    maxSide?: number | null;
    shortSide?: number | null;
    frameRate?: number | null;
    fit?: Fit;
  } | null;
  segments: SegmentConfig[];
  bgmClips?: MusicConfig[];
  separationDirectives?: DirectiveConfig[];
  fadeIn?: EndConfig | null;
  fadeOut?: EndConfig | null;
}
