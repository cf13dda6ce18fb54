// The pushes that this browser gets: it registers as a phone of platform B.

import { bytesToHex, randomBytes } from '@noble/hashes/utils.js';
import { useEffect, useState } from 'preact/hooks';
import { answer, api, pause, pushesTo, type Push } from './api';

const key = 'cutroom-player-device';

function deviceToken(): string {
  const token = localStorage.getItem(key) ?? bytesToHex(randomBytes(32));
  localStorage.setItem(key, token);
  return token;
}

const device = () => ({ platform: 'platform_b' as const, token: deviceToken() });

/** Ends the pushes to this browser before its user signs out. Does nothing if the server has no push. */
export const unregister = () => answer(api.DELETE('/api/v2/devices', { body: device() })).catch(() => {});

/** What a phone would show for the message's loc-key. */
const sentences: Record<string, string> = {
  'render.completed': 'Your film is ready.',
  'render.failed': 'Your film could not be made.',
  'separation.ready': 'Your stems are ready.',
  'separation.failed': 'Your recording could not be separated.',
};

const shownMs = 10_000;

/** The event by which a push opens a film. */
export const watchEvent = 'cutroom-watch';

/** Pushes as they arrive, over the page: nothing moves under the pointer. */
export function Pushes() {
  const [shown, show] = useState<Push[]>([]);
  useEffect(() => {
    let open = true;
    let seen = -1; // arrival time of the newest push already shown
    const look = async () => {
      const all = await pushesTo(deviceToken());
      const fresh = all.filter((p) => seen >= 0 && Date.parse(p.at) > seen);
      seen = Math.max(seen, 0, ...all.map((p) => Date.parse(p.at)));
      if (!fresh.length) return;
      show((old) => [...fresh.toReversed(), ...old]);
      setTimeout(() => show((old) => old.filter((p) => !fresh.includes(p))), shownMs);
    };
    const watch = async () => {
      await answer(api.PUT('/api/v2/devices', { body: device() }));
      for (; open; await pause(1000)) if (!document.hidden && navigator.onLine) await look().catch(() => {});
    };
    watch().catch(() => {}); // a server without push
    return () => void (open = false);
  }, []);
  return (
    <div class="pushes" role="log" aria-label="Push notifications">
      {shown.map((p) => (
        <p key={p.jobId + p.at}>
          <b>{sentences[p.type] ?? p.type}</b> <time dateTime={p.at}>{new Date(p.at).toLocaleTimeString('en', { hourCycle: 'h23' })}</time>
          {p.type === 'render.completed' && (
            <button type="button" class="link" onClick={() => dispatchEvent(new CustomEvent(watchEvent, { detail: p.jobId }))}>
              Watch it
            </button>
          )}
        </p>
      ))}
    </div>
  );
}
