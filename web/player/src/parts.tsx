// Components that several parts of the page use.

import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Trouble } from './errors';

const icons = {
  clip: 'M4 6h11v12H4zM17 10l4-3v10l-4-3z',
  music: 'M9 5l11-2v12.2a3 3 0 1 1-2-2.8V7l-7 1.3v9.9a3 3 0 1 1-2-2.8z',
  speech: 'M12 3a3 3 0 0 1 3 3v6a3 3 0 0 1-6 0V6a3 3 0 0 1 3-3zM6 11h2a4 4 0 0 0 8 0h2a6 6 0 0 1-5 5.9V21h-2v-4.1A6 6 0 0 1 6 11z',
  play: 'M7 4l13 8-13 8z',
  pause: 'M6 4h4v16H6zM14 4h4v16h-4z',
};

export const Icon = (props: { of: keyof typeof icons }) => (
  <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
    <path d={icons[props.of]} />
  </svg>
);

export function Panel(props: { title: string; aside?: ComponentChildren; class?: string; children: ComponentChildren }) {
  return (
    <section class={`panel ${props.class ?? ''}`} aria-label={props.title}>
      <header>
        <h2>{props.title}</h2>
        {props.aside}
      </header>
      {props.children}
    </section>
  );
}

/**
 * Runs one task at a time and ignores requests while it runs, so that a double click buys, separates or renders
 * once. `report` receives the failure, and undefined at the start.
 */
export function useTask(report: (trouble: Trouble | undefined) => void): [busy: boolean, run: (task: () => Promise<unknown>) => Promise<void>] {
  const running = useRef(false);
  const [busy, setBusy] = useState(false);
  const run = async (task: () => Promise<unknown>) => {
    if (running.current) return;
    running.current = true;
    setBusy(true);
    report(undefined);
    try {
      await task();
    } catch (e) {
      report(e instanceof Trouble ? e : new Trouble(e instanceof Error ? e.message : String(e)));
    }
    running.current = false;
    setBusy(false);
  };
  return [busy, run];
}

/** The answer of a request, undefined until it arrives. The request is repeated while that may help. `key` names what to ask for; '' is nothing. */
export function useAnswer<T>(key: string, ask: () => Promise<T>): T | undefined {
  const [found, set] = useState<{ key: string; answer: T }>();
  useEffect(() => {
    if (!key) return;
    let [left, tries, timer] = [false, 0, 0];
    const go = (): void =>
      void ask().then(
        (answer) => left || set({ key, answer }),
        (e) => {
          if (!left && !(e instanceof Trouble && !e.again)) timer = window.setTimeout(go, Math.min(5, ++tries) * 10_000);
        },
      );
    go();
    return () => {
      left = true;
      clearTimeout(timer);
    };
  }, [key]);
  return found?.key === key ? found.answer : undefined;
}

/** Focuses an element once the page has been drawn again. */
export const focusNext = (e: Element | null): void => void requestAnimationFrame(() => e instanceof HTMLElement && e.focus());

/** Asks before a reload or a closed tab would drop a file that is being sent. */
export function useUnloadWarning(on: boolean): void {
  useLayoutEffect(() => {
    if (!on) return;
    const warn = (e: BeforeUnloadEvent) => e.preventDefault();
    addEventListener('beforeunload', warn);
    return () => removeEventListener('beforeunload', warn);
  }, [on]);
}

/** A button that does nothing while it is off, but keeps the focus. */
export function Act(props: { off?: boolean; class?: string; label?: string; act: () => void; children: ComponentChildren }) {
  return (
    <button
      type="button"
      class={props.class ?? ''}
      aria-label={props.label}
      aria-disabled={props.off || undefined}
      onClick={() => {
        if (!props.off) props.act();
      }}
    >
      {props.children}
    </button>
  );
}

/** A button that takes the place of one that was just pressed: it ignores presses for a moment. */
export function LateAct(props: Parameters<typeof Act>[0]) {
  const [deaf, setDeaf] = useState(true);
  useEffect(() => {
    const timer = setTimeout(() => setDeaf(false), deafMs);
    return () => clearTimeout(timer);
  }, []);
  return <Act {...props} off={deaf || !!props.off} />;
}

