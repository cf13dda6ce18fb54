import type { Schemas } from '../api';
import { count } from '../format';
import { Loaded, useReport } from '../load';
import { PagedTable, pageLimit, Status, Time } from '../parts';
import { go, link, offsetOf, type Route } from '../route';

type Event = Schemas['AdminEvent'];

export function EventsPage({ route }: { route: Route }) {
  const failed = route.query.get('failed') === 'true' ? 'true' : '';
  const offset = offsetOf(route);
  const found = useReport('events', { failed, limit: String(pageLimit), offset: String(offset) });
  return (
    <>
      <label class="check">
        <input type="checkbox" checked={failed !== ''} onChange={(e) => go(link('events', { failed: e.currentTarget.checked ? 'true' : '' }))} /> Only
        web hooks that were given up
      </label>
      <Loaded of={found}>
        {({ events, total }) => (
          <>
            <p class="quiet" role="status">
              {count(total)} {total === 1 ? 'event' : 'events'} of the last 30 days, newest first
            </p>
            <PagedTable
              label="Events"
              rows={events}
              rowKey={(e) => e.id}
              columns={columns}
              empty={failed ? 'No web hook was given up.' : 'No job has ended, or neither a web hook nor push is configured.'}
              offset={offset}
              total={total}
              to={(o) => link('events', { failed, offset: String(o) })}
            />
          </>
        )}
      </Loaded>
    </>
  );
}

const columns = [
  { title: 'Job ended', cell: (e: Event) => <Time at={e.createdAt} /> },
  { title: 'Type', cell: (e: Event) => e.type },
  { title: 'Web hook', cell: (e: Event) => <Status status={e.webhook} /> },
  { title: 'Attempts', number: true, cell: (e: Event) => count(e.attempts) },
  { title: 'Next attempt', cell: (e: Event) => <Time at={e.nextTry} /> },
  { title: 'Job', cell: (e: Event) => <a href={link('users', { q: e.jobId })}>{e.jobId}</a> },
  { title: 'Event', cell: (e: Event) => <code>{e.id}</code> },
  { title: 'Last error', cell: (e: Event) => e.lastError ?? <span class="quiet">–</span> },
];
