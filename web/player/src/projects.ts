// The user's projects in this browser: each is a draft with a name, and every edit of it can be undone, even after a reload.

import { useEffect, useMemo, useState } from 'preact/hooks';
import { empty, keysIn, upgraded, type Draft } from './draft';
import { Shelf, stored, type Edit, type Project, type Unsaved } from './shelf';

/** An edit may name what it changes, so that the steps of one slider are undone together. */
export type Change = (change: (old: Draft) => Draft, what?: string) => void;

/** How many edits of a project can be undone, and how many characters they may take. */
const remembered = 100;
const rememberedSize = 500_000;
/** Steps of one control that follow each other within this time are one edit, in milliseconds. */
const together = 1500;

/** A draft without its clips: they stay known, because an undone removal needs them again. */
const stepOf = ({ clips: _, ...step }: Draft): string => JSON.stringify(step);

/** The latest steps for which there is room. */
function bounded(steps: string[]): string[] {
  let [first, size] = [steps.length, 0];
  while (first > 0 && steps.length - first < remembered && (size += steps[first - 1]?.length ?? 0) <= rememberedSize) first--;
  return steps.slice(first);
}

/** An edit that can be undone, unless it continues the one before. It brings a deleted project back. */
const edited = (f: (old: Draft) => Draft, continues: boolean): Edit => (old) => {
  const draft = f(old.draft);
  if (draft === old.draft) return old;
  return { ...old, removedAt: undefined, draft, past: continues ? old.past : bounded([...old.past, stepOf(old.draft)]), future: [] };
};

const undone: Edit = (old) => {
  const step = old.past.at(-1);
  return step ? { ...old, draft: { ...JSON.parse(step), clips: old.draft.clips }, past: old.past.slice(0, -1), future: [...old.future, stepOf(old.draft)] } : old;
};
const redone: Edit = (old) => {
  const step = old.future.at(-1);
  return step ? { ...old, draft: { ...JSON.parse(step), clips: old.draft.clips }, past: [...old.past, stepOf(old.draft)], future: old.future.slice(0, -1) } : old;
};

/** The keys of the uploads that a user's projects need, including the deleted one that can be restored. */
export const keysOf = async (user: string): Promise<string[]> =>
  (await stored(user)).flatMap(({ draft, past, future }) => [draft, ...[...past, ...future].map((step): Draft => JSON.parse(step))].flatMap(keysIn));

const fresh = (user: string, id: string, name: string): Project => ({ user, id, name, madeAt: Date.now(), openedAt: Date.now(), draft: empty, past: [], future: [], rev: 0 });
const newId = (): string => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;

/** The projects that earlier versions of this page kept in localStorage, which each edit wrote as a whole. */
function inherited(user: string): Project[] {
  const read = (key: string) => {
    try {
      return JSON.parse(localStorage.getItem(key) ?? 'null');
    } catch {
      return null; // a damaged entry must not lock the page
    }
  };
  const list: { current: string; projects: { id: string; name: string }[] } | null = read(`cutroom-projects-${user}`);
  return (list?.projects ?? []).map(({ id, name }, i) => {
    const old = read(`cutroom-project-${user}-${id}`) ?? {};
    const steps = (list: object[] = []) => bounded(list.map((step) => JSON.stringify(upgraded(step))));
    return { ...fresh(user, id, name), madeAt: i, openedAt: id === list?.current ? Date.now() : 0, draft: { ...empty, ...upgraded(old.draft ?? {}) }, past: steps(old.past), future: steps(old.future) };
  });
}

/** Removes what `inherited` has read, once it is stored. */
function disinherit(user: string): void {
  for (const key of Object.keys(localStorage)) if (key === `cutroom-projects-${user}` || key.startsWith(`cutroom-project-${user}-`)) localStorage.removeItem(key);
}

/** Which project each tab shows, across a reload. */
const openKey = (user: string) => `cutroom-open-${user}`;

