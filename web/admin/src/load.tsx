// Loads a report, and shows a placeholder until it arrives.

import type { ComponentChildren } from 'preact';
import { createContext } from 'preact';
import { useCallback, useContext, useEffect, useRef, useState } from 'preact/hooks';
import { report, ReportError, type Path, type Query, type Report } from './api';

export interface Session {
  token: string;
  /** Ends the session, with the reason. */
  end(reason: string): void;
}

export const SessionContext = createContext<Session>({ token: '', end: () => {} });

export interface Loading<T> {
  /** The last answer for this path and query. */
  data: T | undefined;
  error: string | undefined;
  busy: boolean;
  /** When data arrived, in epoch milliseconds. */
  at: number;
  reload(): void;
}

/** Loads a report now, whenever its path or query change, and on reload. */
export function useReport<P extends Path>(path: P, query: Query = {}): Loading<Report<P>> {
  const session = useContext(SessionContext);
  const [answer, setAnswer] = useState<{ key: string; data?: Report<P>; error?: string; at: number }>({ key: '', at: 0 });
  const [busy, setBusy] = useState(true);
  const running = useRef<AbortController | null>(null);
  const key = JSON.stringify([path, query]);

  const load = useCallback(() => {
    running.current?.abort();
    const abort = (running.current = new AbortController());
    setBusy(true);
    report(path, query, session.token, abort.signal).then(
      (data) => {
        if (abort.signal.aborted) return;
        setAnswer({ key, data, at: Date.now() });
        setBusy(false);
      },
      (e: unknown) => {
        if (abort.signal.aborted) return;
        const failure = e instanceof ReportError ? e : new ReportError('This page failed to show the answer.', -1);
        if (failure.status === 401 || failure.status === 403) {
          session.end(failure.message);
          return;
        }
        // Keep the old data, so that one failed refresh does not empty the page.
        setAnswer((old) => ({ ...(old.key === key ? old : { at: 0 }), key, error: failure.message }));
        setBusy(false);
      },
    );
  }, [key, session.token]);

  useEffect(() => {
    load();
    return () => running.current?.abort();
  }, [load]);

  const current = answer.key === key ? answer : undefined;
  return { data: current?.data, error: current?.error, busy, at: current?.at ?? 0, reload: load };
}

/** Shows a loaded report, or why it could not be loaded. */
export function Loaded<T>(props: { of: Loading<T>; children: (data: T) => ComponentChildren }) {
  const { data, error, busy, reload } = props.of;
  return (
    <div class="loaded" aria-busy={busy}>
      {error && (
        <div class="notice bad" role="alert">
          <p>{error}</p>
          <button type="button" onClick={reload}>
            Try again
          </button>
        </div>
      )}
      {data !== undefined ? props.children(data) : !error && <p class="quiet">Loading…</p>}
    </div>
  );
}

export const Empty = (props: { children: ComponentChildren }) => <p class="empty">{props.children}</p>;
