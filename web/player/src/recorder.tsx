// A voice that is recorded over the film in the page.

import { useEffect, useRef, useState } from 'preact/hooks';
import { Trouble } from './errors';
import { seconds } from './media';
import { Act, useTask, useUnloadWarning, Wrong } from './parts';

/** The formats in which browsers record, and the extension of each: the page takes the first that this browser supports. */
const formats = [['audio/mp4', 'm4a'], ['audio/webm', 'webm']] as const; // prettier-ignore

const refusals: Record<string, string> = {
  NotAllowedError: 'This page may not use the microphone. Allow it in the settings of the browser, then try again.',
  NotFoundError: 'There is no microphone.',
};

/**
 * Records from the playhead on, while the picture plays without its sound, so that the film is not recorded with the
 * voice. `taken` receives the recording and where in the film it begins, in milliseconds.
 */
export function Recorder(props: { at: { current: number }; seek: (ms: number) => void; taken: (file: File, startMs: number) => void; count: number }) {
  const [recorder, set] = useState<MediaRecorder>();
  const [heard, setHeard] = useState(0);
  const [trouble, setTrouble] = useState<Trouble>();
  const [busy, run] = useTask(setTrouble);
  const latest = useRef(props);
  latest.current = props;
  useUnloadWarning(!!recorder);

  const record = () =>
    run(async () => {
      if (!navigator.mediaDevices) throw new Trouble('Browsers record only on pages that are served by https or by this machine itself.');
      const [type, ext] = formats.find(([t]) => MediaRecorder.isTypeSupported(t)) ?? formats[0];
      const microphone = await navigator.mediaDevices.getUserMedia({ audio: true }).catch((e: Error) => {
        throw new Trouble(refusals[e.name] ?? 'The microphone cannot be used.');
      });
      const made = new MediaRecorder(microphone, { mimeType: type });
      const startMs = Math.round(props.at.current);
      const pieces: Blob[] = [];
      made.ondataavailable = (e) => void pieces.push(e.data);
      made.onstop = () => {
        microphone.getTracks().forEach((track) => track.stop());
        set(undefined);
        const { taken, count } = latest.current;
        if (pieces.some((p) => p.size)) taken(new File(pieces, `Voice-over ${count + 1}.${ext}`, { type }), startMs);
      };
      made.onstart = () => set(made);
      made.start(1000); // keeps the speech so far even if the page hangs
    });

  useEffect(() => {
    if (!recorder) return;
    const [begun, from] = [performance.now(), props.at.current];
    let request = 0;
    const turn = () => {
      const ms = performance.now() - begun;
      setHeard(ms);
      latest.current.seek(from + ms);
      request = requestAnimationFrame(turn);
    };
    request = requestAnimationFrame(turn);
    return () => cancelAnimationFrame(request);
  }, [recorder]);
  // Leaving a project ends its recording, and keeps it.
  const open = useRef(recorder);
  open.current = recorder;
  useEffect(() => () => open.current?.stop(), []);

  return (
    <span class="row">
      <Act class={recorder ? 'primary' : ''} off={busy} act={() => (recorder ? recorder.stop() : void record())}>
        {recorder ? `Stop, ${seconds(heard)}` : 'Record a voice-over'}
      </Act>
      <Wrong trouble={trouble} />
    </span>
  );
}
