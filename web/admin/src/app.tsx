import type { ComponentChild } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { SessionContext } from './load';
import { CallsPage } from './pages/calls';
import { DurationsPage } from './pages/durations';
import { EventsPage } from './pages/events';
import { JobsPage } from './pages/jobs';
import { OverviewPage } from './pages/overview';
import { RevenuePage } from './pages/revenue';
import { SignupsPage } from './pages/signups';
import { UserPage, UsersPage } from './pages/users';
import { link, useRoute, type Route } from './route';
import { forgetToken, savedToken, saveToken, tokenEnd } from './session';
import { SignIn } from './signin';

interface Page {
  path: string;
  title: string;
  show: (route: Route) => ComponentChild;
}

const pages: Page[] = [
  { path: '', title: 'Overview', show: () => <OverviewPage /> },
  { path: 'users', title: 'Users', show: (route) => (route.rest ? <UserPage key={route.rest} route={route} /> : <UsersPage route={route} />) },
  { path: 'jobs', title: 'Jobs', show: () => <JobsPage /> },
  { path: 'calls', title: 'Provider calls', show: () => <CallsPage /> },
  { path: 'events', title: 'Events', show: (route) => <EventsPage route={route} /> },
  { path: 'revenue', title: 'Revenue', show: () => <RevenuePage /> },
  { path: 'signups', title: 'Signups', show: () => <SignupsPage /> },
  { path: 'durations', title: 'Durations', show: () => <DurationsPage /> },
];

export function App() {
  const [token, setToken] = useState(savedToken);
  const [reason, setReason] = useState('');
  const session = useMemo(
    () => ({
      token,
      end(why: string) {
        forgetToken();
        setReason(why);
        setToken('');
      },
    }),
    [token],
  );
  if (!token)
    return (
      <SignIn
        reason={reason}
        done={(fresh) => {
          saveToken(fresh);
          setReason('');
          setToken(fresh);
        }}
      />
    );
  return (
    <SessionContext.Provider value={session}>
      <Shell token={token} signOut={() => session.end('')} />
    </SessionContext.Provider>
  );
}

function Shell(props: { token: string; signOut: () => void }) {
  const route = useRoute();
  const page = pages.find((p) => p.path === route.page);
  const title = page ? (route.rest ? 'User' : page.title) : 'Not found';
  const heading = useRef<HTMLHeadingElement>(null);
  const moved = useRef(false);
  const current = useRef<HTMLAnchorElement>(null);
  useEffect(() => {
    document.title = `${title} · cutroom admin`;
    // Screen readers announce a new page; they announce the first one by themselves.
    if (moved.current) heading.current?.focus();
    moved.current = true;
    // On a narrow screen the row of pages may be wider than the screen.
    current.current?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }, [route.page, route.rest]);
  const end = tokenEnd(props.token);
  return (
    <div class="shell">
      <a
        class="skip"
        href="#main"
        onClick={(e) => {
          e.preventDefault();
          heading.current?.focus();
        }}
      >
        Skip to the content
      </a>
      <header class="side">
        <span class="brand">
          cutroom <small>admin</small>
        </span>
        <nav aria-label="Pages">
          {pages.map((p) => (
            <a key={p.path} href={link(p.path)} ref={p === page ? current : null} aria-current={p === page ? 'page' : undefined}>
              {p.title}
            </a>
          ))}
        </nav>
        <div class="session">
          {end && <small>Token ends {new Date(end).toISOString().slice(0, 16).replace('T', ' ')} UTC</small>}
          <button type="button" onClick={props.signOut}>
            Sign out
          </button>
        </div>
      </header>
      <main id="main">
        <h1 tabIndex={-1} ref={heading}>
          {title}
        </h1>
        {page ? (
          page.show(route)
        ) : (
          <p>
            There is no such page. <a href={link('')}>Go to the overview</a>
          </p>
        )}
        <footer class="quiet">Days and times are UTC.</footer>
      </main>
    </div>
  );
}
