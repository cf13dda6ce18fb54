// The film that is being made: kept in this browser, by keys that do not run out.

import { useEffect, useState } from 'preact/hooks';
import type { Schemas } from './api';

export interface Clip {
  name: string;
  assetKey: string;
  durationMs: number;
  /** A small picture as data: address. */
  picture: string;
}

export interface Segment {
  id: number;
  assetKey: string;
  fromMs: number;
  toMs: number;
  speed: number;
  volume: number;
}

export interface Draft {
  clips: Clip[];
  segments: Segment[];
  music?: { name: string; assetKey: string; volume: number } | undefined;
  speech?: { name: string; jobId: string; volumes: Record<string, number>; alone: boolean } | undefined;
  quality: Schemas['Quality'];
}

export const empty: Draft = { clips: [], segments: [], quality: 'medium' };

/** A draft that survives a reload. */
export function useDraft(user: string): [Draft, (change: (old: Draft) => Draft) => void] {
  const key = `cutroom-draft-${user}`;
  const [draft, set] = useState<Draft>(() => JSON.parse(localStorage.getItem(key) ?? 'null') ?? empty);
  useEffect(() => localStorage.setItem(key, JSON.stringify(draft)), [draft]);
  return [draft, set];
}

export const lengthOf = (s: Segment): number => (s.toMs - s.fromMs) / s.speed;

export const lengthOfAll = (segments: Segment[]): number => segments.reduce((sum, s) => sum + lengthOf(s), 0);

export const nextId = (segments: Segment[]): number => Math.max(0, ...segments.map((s) => s.id)) + 1;

/** The draft as the API renders it. */
export function configOf(draft: Draft, stems: Schemas['Stem'][]): Schemas['RenderConfigV3'] {
  const { music, speech } = draft;
  const heard = speech ? stems.map((s) => ({ stemId: s.stemId, volume: speech.volumes[s.stemId] ?? 0 })).filter((s) => s.volume > 0) : [];
  const until = Math.floor(Math.min(lengthOfAll(draft.segments), Math.max(0, ...stems.map((s) => s.durationMs))));
  return {
    quality: draft.quality,
    segments: draft.segments.map((s, order) => ({
      sourceAssetKey: s.assetKey,
      order,
      durationMs: draft.clips.find((c) => c.assetKey === s.assetKey)?.durationMs ?? s.toMs,
      trimStartMs: s.fromMs,
      trimEndMs: s.toMs,
      speedScale: s.speed,
      volumeScale: s.volume,
    })),
    bgmClips: music ? [{ audioAssetKey: music.assetKey, startMs: 0, volume: music.volume }] : [],
    separationDirectives:
      speech && until > 0
        ? [
            {
              id: 'speech',
              rangeStartMs: 0,
              rangeEndMs: until,
              muteOriginalSegmentAudio: speech.alone,
              selections: heard.map((s) => ({ ...s, separationJobId: speech.jobId })),
            },
          ]
        : [],
  };
}
