// The account: what it stores, how its credits changed, and the ways out.

import { useState } from 'preact/hooks';
import { answer, api, type Schemas, type Session } from './api';
import type { Trouble } from './errors';
import { Act, Confirm, Popover, useTask, Wrong } from './parts';
import { keysOf } from './projects';
import { forget } from './shelf';

type Entry = Schemas['CreditEntry'];

const kinds: Record<Entry['kind'], string> = {
  signup: 'Welcome credits',
  purchase: 'Purchase',
  admin: 'Granted',
  consume: 'Separation',
  refund: 'Refund of a separation',
  support: 'Support',
  reversal: 'Purchase taken back',
};

export function Account(props: { user: Session['user']; leave: (why: string) => void }) {
  const { user } = props;
  const [account, setAccount] = useState<Schemas['Account']>();
  const [entries, setEntries] = useState<Entry[]>([]);
  const [said, setSaid] = useState('');
  const [trouble, setTrouble] = useState<Trouble>();
  const [busy, run] = useTask(setTrouble);
  const [, runLoad] = useTask(setTrouble); // keeps the buttons usable
  const load = async () => {
    setAccount(await answer(api.GET('/api/v2/auth/account')));
    setEntries((await answer(api.GET('/api/v2/credits/history', { params: { query: { limit: 5 } } }))).entries);
    setUnused(await unusedUploads(await keysOf(user.sub)));
    setFilms((await answer(api.GET('/api/v2/render', { params: { query: { limit: most } } }))).jobs.filter((j) => j.status === 'COMPLETED').length);
  };
  const [films, setFilms] = useState(0);
  const [unused, setUnused] = useState<Schemas['AssetList']['assets']>([]);
  const tidy = () =>
    run(async () => {
      for (const { assetKey } of unused) await answer(api.DELETE('/api/v2/assets/{name}', { params: { path: { name: assetKey.replace('assets/', '') } } }));
      setSaid(`${uploads(unused)} deleted.`);
      await load();
    });
  const signOutEverywhere = () =>
    run(async () => {
      await answer(api.POST('/api/v2/auth/sign-out'));
      props.leave('You are signed out on every device. Your draft and your films are kept.');
    });
  const erase = () =>
    run(async () => {
      await answer(api.DELETE('/api/v2/auth/account'));
      await forget(user.sub).catch(() => {});
      props.leave('Your account, its films and its credits are deleted.');
    });
  return (
    <Popover class="menu" button="Account" opened={() => void runLoad(load)}>
      <p>
        <b>{user.name || 'Signed in'}</b>
        <small>{user.email}</small>
      </p>
      {account && <p>{storage(account)} stored</p>}
      {entries.length > 0 && (
        <ul aria-label="Latest changes of your credits">
          {entries.map((e) => (
            <li key={e.createdAt + e.kind} class="between">
              <span>
                {kinds[e.kind] ?? 'Change'} <small>{new Date(e.createdAt).toLocaleDateString('en', { dateStyle: 'medium' })}</small>
              </span>
              <b>{e.credits > 0 ? `+${e.credits}` : e.credits}</b>
            </li>
          ))}
        </ul>
      )}
      {unused.length > 0 && (
        <>
          <Confirm off={busy} label={`Delete ${uploads(unused)}`} loses="A project on another device that needs one of them loses its clip." act={() => void tidy()}>
            Delete {uploads(unused)}
          </Confirm>
          <small>They are older than {keptDays} days, and no project in this browser needs them. A project on another device may.</small>
        </>
      )}
      <p role="status">{said}</p>
      <Act off={busy} act={() => props.leave('')}>
        Sign out
      </Act>
      <Confirm off={busy} label="Sign out on every device" yes="Sign out" loses="Your other devices ask for a new sign-in. Projects and films stay." act={() => void signOutEverywhere()}>
        Sign out on every device
      </Confirm>
      <Confirm off={busy || !account} label="Delete the account" loses={account ? lost(account, films) : ''} act={() => void erase()}>
        Delete the account
      </Confirm>
      <Wrong trouble={trouble} />
    </Popover>
  );
}

const mb = (bytes: number) => `${Math.ceil(bytes / (1 << 20)).toLocaleString('en')} MB`;

/** "3 unused uploads, 412 MB" */
const uploads = (list: Schemas['AssetList']['assets']) =>
  `${list.length === 1 ? 'one unused upload' : `${list.length} unused uploads`}, ${mb(list.reduce((sum, a) => sum + a.sizeBytes, 0))}`;

/** How many films are counted. */
const most = 100;

/** "12 credits, 3 films and 412 MB of uploads and stems are gone for good, and all projects in this browser." */
function lost({ balance, storedBytes }: Schemas['Account'], films: number): string {
  const made = films === 1 ? 'one film' : `${films === most ? 'more than ' : ''}${films} films`;
  return `${balance} ${balance === 1 ? 'credit' : 'credits'}, ${made} and ${mb(storedBytes)} of films, stems and uploads are gone for good, and all projects in this browser.`;
}

function storage({ storedBytes, maxStoredBytes }: Schemas['Account']): string {
  return maxStoredBytes === null ? mb(storedBytes) : `${mb(storedBytes)} of ${mb(maxStoredBytes)}`;
}

/** How long an upload is kept for projects on other devices. */
const keptDays = 30;

/** The uploads of the account that no project needs and that were last used long ago. */
async function unusedUploads(needed: string[]): Promise<Schemas['AssetList']['assets']> {
  const unused: Schemas['AssetList']['assets'] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const page: Schemas['AssetList'] = await answer(api.GET('/api/v2/assets', { params: { query: { limit: 100, ...(cursor && { cursor }) } } }));
    unused.push(...page.assets.filter((a) => !needed.includes(a.assetKey) && (a.lastUsedAt ?? a.createdAt) < Date.now() - keptDays * 86_400_000));
    cursor = page.nextCursor;
  }
  return unused;
}
