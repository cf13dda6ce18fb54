// Where projects are kept: IndexedDB, one record a project, written by transaction. All tabs share them.

import type { Draft } from './draft';

export interface Project {
  user: string;
  id: string;
  name: string;
  /** When it was made and when it was last opened, in milliseconds since 1970. */
  madeAt: number;
  openedAt: number;
  /** When it was deleted. The last deleted one can be restored. */
  removedAt?: number | undefined;
  draft: Draft;
  /** Edits as JSON, the latest last. */
  past: string[];
  future: string[];
  /** The last render of it. */
  film?: string | undefined;
  /** Grows with each write. */
  rev: number;
}

/** Changes a project. It is called again with the stored record if another tab has changed that in the meantime. */
export type Edit = (old: Project) => Project;

const channel = new BroadcastChannel('cutroom-projects');

let opened: Promise<IDBDatabase> | undefined;

function open(): Promise<IDBDatabase> {
  opened ??= new Promise<IDBDatabase>((done, failed) => {
    const asked = indexedDB.open('cutroom-studio', 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore('projects', { keyPath: ['user', 'id'] });
    asked.onerror = () => failed(asked.error);
    asked.onsuccess = () => {
      asked.result.onclose = () => (opened = undefined);
      asked.result.onversionchange = () => asked.result.close();
      done(asked.result);
    };
  });
  opened.catch(() => (opened = undefined));
  return opened;
}

/** Runs requests in a transaction and returns the last result once it is on the disk. */
async function run<T>(mode: IDBTransactionMode, ask: (projects: IDBObjectStore, result: (value: T) => void) => void): Promise<T> {
  const db = await open();
  return new Promise((done, failed) => {
    const transaction = db.transaction('projects', mode);
    let found: T;
    transaction.oncomplete = () => done(found);
    transaction.onabort = () => failed(transaction.error);
    ask(transaction.objectStore('projects'), (value) => (found = value));
  });
}

const ofUser = (user: string) => IDBKeyRange.bound([user], [user, []]);

/** All projects of a user, including the one that was deleted last. */
export const stored = (user: string): Promise<Project[]> =>
  run('readonly', (projects, result) => {
    const all = projects.getAll(ofUser(user));
    all.onsuccess = () => result(all.result);
  });

/** Erases a user's projects from this browser. */
export const forget = (user: string): Promise<void> => run('readwrite', (projects) => void projects.delete(ofUser(user)));

/** Writes what `next` makes of the stored record, or erases the record, and returns the new one. */
function write(user: string, id: string, next: (old: Project | undefined) => Project | undefined): Promise<Project | undefined> {
  return run('readwrite', (projects, result) => {
    const old = projects.get([user, id]);
    old.onsuccess = () => {
      const made = next(old.result);
      if (made) projects.put(made);
      else projects.delete([user, id]);
      projects.transaction.commit();
      result(made);
    };
  });
}

const isFull = (e: unknown): boolean => (e as Error | null)?.name === 'QuotaExceededError';

/** Why the latest edits are not stored. */
export type Unsaved = '' | 'saving' | 'full' | 'refused';

/** A user's projects in memory, which are written as fast as the disk allows. */
export class Shelf {
  private all = new Map<string, Project>();
  /** Edits that are not stored yet. */
  private waiting = new Map<string, Edit[]>();
  private writing: Promise<void> | undefined;
  unsaved: Unsaved = '';

  constructor(
    readonly user: string,
    private changed: () => void,
  ) {}

  get projects(): Project[] {
    return [...this.all.values()].sort((a, b) => a.madeAt - b.madeAt);
  }

  /** Reads the projects, and follows other tabs until `leave` is called. */
  async enter(): Promise<void> {
    channel.addEventListener('message', this.reread);
    document.addEventListener('visibilitychange', this.reread);
    await this.reread();
  }

  leave(): void {
    channel.removeEventListener('message', this.reread);
    document.removeEventListener('visibilitychange', this.reread);
  }

  private reread = async (): Promise<void> => {
    const found = await stored(this.user).catch(() => {
      this.unsaved = 'refused';
      return undefined;
    });
    if (found) {
      const there = new Map(found.map((p) => [p.id, p]));
      for (const id of this.all.keys()) if (!there.has(id) && !this.waiting.has(id)) this.all.delete(id);
      for (const p of found) if (p.rev !== this.all.get(p.id)?.rev && !this.waiting.has(p.id)) this.all.set(p.id, p);
    }
    this.changed();
  };

  /** Adds a project. */
  add(project: Project): void {
    this.all.set(project.id, project);
    this.edit(project.id, (p) => p);
  }

  /** Changes a project, in memory at once. */
  edit(id: string, f: Edit): void {
    const old = this.all.get(id);
    if (!old) return;
    this.all.set(id, f(old));
    this.waiting.set(id, [...(this.waiting.get(id) ?? []), f]);
    if (!this.unsaved) this.unsaved = 'saving';
    this.changed();
    void this.save();
  }

  /** Stores the edits that are not stored yet. Resolves when all are stored, or cannot be. */
  save(): Promise<void> {
    this.writing ??= this.saveAll().finally(() => {
      this.writing = undefined;
      if (this.waiting.size && (!this.unsaved || this.unsaved === 'saving')) void this.save();
    });
    return this.writing;
  }

  private async saveAll(): Promise<void> {
    let failed: Unsaved = '';
    while (!failed && this.waiting.size) for (const id of this.waiting.keys()) failed ||= await this.saveOne(id);
    this.unsaved = failed;
    this.changed();
  }

  private async saveOne(id: string): Promise<Unsaved> {
    const edits = this.waiting.get(id) ?? [];
    const mine = this.all.get(id);
    this.waiting.delete(id);
    if (!mine) return '';
    // The disk may be full: the oldest undo steps go first.
    const enough = [mine.past.length, Math.floor(mine.past.length / 2), 0];
    for (const steps of mine.removedAt ? [0] : enough) {
      const kept = (p: Project): Project => (steps < p.past.length ? { ...p, past: p.past.slice(p.past.length - steps), future: [] } : p);
      const next = (old: Project | undefined): Project => {
        const merged = old && old.rev !== mine.rev ? edits.reduce((p, f) => f(p), old) : mine;
        return { ...kept(merged), rev: Math.max(old?.rev ?? 0, mine.rev) + 1 };
      };
      try {
        const written = await write(this.user, id, next);
        this.settle(id, written);
        return '';
      } catch (e) {
        if (!isFull(e)) return this.putBack(id, edits, 'refused');
      }
    }
    // A deleted project must not take up room.
    if (mine.removedAt && (await this.erase(id).then(() => true, () => false))) return '';
    return this.putBack(id, edits, 'full');
  }

  private putBack(id: string, edits: Edit[], why: Unsaved): Unsaved {
    this.waiting.set(id, [...edits, ...(this.waiting.get(id) ?? [])]);
    return why;
  }

  /** Takes over the written record, with the edits that came in the meantime. */
  private settle(id: string, written: Project | undefined): void {
    if (written) this.all.set(id, (this.waiting.get(id) ?? []).reduce((p, f) => f(p), written));
    channel.postMessage(id);
  }

  /** Erases a project for good. */
  async erase(id: string): Promise<void> {
    await write(this.user, id, () => undefined);
    this.waiting.delete(id);
    this.all.delete(id);
    channel.postMessage(id);
    this.changed();
  }
}
