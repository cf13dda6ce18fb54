/**
 * Where the client keeps what must survive the app: the session, submits without an answer, purchases. A browser's
 * localStorage fits, and so does AsyncStorage. Keep it where other apps cannot read it: it has the access token.
 */
export interface Store {
  getItem(key: string): string | null | Promise<string | null>;
  setItem(key: string, value: string): void | Promise<void>;
  removeItem(key: string): void | Promise<void>;
}

/** A store in memory, which ends with the process. */
export function memory(): Store {
  const values = new Map<string, string>();
  return {
    getItem: (key) => values.get(key) ?? null,
    setItem: (key, value) => void values.set(key, value),
    removeItem: (key) => void values.delete(key),
  };
}

export async function read<T>(store: Store, key: string): Promise<T | undefined> {
  const text = await store.getItem(key);
  return text === null ? undefined : (JSON.parse(text) as T);
}

/** Stores a value, or removes it if it is undefined. */
export async function write(store: Store, key: string, value: unknown): Promise<void> {
  if (value === undefined) await store.removeItem(key);
  else await store.setItem(key, JSON.stringify(value));
}
