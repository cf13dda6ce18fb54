// The users: a list to search, and a page for each with its credits, purchases, refused receipts and jobs.
// Support works from here: what a user paid, what came of it, and which command fixes it.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { Report, Schemas } from '../api';
import { count, size } from '../format';
import { Loaded, useReport } from '../load';
import { Card, Cards, Command, length, PagedTable, pageLimit, Panel, providerName, Status, Time, type Column } from '../parts';
import { link, offsetOf, replace, type Route } from '../route';

type LedgerEntry = Schemas['AdminLedgerEntry'];
type Purchase = Schemas['AdminPurchase'];
type Refusal = Schemas['AdminRefusal'];
type User = Schemas['AdminUser'];
type UserJob = Schemas['AdminUserJob'];

const nameOf = (u: User): string => u.name || u.email || u.userId;

export function UsersPage({ route }: { route: Route }) {
  const q = route.query.get('q') ?? '';
  const offset = offsetOf(route);
  const [draft, setDraft] = useState(q);
  const asked = useRef(q);
  const ask = () => {
    asked.current = draft;
    replace(link('users', { q: draft }));
  };
  // A link or the back button changes the address. Keep what was typed since this page
  // changed it itself.
  useEffect(() => {
    if (q !== asked.current) setDraft(q);
    asked.current = q;
  }, [q]);
  useEffect(() => {
    if (draft === q) return;
    // Search only after a pause in typing.
    const pause = setTimeout(ask, 300);
    return () => clearTimeout(pause);
  }, [draft]);
  const found = useReport('users', { q, limit: String(pageLimit), offset: String(offset) });
  return (
    <>
      <form
        class="search"
        role="search"
        onSubmit={(e) => {
          e.preventDefault();
          ask();
        }}
      >
        <label for="q">Search by e-mail, name, user id, job id or order number</label>
        <input id="q" type="search" value={draft} autoComplete="off" spellcheck={false} onInput={(e) => setDraft(e.currentTarget.value)} />
      </form>
      <Loaded of={found}>
        {({ users, total }) => (
          <>
            <p class="quiet" role="status">
              {count(total)} {total === 1 ? 'user' : 'users'}, newest activity first
            </p>
            <PagedTable
              label="Users"
              rows={users}
              rowKey={(u) => u.userId}
              columns={columns}
              empty={q ? `Nobody's e-mail or name contains “${q}”, and no user, job or order has this number.` : 'Nobody has signed in yet.'}
              offset={offset}
              total={total}
              to={(o) => link('users', { q, offset: String(o) })}
            />
          </>
        )}
      </Loaded>
    </>
  );
}

const columns = [
  {
    title: 'User',
    cell: (u: User) => (
      <a class="who" href={link(`users/${u.userId}`)}>
        {nameOf(u)}
        {u.role === 'admin' && <span class="tag">admin</span>}
        {u.email && u.name && <small>{u.email}</small>}
      </a>
    ),
  },
  { title: 'Sign-in', cell: (u: User) => providerName(u.provider) },
  { title: 'Credits', number: true, cell: (u: User) => count(u.balance) },
  { title: 'Renders', number: true, cell: (u: User) => count(u.totalRenders) },
  { title: 'Separations', number: true, cell: (u: User) => count(u.totalSeparations) },
  { title: 'Source', number: true, cell: (u: User) => length(u.totalSourceDurationMs) },
  { title: 'Joined', cell: (u: User) => <Time at={u.createdAt} /> },
  { title: 'Last active', cell: (u: User) => <Time at={u.lastActivityAt} /> },
];

export function UserPage({ route }: { route: Route }) {
  const id = route.rest;
  const user = useReport('users', { q: id, limit: '1' });
  return (
    <>
      <p>
        <a href={link('users')}>← All users</a>
      </p>
      <Loaded of={user}>
        {({ users: [u] }) =>
          u && (
            <>
              <p class="who">
                <strong>{nameOf(u)}</strong> {u.role === 'admin' && <span class="tag">admin</span>} {u.email !== nameOf(u) && u.email}{' '}
                <code>{u.userId}</code>
              </p>
              <Cards>
                <Card label="Credits" value={count(u.balance)} />
                <Card label="Renders" value={count(u.totalRenders)} />
                <Card label="Separations" value={count(u.totalSeparations)} />
                <Card label="Source material" value={length(u.totalSourceDurationMs)} />
                <Card label="Joined" value={u.createdAt.slice(0, 10)} note={`with ${providerName(u.provider)}`} />
                <Card label="Last active" value={u.lastActivityAt?.slice(0, 10) ?? '–'} note={u.lastActivityAt?.slice(11, 16) ?? ''} />
                <Usage userId={u.userId} />
              </Cards>
            </>
          )
        }
      </Loaded>
      <UserPanel
        route={route}
        title="Jobs"
        list="jobs"
        path="users/{userId}/jobs"
        rows={({ jobs, total }) => [jobs, total]}
        rowKey={(j) => j.jobId}
        columns={jobColumns}
      />
      <UserPanel
        route={route}
        title="Purchases"
        list="purchases"
        path="users/{userId}/purchases"
        rows={({ purchases, total }) => [purchases, total]}
        rowKey={(p) => p.platform + p.orderId + p.createdAt}
        columns={purchaseColumns}
      />
      <UserPanel
        route={route}
        title="Presented without credits"
        list="refusals"
        path="users/{userId}/refusals"
        rows={({ refusals, total }) => [refusals, total]}
        rowKey={(r) => r.platform + r.orderId + r.productId}
        columns={refusalColumns}
      />
      <UserPanel
        route={route}
        title="Ledger"
        list="entries"
        path="users/{userId}/ledger"
        rows={({ entries, total }) => [entries, total]}
        rowKey={(e) => e.refId}
        columns={ledgerColumns}
      />
    </>
  );
}

