// Waits that a signal ends early.

/** Throws the signal's reason if it is aborted. React Native's AbortSignal has no throwIfAborted. */
export function check(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw (signal.reason as unknown) ?? new Error('aborted');
}

/** Calls `act` once the signal is aborted. The result stops listening. */
export function onAbort(signal: AbortSignal | undefined, act: () => void): () => void {
  if (signal?.aborted) act();
  signal?.addEventListener('abort', act);
  return () => signal?.removeEventListener('abort', act);
}

/** The result of a promise, or the signal's reason if that is aborted first. */
export function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return promise;
  let forget = () => {};
  const aborted = new Promise<never>((_, failed) => {
    forget = onAbort(signal, () => failed((signal.reason as unknown) ?? new Error('aborted')));
  });
  return Promise.race([promise, aborted]).finally(forget);
}

/** Waits for some milliseconds, or throws the signal's reason as soon as it is aborted. */
export const pause = (ms: number, signal?: AbortSignal): Promise<void> => unlessAborted(new Promise((done) => setTimeout(done, ms)), signal);
