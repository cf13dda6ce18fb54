// A separated recording: its stems as waveforms, each with a volume, heard together.

import { useEffect, useRef, useState } from 'preact/hooks';
import { peaksOf, stemAddress, type Schemas } from './api';
import { seconds } from './media';
import { Icon, useAnswer, Volume } from './parts';

type Stem = Schemas['Stem'];

export function Stems(props: { stems: Stem[]; volume: (stemId: string) => number; set: (stemId: string, volume: number) => void }) {
  const { stems, volume } = props;
  const [playing, setPlaying] = useState(false);
  const [at, setAt] = useState(0);
  const sounds = useRef(new Map<string, HTMLAudioElement>());

  useEffect(() => {
    const all = sounds.current;
    for (const stem of stems) {
      const sound = all.get(stem.stemId) ?? new Audio(stemAddress(stem).href);
      sound.volume = Math.min(1, volume(stem.stemId));
      all.set(stem.stemId, sound);
    }
  });
  useEffect(() => () => sounds.current.forEach((sound) => sound.pause()), []);

  useEffect(() => {
    if (!playing) return;
    const [first, ...others] = sounds.current.values();
    if (!first) return;
    for (const sound of others) sound.currentTime = first.currentTime;
    sounds.current.forEach((sound) => void sound.play().catch(() => setPlaying(false)));
    const timer = setInterval(() => {
      setAt(first.currentTime * 1000);
      if (first.ended) setPlaying(false);
    }, 60);
    return () => {
      clearInterval(timer);
      sounds.current.forEach((sound) => sound.pause());
    };
  }, [playing]);

  const seek = (ms: number) => {
    sounds.current.forEach((sound) => (sound.currentTime = ms / 1000));
    setAt(ms);
  };
  return (
    <div class="stems">
      <div class="row">
        <button type="button" aria-pressed={playing} onClick={() => setPlaying(!playing)}>
          <Icon of={playing ? 'pause' : 'play'} /> {playing ? 'Pause' : 'Listen'}
        </button>
        <small>{seconds(at)}</small>
      </div>
      <ul>
        {stems.map((stem) => (
          <li key={stem.stemId} class={volume(stem.stemId) ? '' : 'mute'}>
            <strong>{stem.label}</strong>
            <Wave stem={stem} at={at} loud={volume(stem.stemId)} seek={seek} />
            <Volume of={stem.label} value={volume(stem.stemId)} set={(v) => props.set(stem.stemId, v)} />
          </li>
        ))}
      </ul>
    </div>
  );
}

/** The API's waveform of a stem: pairs of the lowest and the highest sample. */
function Wave(props: { stem: Stem; at: number; loud: number; seek: (ms: number) => void }) {
  const { stem } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const wave = useAnswer(stem.stemId, () => peaksOf(stem, 600));
  useEffect(() => {
    const paint = canvas.current?.getContext('2d');
    if (!paint || !wave) return;
    const { width, height } = paint.canvas;
    const style = getComputedStyle(paint.canvas);
    const played = (props.at / stem.durationMs) * width;
    // Draw quiet sound larger; a change of volume stays visible.
    const size = (props.loud ? Math.min(1.5, 0.3 + 0.7 * props.loud) : 0.8) / Math.max(0.15, ...wave.data.map((v) => Math.abs(v) / 128));
    paint.clearRect(0, 0, width, height);
    for (let i = 0; i < wave.length; i++) {
      const x = (i * width) / wave.length;
      const [low = 0, high = 0] = [wave.data[2 * i], wave.data[2 * i + 1]].map((v) => Math.max(-1, Math.min(1, ((v ?? 0) / 128) * size)));
      paint.fillStyle = x < played ? style.getPropertyValue('--played') : style.color;
      paint.fillRect(x, (height * (1 - high)) / 2, Math.max(1, width / wave.length - 0.6), Math.max(1.5, (height * (high - low)) / 2));
    }
  }, [wave, props.at, props.loud]);
  return (
    <canvas
      ref={canvas}
      width={1200}
      height={120}
      role="img"
      aria-label={`Waveform of ${stem.label}, ${seconds(stem.durationMs)}`}
      data-points={wave?.length ?? 0}
      onClick={(e) => props.seek((e.offsetX / e.currentTarget.clientWidth) * stem.durationMs)}
    />
  );
}