/** The user's usage of the account limits. */
function Usage({ userId }: { userId: string }) {
  const { data: u } = useReport('users/{userId}/usage', { userId });
  const limit = (most: number | null | undefined, show: (n: number) => string) => (u ? (most == null ? 'no limit' : `of ${show(most)}`) : '');
  return (
    <>
      <Card label="Stored" value={u ? size(u.storedBytes) : '–'} note={limit(u?.maxStoredBytes, size)} />
      <Card label="Waiting jobs" value={u ? count(u.waitingJobs) : '–'} note={limit(u?.maxWaitingJobs, count)} />
    </>
  );
}

/** One page of a list of a user; the address keeps the position in each list. */
function UserPanel<P extends `users/{userId}/${'jobs' | 'ledger' | 'purchases' | 'refusals'}`, Row>(props: {
  route: Route;
  title: string;
  /** The list's name in the address. */
  list: string;
  path: P;
  /** The rows of a page, and the number of all rows. */
  rows: (page: Report<P>) => [Row[], number];
  rowKey: (row: Row) => string;
  columns: Column<Row>[];
}) {
  const { route, title, list } = props;
  const id = route.rest;
  const offset = offsetOf(route, list);
  const found = useReport(props.path, { userId: id, limit: String(pageLimit), offset: String(offset) });
  const elsewhere = Object.fromEntries(['jobs', 'purchases', 'refusals', 'entries'].map((key) => [key, route.query.get(key) ?? '']));
  return (
    <Panel title={title}>
      <Loaded of={found}>
        {(page) => {
          const [rows, total] = props.rows(page);
          return (
            <PagedTable
              label={`${title} of this user`}
              rows={rows}
              rowKey={props.rowKey}
              columns={props.columns}
              empty="There are none."
              offset={offset}
              total={total}
              to={(o) => link(`users/${id}`, { ...elsewhere, [list]: String(o) })}
            />
          );
        }}
      </Loaded>
    </Panel>
  );
}

const jobColumns = [
  { title: 'Job', cell: (j: UserJob) => <code>{j.jobId}</code> },
  { title: 'Type', cell: (j: UserJob) => j.jobType },
  { title: 'Status', cell: (j: UserJob) => <Status status={j.status} /> },
  { title: 'Error', cell: (j: UserJob) => j.error ?? '' },
  { title: 'Source', number: true, cell: (j: UserJob) => length(j.sourceDurationMs) },
  { title: 'Created', cell: (j: UserJob) => <Time at={j.createdAt} /> },
  { title: 'Finished', cell: (j: UserJob) => <Time at={j.finishedAt} /> },
];

const storeName = (platform: string): string => platform.replace('platform_', 'Platform ').replace(/.$/, (c) => c.toUpperCase());

const refusalColumns = [
  { title: 'Order', cell: (r: Refusal) => <code>{r.orderId}</code> },
  { title: 'Store', cell: (r: Refusal) => storeName(r.platform) },
  { title: 'Product', cell: (r: Refusal) => r.productId },
  {
    title: 'Reason',
    cell: (r: Refusal) => (
      <span class="reason">
        <span>{r.reason}</span>
        <small>{r.meaning}</small>
        {r.command && <Command text={r.command} />}
      </span>
    ),
  },
  { title: 'Attempts', number: true, cell: (r: Refusal) => count(r.attempts) },
  { title: 'Last attempt', cell: (r: Refusal) => <Time at={r.createdAt} /> },
];

const purchaseColumns = [
  { title: 'Order', cell: (p: Purchase) => <code>{p.orderId ?? '–'}</code> },
  { title: 'Store', cell: (p: Purchase) => storeName(p.platform) },
  { title: 'Product', cell: (p: Purchase) => (p.bySupport ? 'granted by support' : p.productId + (p.test ? ' (test)' : '')) },
  { title: 'Credits', number: true, cell: (p: Purchase) => count(p.credits) },
  { title: 'Bought', cell: (p: Purchase) => <Time at={p.createdAt} /> },
  { title: 'Refunded', number: true, cell: (p: Purchase) => count(p.refunded ?? 0) },
  { title: 'Taken back', cell: (p: Purchase) => <Time at={p.reversedAt} /> },
  { title: 'Owed', number: true, cell: (p: Purchase) => count(p.owed) },
];

const ledgerColumns = [
  { title: 'Change', cell: (e: LedgerEntry) => e.kind },
  { title: 'Credits', number: true, cell: (e: LedgerEntry) => (e.credits > 0 ? '+' : '') + count(e.credits) },
  { title: 'For', cell: (e: LedgerEntry) => <code>{e.jobId ?? e.orderId ?? ''}</code> },
  { title: 'When', cell: (e: LedgerEntry) => <Time at={e.createdAt} /> },
];
