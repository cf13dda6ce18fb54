import { useEffect, useState } from 'preact/hooks';
import type { Schemas } from '../api';
import { count, duration, percent } from '../format';
import { Empty, Loaded, useReport } from '../load';
import { Command, length, Panel, Status, Table, Time } from '../parts';
import { link } from '../route';

type ActiveJob = Schemas['AdminActiveJob'];
type FailedJob = Schemas['AdminFailedJob'];
type Breakdown = Schemas['AdminStatusBreakdown'];

const everySec = 5;

export function JobsPage() {
  const active = useReport('jobs/active');
  const failed = useReport('jobs/failed');
  const breakdown = useReport('jobs/status-breakdown');
  const [live, setLive] = useState(true);
  useEffect(() => {
    if (!live) return;
    const tick = setInterval(() => {
      // A hidden tab sends no requests.
      if (document.hidden) return;
      active.reload();
      breakdown.reload();
    }, everySec * 1000);
    return () => clearInterval(tick);
  }, [live, active.reload, breakdown.reload]);
  return (
    <>
      <Panel
        title="In progress"
        aside={
          <label class="check">
            <input type="checkbox" checked={live} onChange={(e) => setLive(e.currentTarget.checked)} /> Refresh every {everySec} s
          </label>
        }
      >
        <Loaded of={active}>
          {(jobs) => (
            <>
              {jobs.length === 0 ? (
                <Empty>Nothing is being worked on.</Empty>
              ) : (
                <Table label="Jobs in progress" rows={jobs} rowKey={(j) => j.jobId} columns={columns(active.at)} />
              )}
              <p class="quiet">
                {jobs.length >= 1000 ? 'The 1000 that wait longest' : count(jobs.length) + (jobs.length === 1 ? ' job' : ' jobs')}, as of{' '}
                {new Date(active.at).toISOString().slice(11, 19)} UTC
              </p>
            </>
          )}
        </Loaded>
      </Panel>
      <Panel title="Failed">
        <Loaded of={failed}>
          {(jobs) =>
            jobs.length === 0 ? (
              <Empty>No job has failed.</Empty>
            ) : (
              <Table label="Failed jobs" rows={jobs} rowKey={(j) => j.jobId} columns={failedColumns} />
            )
          }
        </Loaded>
      </Panel>
      <Panel title="What became of all jobs">
        <Loaded of={breakdown}>{(types) => types.map((b) => <Outcome key={b.jobType} of={b} />)}</Loaded>
      </Panel>
    </>
  );
}

const columns = (now: number) => [
  { title: 'Job', cell: (j: ActiveJob) => <code>{j.jobId}</code> },
  { title: 'Type', cell: (j: ActiveJob) => j.jobType },
  { title: 'Status', cell: (j: ActiveJob) => <Status status={j.status} /> },
  {
    title: 'Progress',
    cell: (j: ActiveJob) => (
      <span class="progress">
        <progress max={100} value={j.progress} aria-label={`Progress of ${j.jobId}`} /> {j.progress} %
      </span>
    ),
  },
  { title: 'User', cell: (j: ActiveJob) => <a href={link(`users/${j.userId}`)}>{j.userEmail ?? j.userId}</a> },
  { title: 'Source', number: true, cell: (j: ActiveJob) => length(j.sourceDurationMs) },
  { title: 'Since', number: true, cell: (j: ActiveJob) => duration(Math.max(0, now - Date.parse(j.createdAt))) },
];

const failedColumns = [
  { title: 'Job', cell: (j: FailedJob) => <Command text={`cutroom job show ${j.jobId}`} /> },
  { title: 'Failed', cell: (j: FailedJob) => <Time at={j.finishedAt} /> },
  { title: 'Code', cell: (j: FailedJob) => j.errorCode ?? '' },
  { title: 'Error', cell: (j: FailedJob) => j.error ?? '' },
  { title: 'User', cell: (j: FailedJob) => <a href={link(`users/${j.userId}`)}>{j.userId}</a> },
  { title: 'Attempts', number: true, cell: (j: FailedJob) => count(j.attempts) },
];

function Outcome({ of: b }: { of: Breakdown }) {
  const parts = [
    { name: 'succeeded', n: b.succeeded, tone: 'good' },
    { name: 'failed', n: b.failed, tone: 'bad' },
    { name: 'in progress', n: b.inProgress, tone: 'going' },
  ];
  return (
    <div class="outcome">
      <h3>
        {b.jobType === 'render' ? 'Renders' : 'Separations'} <span class="quiet">{count(b.total)}</span>
      </h3>
      {b.total === 0 ? (
        <Empty>None yet.</Empty>
      ) : (
        <>
          <div class="split" aria-hidden="true">
            {parts.map((p) => p.n > 0 && <span key={p.name} class={p.tone} style={{ flexGrow: p.n }} />)}
          </div>
          <ul class="key">
            {parts.map((p) => (
              <li key={p.name} class={p.tone}>
                <strong>{count(p.n)}</strong> {p.name} <span class="quiet">{percent(p.n / b.total)}</span>
              </li>
            ))}
          </ul>
        </>
      )}
    </div>
  );
}
