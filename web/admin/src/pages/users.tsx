import { useEffect, useState } from 'preact/hooks';
import type { User, UserJob, UserJobs, Users } from '../api';
import { count } from '../format';
import { Empty, Loaded, useReport } from '../load';
import { Card, Cards, length, Pager, Panel, providerName, Status, Table, Time } from '../parts';
import { link, replace, type Route } from '../route';

const limit = 50;

const offsetOf = (route: Route): number => Math.max(0, Math.floor(Number(route.query.get('offset'))) || 0);

const nameOf = (u: User): string => u.name || u.email || u.userId;

export function UsersPage({ route }: { route: Route }) {
  const q = route.query.get('q') ?? '';
  const offset = offsetOf(route);
  const [draft, setDraft] = useState(q);
  useEffect(() => setDraft(q), [q]);
  useEffect(() => {
    if (draft === q) return;
    // While somebody types, only the pause after the last key is a question.
    const pause = setTimeout(() => replace(link('users', { q: draft })), 300);
    return () => clearTimeout(pause);
  }, [draft]);
  const found = useReport<Users>('users', { q, limit: String(limit), offset: String(offset) });
  return (
    <>
      <form
        class="search"
        role="search"
        onSubmit={(e) => {
          e.preventDefault();
          replace(link('users', { q: draft }));
        }}
      >
        <label for="q">Search by e-mail, name or user id</label>
        <input id="q" type="search" value={draft} autoComplete="off" spellcheck={false} onInput={(e) => setDraft(e.currentTarget.value)} />
      </form>
      <Loaded of={found}>
        {({ users, total }) => (
          <>
            <p class="quiet" role="status">
              {count(total)} {total === 1 ? 'user' : 'users'}, newest activity first
            </p>
            {users.length === 0 ? (
              <Empty>{q ? `Nobody's e-mail or name contains “${q}”.` : total ? 'This page is past the end.' : 'Nobody has signed in yet.'}</Empty>
            ) : (
              <Table label="Users" rows={users} rowKey={(u) => u.userId} columns={columns} />
            )}
            <Pager offset={offset} limit={limit} total={total} to={(o) => link('users', { q, offset: String(o) })} />
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
  const offset = offsetOf(route);
  const user = useReport<Users>('users', { q: id, limit: '1' });
  const jobs = useReport<UserJobs>(`users/${encodeURIComponent(id)}/jobs`, { limit: String(limit), offset: String(offset) });
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
                <Card label="Last active" value={u.lastActivityAt.slice(0, 10)} note={u.lastActivityAt.slice(11, 16)} />
              </Cards>
            </>
          )
        }
      </Loaded>
      <Panel title="Jobs">
        <Loaded of={jobs}>
          {({ jobs, total }) => (
            <>
              {jobs.length === 0 ? (
                <Empty>{total ? 'This page is past the end.' : 'This user has no jobs.'}</Empty>
              ) : (
                <Table label="Jobs of this user" rows={jobs} rowKey={(j) => j.jobId} columns={jobColumns} />
              )}
              <Pager offset={offset} limit={limit} total={total} to={(o) => link(`users/${id}`, { offset: String(o) })} />
            </>
          )}
        </Loaded>
      </Panel>
    </>
  );
}

const jobColumns = [
  { title: 'Job', cell: (j: UserJob) => <code>{j.jobId}</code> },
  { title: 'Type', cell: (j: UserJob) => j.jobType },
  { title: 'Status', cell: (j: UserJob) => <Status status={j.status} /> },
  { title: 'Source', number: true, cell: (j: UserJob) => length(j.sourceDurationMs) },
  { title: 'Created', cell: (j: UserJob) => <Time at={j.createdAt} /> },
  { title: 'Finished', cell: (j: UserJob) => <Time at={j.finishedAt} /> },
  { title: 'Error', cell: (j: UserJob) => j.error ?? '' },
];