export interface Projects {
  current: Project;
  change: Change;
  undo: (() => void) | undefined;
  redo: (() => void) | undefined;
  all: Project[];
  open: (id: string) => void;
  create: () => void;
  duplicate: () => void;
  rename: (name: string) => void;
  remove: () => void;
  /** The project that was deleted last. */
  removed: Project | undefined;
  restore: () => void;
  /** Remembers the last render of the project. */
  rendered: (jobId: string) => void;
  unsaved: Unsaved;
  save: () => void;
}

/** The projects of a user, undefined until they are read. */
export function useProjects(user: string): Projects | undefined {
  const [, redraw] = useState(0);
  const shelf = useMemo(() => new Shelf(user, () => redraw((n) => n + 1)), [user]);
  const [ready, setReady] = useState(false);
  const [id, setId] = useState(() => sessionStorage.getItem(openKey(user)) ?? '');
  useEffect(() => {
    const begin = async () => {
      await shelf.enter();
      const known = new Set(shelf.projects.map((p) => p.id));
      for (const project of inherited(user)) if (!known.has(project.id)) shelf.add(project);
      await shelf.save();
      if (!shelf.unsaved) disinherit(user);
      setReady(true);
    };
    void begin();
    return () => shelf.leave();
  }, [shelf]);
  const last = useMemo(() => ({ what: '', at: 0 }), [id]);

  const all = shelf.projects.filter((p) => !p.removedAt);
  const latest = all.reduce<Project | undefined>((a, b) => (a && a.openedAt >= b.openedAt ? a : b), undefined);
  const current = all.find((p) => p.id === id) ?? latest;
  useEffect(() => {
    // A project that another tab has deleted gives way, and an empty list is never shown.
    if (!ready) return;
    const before = shelf.projects.length;
    if (!current) shelf.add(before ? fresh(user, newId(), `Film ${before + 1}`) : fresh(user, 'first', 'My first film'));
    else if (current.id !== id) show(current.id);
  });
  if (!ready || !current) return undefined;

  function show(next: string): void {
    setId(next);
    try {
      sessionStorage.setItem(openKey(user), next);
    } catch {
      // A reload opens the project that was opened last.
    }
    shelf.edit(next, (p) => ({ ...p, openedAt: Date.now() }));
  }
  const put = (project: Project) => {
    shelf.add(project);
    show(project.id);
  };
  const removed = shelf.projects.filter((p) => p.removedAt).sort((a, b) => (a.removedAt ?? 0) - (b.removedAt ?? 0)).at(-1);
  return {
    current,
    // A task ends in the project in which it began, whichever project is open by then.
    change: (f, what = '') => {
      const now = Date.now();
      const continues = what !== '' && what === last.what && now - last.at < together;
      Object.assign(last, { what, at: now });
      shelf.edit(current.id, edited(f, continues));
    },
    undo: current.past.length ? () => (Object.assign(last, { what: '' }), shelf.edit(current.id, undone)) : undefined,
    redo: current.future.length ? () => shelf.edit(current.id, redone) : undefined,
    all,
    open: (next) => next !== current.id && show(next),
    create: () => put(fresh(user, newId(), `Film ${all.length + 1}`)),
    duplicate: () => put({ ...fresh(user, newId(), `${current.name} (copy)`), draft: current.draft }),
    rename: (name) => shelf.edit(current.id, (p) => ({ ...p, name })),
    remove: () => {
      for (const old of shelf.projects) if (old.removedAt) void shelf.erase(old.id).catch(() => {});
      shelf.edit(current.id, (p) => ({ ...p, removedAt: Date.now() }));
    },
    removed,
    restore: () => {
      if (!removed) return;
      shelf.edit(removed.id, (p) => ({ ...p, removedAt: undefined }));
      show(removed.id);
    },
    rendered: (film) => shelf.edit(current.id, (p) => ({ ...p, film })),
    unsaved: shelf.unsaved,
    save: () => void shelf.save(),
  };
}
