// Long tasks: each has its progress, can be cancelled, and offers to continue if it failed.

import { useRef, useState } from 'preact/hooks';
import { Trouble } from './errors';
import { Act, Progress, useFirstPress, Wrong } from './parts';

interface Task {
  id: number;
  label: string;
  /** The project in which it began, and in which it ends. */
  project: string;
  /** How much is done, 0 to 100, if known. */
  part: number | null;
  trouble?: Trouble;
  again?: () => void;
  stop: AbortController;
}

/** Receives how much is done, 0 to 1. */
export type Sent = (part: number) => void;
type Run = (sent: Sent, signal: AbortSignal) => Promise<unknown>;

export interface Tasks {
  all: Task[];
  running: boolean;
  start: (label: string, project: string, run: Run) => Promise<void>;
  /** Ends a task, or all tasks of a project. */
  stop: (of: (task: Task) => boolean) => void;
}

/** Tasks run side by side, and go on while another project is open. */
export function useTasks(): Tasks {
  const [all, set] = useState<Task[]>([]);
  const last = useRef(0);
  const start = async (label: string, project: string, run: Run): Promise<void> => {
    const id = ++last.current;
    const stop = new AbortController();
    const change = (part: Partial<Task>) => set((old) => old.map((t) => (t.id === id ? { ...t, ...part } : t)));
    const drop = () => set((old) => old.filter((t) => t.id !== id));
    set((old) => [...old, { id, label, project, part: null, stop }]);
    const cancelled = new Promise<never>((_, failed) => stop.signal.addEventListener('abort', () => failed(stop.signal.reason)));
    try {
      await Promise.race([run((part) => change({ part: part * 100 }), stop.signal), cancelled]);
      drop();
    } catch (e) {
      if (stop.signal.aborted) return drop();
      const trouble = e instanceof Trouble ? e : new Trouble(e instanceof Error ? e.message : String(e));
      change({ trouble, again: () => (drop(), void start(label, project, run)) });
    }
  };
  const stop = (of: (task: Task) => boolean) => {
    all.filter(of).forEach((t) => t.stop.abort());
    set((old) => old.filter((t) => !of(t)));
  };
  return { all, running: all.some((t) => !t.trouble), start, stop };
}

export function TaskList(props: { tasks: Tasks; project: string; nameOf: (project: string) => string }) {
  const { all, stop } = props.tasks;
  const firstPress = useFirstPress();
  return (
    <>
      {all.map((t) => {
        const label = t.project === props.project ? t.label : `${t.label}, in ${props.nameOf(t.project)}`;
        return (
          <div key={t.id} class="task">
            {t.trouble ? <Wrong trouble={t.trouble} again={t.again} /> : <Progress label={label} value={t.part} />}
            <Act class="plain" label={t.trouble ? 'Close the message' : `Cancel: ${label}`} act={() => firstPress(() => stop((o) => o.id === t.id))}>
              {t.trouble ? 'Close' : 'Cancel'}
            </Act>
          </div>
        );
      })}
    </>
  );
}