/** Acts at the first press of a double tap. The second press may hit something else that has moved there. */
export function useFirstPress(): (act: () => void) => void {
  const deafUntil = useRef(0);
  return (act) => {
    if (performance.now() < deafUntil.current) return;
    deafUntil.current = performance.now() + deafMs;
    act();
  };
}

/** Calls `leave` at a press outside an element. */
function usePressOutside(box: { current: HTMLElement | null }, leave: () => void): void {
  useEffect(() => {
    const press = (e: Event) => {
      if (box.current?.contains(e.target as Node)) return;
      // A tap on the picture that closes a menu does not start the film.
      if (box.current?.matches('[open]') && (e.target as Element).matches?.('canvas')) addEventListener('click', (c) => c.stopPropagation(), { capture: true, once: true });
      leave();
    };
    addEventListener('pointerdown', press);
    return () => removeEventListener('pointerdown', press);
  }, []);
}

/** How long a question, or a button that has just removed something, ignores presses, in milliseconds. */
export const deafMs = 600;

/**
 * Asks before money is spent or something is lost. It ignores presses for a moment, and for as long as they keep following
 * each other that fast, so a double tap on the button that opened it does not answer the question.
 */
export function Ask(props: { question: string; yes: string; off?: boolean; act: () => void; cancel: () => void; children?: ComponentChildren }) {
  const [deaf, setDeaf] = useState(true);
  const box = useRef<HTMLDialogElement>(null);
  const timer = useRef(0);
  const wait = () => {
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => setDeaf(false), deafMs);
  };
  useLayoutEffect(() => {
    box.current?.showModal();
    box.current?.focus();
    wait();
    return () => {
      clearTimeout(timer.current);
      box.current?.close(); // gives the focus back
    };
  }, []);
  return (
    <dialog
      ref={box}
      class="question panel"
      role="alertdialog"
      tabIndex={-1}
      aria-label={props.question}
      onPointerDown={() => deaf && wait()}
      onClick={(e) => e.target === box.current && !deaf && props.cancel()}
      onCancel={(e) => {
        e.preventDefault();
        props.cancel();
      }}
      onKeyDown={(e) => e.stopPropagation()}
    >
      <h3>{props.question}</h3>
      {props.children}
      <div class="row">
        <Act class="plain" off={deaf} act={props.cancel}>
          Cancel
        </Act>
        <Act class="primary" off={props.off || deaf} act={props.act}>
          {props.yes}
        </Act>
      </div>
    </dialog>
  );
}

/** A button for an action that cannot be undone: it asks first, and says what is lost. */
export function Confirm(props: { off?: boolean; label: string; yes?: string; loses: string; act: () => void; children: ComponentChildren }) {
  const [asked, ask] = useState(false);
  return (
    <>
      <Act class="plain" {...props} act={() => ask(true)} />
      {asked && (
        <Ask
          question={`${props.label}?`}
          yes={props.yes ?? 'Delete'}
          off={!!props.off}
          cancel={() => ask(false)}
          act={() => {
            ask(false);
            props.act();
          }}
        >
          <p>{props.loses}</p>
        </Ask>
      )}
    </>
  );
}

/** An error message, with a button to try again if that may help. */
export function Wrong(props: { trouble: Trouble | undefined; again?: (() => void) | undefined }) {
  return (
    <div class="wrong" role="alert">
      {props.trouble?.message}
      {props.trouble?.again && props.again && (
        <button type="button" onClick={props.again}>
          Try again
        </button>
      )}
    </div>
  );
}

