// The user's projects in this browser: each is a draft with a name, and every edit of it can be undone, also after a reload.

import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { empty, type Draft } from './draft';

export interface Project {
  id: string;
  name: string;
}

/** An edit may name what it changes, so that the steps of one slider are undone together. */
export type Change = (change: (old: Draft) => Draft, what?: string) => void;

/** A draft without its clips: they stay known, because an undone removal needs them again. */
type Edit = Omit<Draft, 'clips'>;

interface Stored {
  draft: Draft;
  past: Edit[];
  future: Edit[];
}

const listKey = (user: string) => `cutroom-projects-${user}`;
const keyOf = (user: string, id: string) => `cutroom-project-${user}-${id}`;
/** How many edits can be undone. */
const remembered = 100;
/** Steps of one control that follow each other within this time are one edit, in milliseconds. */
const together = 1500;

const read = <T,>(key: string, otherwise: T): T => JSON.parse(localStorage.getItem(key) ?? 'null') ?? otherwise;

function list(user: string): { current: string; projects: Project[] } {
  return read(listKey(user), { current: 'first', projects: [{ id: 'first', name: 'My first film' }] });
}

const load = (user: string, id: string): Stored => read(keyOf(user, id), { draft: empty, past: [], future: [] });

/** Erases a user's projects from this browser. */
export function forget(user: string): void {
  for (const { id } of list(user).projects) localStorage.removeItem(keyOf(user, id));
  localStorage.removeItem(listKey(user));
}

/** The keys of the uploads that a user's projects need. */
export function keysOf(user: string): string[] {
  return list(user).projects.flatMap(({ id }) => {
    const { draft, past, future } = load(user, id);
    return [draft, ...past, ...future].flatMap(({ segments, music }) => [...segments.map((s) => s.assetKey), ...(music ? [music.assetKey] : [])]);
  });
}

const editOf = ({ clips, ...edit }: Draft): Edit => edit;

export interface Projects {
  draft: Draft;
  change: Change;
  undo: (() => void) | undefined;
  redo: (() => void) | undefined;
  all: Project[];
  current: Project;
  open: (id: string) => void;
  create: () => void;
  duplicate: () => void;
  rename: (name: string) => void;
  remove: () => void;
}

/** The projects of a user. Two tabs share them. */
export function useProjects(user: string): Projects {
  const [{ current, projects }, setList] = useState(() => list(user));
  const [stored, set] = useState(() => load(user, current));
  const last = useRef({ what: '', at: 0 });
  useLayoutEffect(() => localStorage.setItem(listKey(user), JSON.stringify({ current, projects })), [current, projects]);
  useLayoutEffect(() => localStorage.setItem(keyOf(user, current), JSON.stringify(stored)), [stored]); // before a reload can come
  useEffect(() => {
    const follow = (e: StorageEvent) => e.key === keyOf(user, current) && e.newValue && set(JSON.parse(e.newValue));
    addEventListener('storage', follow);
    return () => removeEventListener('storage', follow);
  }, [user, current]);

  const change: Change = (f, what = '') => {
    const now = Date.now();
    const same = what !== '' && what === last.current.what && now - last.current.at < together;
    last.current = { what, at: now };
    set((old) => {
      const draft = f(old.draft);
      if (draft === old.draft) return old;
      return { draft, past: same ? old.past : [...old.past, editOf(old.draft)].slice(-remembered), future: [] };
    });
  };
  const undo = () => {
    last.current = { what: '', at: 0 };
    set((old) => {
      const edit = old.past.at(-1);
      return edit ? { draft: { ...edit, clips: old.draft.clips }, past: old.past.slice(0, -1), future: [...old.future, editOf(old.draft)] } : old;
    });
  };
  const redo = () =>
    set((old) => {
      const edit = old.future.at(-1);
      return edit ? { draft: { ...edit, clips: old.draft.clips }, past: [...old.past, editOf(old.draft)], future: old.future.slice(0, -1) } : old;
    });
  const show = (project: Project, content: Stored, rest: Project[]) => {
    last.current = { what: '', at: 0 };
    setList({ current: project.id, projects: rest });
    set(content);
  };
  const fresh = (name: string): Project => ({ id: crypto.randomUUID?.() ?? String(Date.now()), name });
  const named = projects.find((p) => p.id === current) ?? { id: current, name: 'My film' };
  return {
    draft: stored.draft,
    change,
    undo: stored.past.length ? undo : undefined,
    redo: stored.future.length ? redo : undefined,
    all: projects,
    current: named,
    open: (id) => {
      const project = projects.find((p) => p.id === id);
      if (project && id !== current) show(project, load(user, id), projects);
    },
    create: () => {
      const project = fresh(`Film ${projects.length + 1}`);
      show(project, { draft: empty, past: [], future: [] }, [...projects, project]);
    },
    duplicate: () => {
      const project = fresh(`${named.name} (copy)`);
      show(project, { draft: stored.draft, past: [], future: [] }, [...projects, project]);
    },
    rename: (name) => setList({ current, projects: projects.map((p) => (p.id === current ? { ...p, name } : p)) }),
    remove: () => {
      localStorage.removeItem(keyOf(user, current));
      const rest = projects.filter((p) => p.id !== current);
      const next = rest.at(-1) ?? fresh('My first film');
      show(next, load(user, next.id), rest.length ? rest : [next]);
    },
  };
}
