// The current place in the app: the part of the address after #, such as
// "#/users/7f…?from=2026-01-01". Every page's link keeps the range of days.

import { useEffect, useState } from 'preact/hooks';
import { addDays, today } from './format';

export interface Route {
  /** The page's name, "" for the overview. */
  page: string;
  /** The path after the page's name, such as a user's id. */
  rest: string;
  query: URLSearchParams;
}

function parse(): Route {
  const [path = '', query = ''] = location.hash.replace(/^#\/?/, '').split('?', 2);
  const [page = '', rest = ''] = path.split('/', 2);
  return { page, rest, query: new URLSearchParams(query) };
}

export function useRoute(): Route {
  const [route, set] = useState(parse);
  useEffect(() => {
    const changed = () => set(parse());
    addEventListener('hashchange', changed);
    changed(); // the address may have changed since the first render
    return () => removeEventListener('hashchange', changed);
  }, []);
  return route;
}

/** The address of a page, with the range of days of the current one. */
export function link(path: string, query: Record<string, string> = {}): string {
  const now = parse().query;
  const next = new URLSearchParams();
  for (const key of ['days', 'from', 'to']) {
    const value = now.get(key);
    if (value) next.set(key, value);
  }
  for (const [key, value] of Object.entries(query)) {
    if (value) next.set(key, value);
    else next.delete(key);
  }
  return `#/${path}${next.size ? `?${next}` : ''}`;
}

/** How many rows of a list the address skips. */
export const offsetOf = (route: Route, key = 'offset'): number => Math.max(0, Math.floor(Number(route.query.get(key))) || 0);

export const go = (address: string): void => void (location.hash = address);

/** Changes the address without a new history entry. */
export function replace(address: string): void {
  history.replaceState(null, '', address);
  dispatchEvent(new HashChangeEvent('hashchange'));
}

/** The days shown, the last one included. */
export interface Days {
  from: string;
  last: string;
  /** The number of days up to today, or 0 for a custom range. */
  preset: number;
}

export function daysOf(query: URLSearchParams): Days {
  const from = query.get('from');
  const last = query.get('to');
  if (from !== null && last !== null) return { from, last, preset: 0 };
  const preset = [7, 30, 90].find((n) => String(n) === query.get('days')) ?? 30;
  return { from: addDays(today(), 1 - preset), last: today(), preset };
}
