// The account: what it stores, how its credits changed, and the ways out.

import { useState } from 'preact/hooks';
import { answer, api, type Schemas, type Session } from './api';
import { forget, keysOf } from './draft';
import type { Trouble } from './errors';
import { Act, Confirm, Popover, useTask, Wrong } from './parts';

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
  };
  const tidy = () =>
    run(async () => {
      const removed = await removeUnused(keysOf(user.sub));
      setSaid(removed === 1 ? 'One upload deleted.' : `${removed} uploads deleted.`);
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
      forget(user.sub);
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
      <Confirm off={busy} label="Delete unused uploads" act={() => void tidy()}>
        Delete unused uploads
      </Confirm>
      <p role="status">{said}</p>
      <Act off={busy} act={() => props.leave('')}>
        Sign out
      </Act>
      <Confirm off={busy} label="Sign out on every device" act={() => void signOutEverywhere()}>
        Sign out on every device
      </Confirm>
      <Confirm off={busy} label="Delete the account" act={() => void erase()}>
        Delete the account
      </Confirm>
      <small>That erases your films, stems, uploads and credits for good.</small>
      <Wrong trouble={trouble} />
    </Popover>
  );
}

function storage({ storedBytes, maxStoredBytes }: Schemas['Account']): string {
  const mb = (bytes: number) => `${Math.ceil(bytes / (1 << 20)).toLocaleString('en')} MB`;
  return maxStoredBytes === null ? mb(storedBytes) : `${mb(storedBytes)} of ${mb(maxStoredBytes)}`;
}

/** Deletes the uploads of the account whose keys are not to be kept, and returns their number. */
async function removeUnused(keep: string[]): Promise<number> {
  const unused: string[] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const page: Schemas['AssetList'] = await answer(api.GET('/api/v2/assets', { params: { query: { limit: 100, ...(cursor && { cursor }) } } }));
    unused.push(...page.assets.map((a) => a.assetKey).filter((key) => !keep.includes(key)));
    cursor = page.nextCursor;
  }
  for (const key of unused) await answer(api.DELETE('/api/v2/assets/{name}', { params: { path: { name: key.replace('assets/', '') } } }));
  return unused.length;
}