/** A button that opens a small panel. A press outside and Escape close it, and its children may. */
export function Popover(props: { class: string; button: ComponentChildren; label?: string; opened?: () => void; children: ComponentChildren | ((close: () => void) => ComponentChildren) }) {
  const box = useRef<HTMLDetailsElement>(null);
  const close = () => box.current?.removeAttribute('open');
  usePressOutside(box, close);
  const escape = (e: KeyboardEvent) => {
    if (e.key !== 'Escape' || !box.current?.open) return;
    box.current.open = false;
    box.current.querySelector('summary')?.focus();
  };
  return (
    <details ref={box} class={props.class} onToggle={() => box.current?.open && props.opened?.()} onKeyDown={escape}>
      <summary aria-label={props.label}>{props.button}</summary>
      <div class="panel">{typeof props.children === 'function' ? props.children(close) : props.children}</div>
    </details>
  );
}

/** Says what an edit did and offers to undo it, if it can be. It takes the focus from the removed element. */
export function Undo(props: { label: string; undo?: (() => void) | undefined; close: () => void }) {
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => button.current?.focus(), [props.label]);
  return (
    <div class="undo" role="status">
      {props.label}
      {props.undo && (
        <button ref={button} type="button" class="primary" onClick={props.undo}>
          Undo
        </button>
      )}
      <button type="button" class="plain" onClick={props.close}>
        Close
      </button>
    </div>
  );
}

/** Accepts files that are dropped on it or chosen. */
export function Drop(props: { label: string; hint: string; icon: keyof typeof icons; accept: string; many?: boolean; take: (files: File[]) => void }) {
  const [over, setOver] = useState(false);
  return (
    <label
      class={`drop ${over ? 'over' : ''}`}
      onDragOver={(e) => {
        e.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(e) => {
        e.preventDefault();
        setOver(false);
        props.take([...(e.dataTransfer?.files ?? [])]);
      }}
    >
      <Icon of={props.icon} />
      <span>
        <strong>{props.label}</strong>
        <small>{props.hint}</small>
      </span>
      <input
        type="file"
        class="unseen"
        accept={props.accept}
        multiple={props.many}
        onChange={(e) => {
          props.take([...(e.currentTarget.files ?? [])]);
          e.currentTarget.value = '';
        }}
      />
    </label>
  );
}

export function Slider(props: {
  label: string;
  /** The label for screen readers, if the visible one is not enough. */
  of?: string;
  value: number;
  min?: number;
  max: number;
  step: number;
  text: string;
  set: (value: number) => void;
  /** Handles an arrow key, -1 or 1, instead of a step, and returns whether it did. */
  jump?: ((by: number) => boolean) | undefined;
  /** Sets the value that changes nothing: a double tap, or the Delete key. */
  reset?: () => void;
}) {
  const arrow = (e: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[e.key];
    if (by && props.jump?.(by)) e.preventDefault();
    if (e.key === 'Delete' || e.key === 'Backspace') props.reset?.();
  };
  return (
    <label class="slider">
      <span>
        {props.label} <output>{props.text}</output>
      </span>
      <input
        type="range"
        aria-label={props.of ?? props.label}
        aria-valuetext={props.text}
        min={props.min ?? 0}
        max={props.max}
        step={props.step}
        value={props.value}
        onInput={(e) => props.set(Number(e.currentTarget.value))}
        onKeyDown={arrow}
        onDblClick={props.reset}
      />
    </label>
  );
}

/** A list from which one value is chosen. */
export const Choice = (props: { label: string; of?: string; value: string; options: [value: string, label: string][]; set: (value: string) => void }) => (
  <label class="slider">
    <span>{props.label}</span>
    <select aria-label={props.of ?? props.label} value={props.value} onChange={(e) => props.set(e.currentTarget.value)}>
      {props.options.map(([value, label]) => (
        <option key={value} value={value}>
          {label}
        </option>
      ))}
    </select>
  </label>
);

export const Volume = (props: { of: string; value: number; set: (value: number) => void }) => (
  <Slider label="Volume" of={`Volume of ${props.of}`} value={props.value} max={2} step={0.05} text={`${Math.round(props.value * 100)} %`} set={props.set} />
);

/** A progress bar that screen readers can read. */
export function Progress(props: { label: string; value: number | null }) {
  return (
    <div class="going" role="status">
      <span>{props.label}</span>
      <progress aria-label={props.label} max={100} {...(props.value === null ? {} : { value: props.value })} />
    </div>
  );
}
