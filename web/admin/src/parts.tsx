// Components that several pages use.

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { addDays, duration, time, today } from './format';
import { Empty } from './load';
import { daysOf, go, link, useRoute } from './route';

export function Card(props: { label: string; value: string; note?: string }) {
  return (
    <div class="card">
      <dt>{props.label}</dt>
      <dd>{props.value}</dd>
      {props.note && <dd class="note">{props.note}</dd>}
    </div>
  );
}

export const Cards = (props: { children: ComponentChildren }) => <dl class="cards">{props.children}</dl>;

export function Panel(props: { title: string; aside?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="panel">
      <header>
        <h2>{props.title}</h2>
        {props.aside}
      </header>
      {props.children}
    </section>
  );
}

export interface Column<T> {
  title: string;
  cell: (row: T) => ComponentChildren;
  /** Aligns numbers to the right. */
  number?: boolean;
}

interface TableProps<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  rowKey: (row: T) => string;
}

/** A table. On a narrow screen each row becomes a block of its titled cells. */
export function Table<T>(props: TableProps<T>) {
  return (
    <div class="scroll" role="region" aria-label={props.label} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {props.columns.map((c) => (
              <th key={c.title} scope="col" class={c.number ? 'number' : ''}>
                {c.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {props.rows.map((row) => (
            <tr key={props.rowKey(row)}>
              {props.columns.map((c, i) =>
                i === 0 ? (
                  <th key={c.title} scope="row">
                    {c.cell(row)}
                  </th>
                ) : (
                  <td key={c.title} class={c.number ? 'number' : ''} data-title={c.title}>
                    {c.cell(row)}
                  </td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export const Time = (props: { at: string | null | undefined }) =>
  props.at ? <time dateTime={props.at}>{time(props.at)}</time> : <span class="quiet">–</span>;

/** A command for a shell, with a button that copies it. */
export function Command(props: { text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(props.text);
    setCopied(true);
  };
  return (
    <span class="command">
      <code>{props.text}</code>
      {/* Browsers have a clipboard only for pages that came by TLS. */}
      {navigator.clipboard && (
        <button type="button" aria-label={`Copy ${props.text}`} onClick={() => void copy()}>
          {copied ? 'Copied' : 'Copy'}
        </button>
      )}
    </span>
  );
}

const tones: Record<string, string> = { FAILED: 'bad', COMPLETED: 'good', READY: 'good', DISPOSED: 'good', DELIVERED: 'good' };

export const Status = (props: { status: string }) => (
  <span class={`status ${tones[props.status] ?? 'going'}`}>{props.status.toLowerCase()}</span>
);

/** A source's length, which is unknown until a worker has read the source. */
export const length = (ms: number | null | undefined): string => (ms ? duration(ms) : '–');

export const providerName = (provider: string): string => provider.replace('provider_a', 'Provider A').replace('provider_b', 'Provider B');

/** The choice of days, for all pages that show a report by day. */
export function DayRange() {
  const days = daysOf(useRoute().query);
  const [draft, setDraft] = useState(days);
  useEffect(() => setDraft(days), [days.from, days.last]);
  const edit = (change: Partial<typeof draft>) => setDraft((old) => ({ ...old, ...change }));
  const page = () => location.hash.replace(/^#\/?/, '').split('?', 1)[0] ?? '';
  const wrong = draft.from > draft.last ? 'The first day must not be after the last day.' : '';
  return (
    <form
      class="range"
      aria-label="Days shown"
      onSubmit={(e) => {
        e.preventDefault();
        if (!wrong) go(link(page(), { days: '', from: draft.from, to: draft.last }));
      }}
    >
      <div class="presets">
        {[7, 30, 90].map((n) => (
          <button
            key={n}
            type="button"
            aria-pressed={days.preset === n}
            onClick={() => go(link(page(), { days: String(n), from: '', to: '' }))}
          >
            {n} days
          </button>
        ))}
      </div>
      <label>
        From <input type="date" required value={draft.from} max={today()} onInput={(e) => edit({ from: e.currentTarget.value })} />
      </label>
      <label>
        to <input type="date" required value={draft.last} max={today()} onInput={(e) => edit({ last: e.currentTarget.value })} />
      </label>
      <button type="submit">Show</button>
      {wrong && (
        <p class="wrong" role="alert">
          {wrong}
        </p>
      )}
    </form>
  );
}

/** The chosen days as query parameters: the end is the day after the last. */
export function useDays(): { from: string; to: string } {
  const { from, last } = daysOf(useRoute().query);
  return { from, to: addDays(last, 1) || last };
}

/** How many rows a page of a list has. */
export const pageLimit = 50;

interface PagerProps {
  offset: number;
  total: number;
  /** The address of the page that begins at the offset. */
  to: (offset: number) => string;
}

/** One page of a list, and links to its neighbours. */
export function PagedTable<T>(props: TableProps<T> & PagerProps & { empty: string }) {
  return (
    <>
      {props.rows.length === 0 ? <Empty>{props.total ? 'This page is past the end.' : props.empty}</Empty> : <Table {...props} />}
      <Pager {...props} />
    </>
  );
}

function Pager(props: PagerProps) {
  const { offset, total } = props;
  const limit = pageLimit;
  if (total <= limit && offset === 0) return null;
  const last = Math.min(offset + limit, total);
  return (
    <nav class="pager" aria-label="Pages of the list">
      {offset > 0 ? <a href={props.to(Math.max(0, offset - limit))}>← Previous</a> : <span />}
      <span>
        {Math.min(offset + 1, total)}–{last} of {total}
      </span>
      {last < total ? <a href={props.to(offset + limit)}>Next →</a> : <span />}
    </nav>
  );
}
