// The frame of the page: signing in and out, the header with credits and account, and the studio once somebody is
// signed in.

import { useEffect, useState } from 'preact/hooks';
import { Account } from './account';
import { accountChanged, answer, api, buy, current, cutroom, lastName, onAccountChange, onEnd, onWait, pause, present, signIn, type Provider, type Schemas, type Session } from './api';
import type { Trouble } from './errors';
import { Act, Ask, Popover, useTask, Wrong } from './parts';
import { Pushes, unregister } from './pushes';
import { Studio } from './studio';

export function App() {
  const [session, set] = useState(current);
  const [why, setWhy] = useState('');
  useEffect(() => {
    onEnd((reason) => {
      setWhy(reason);
      set(null);
    });
  }, []);
  /** Ends the session here. With a reason, the service has ended it already. */
  const leave = async (reason: string) => {
    if (!reason) await Promise.race([unregister(), pause(2000)]);
    await cutroom.signOut();
    setWhy(reason);
    set(null);
  };
  return (
    <>
      <Waiting />
      {session ? <Signed key={session.user.sub} session={session} leave={(reason) => void leave(reason)} /> : <SignIn why={why} done={set} />}
    </>
  );
}

/** Why the page waits, if it does. */
function Waiting() {
  const [why, set] = useState('');
  useEffect(() => onWait(set), []);
  return (
    <p class="waiting" role="status">
      {why}
    </p>
  );
}

const Brand = () => (
  <span class="brand">
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="9" />
      <path d="M7 9h18v4H7zm0 6h11v4H7zm0 6h15v4H7z" />
    </svg>
    cutroom <small>studio</small>
  </span>
);

function SignIn(props: { why: string; done: (session: Session) => void }) {
  const [name, setName] = useState(lastName);
  const [trouble, setTrouble] = useState<Trouble>();
  const [busy, run] = useTask(setTrouble);
  const enter = (provider: Provider) =>
    run(async () => {
      props.done(await signIn(provider, name.trim() || 'Somebody'));
      requestAnimationFrame(() => document.getElementById('studio')?.focus());
    });
  return (
    <main class="signin">
      <Brand />
      <h1>Pull voices out of the noise. Cut them into a film.</h1>
      {props.why && <p role="status">{props.why}</p>}
      <p class="quiet">Everything here runs on this machine: no account, nothing leaves it. The identity is made up by the sandbox.</p>
      <form
        class="panel"
        onSubmit={(e) => {
          e.preventDefault();
          void enter('provider_a');
        }}
      >
        <label>
          Your name
          <input type="text" autoComplete="name" maxLength={60} required value={name} onInput={(e) => setName(e.currentTarget.value)} />
        </label>
        <button type="submit" class="primary" disabled={busy}>
          Continue with provider A
        </button>
        <button type="button" disabled={busy} onClick={() => void enter('provider_b')}>
          Continue with provider B
        </button>
        <Wrong trouble={trouble} />
      </form>
    </main>
  );
}

function Signed(props: { session: Session; leave: (why: string) => void }) {
  const { user } = props.session;
  const [balance, setBalance] = useState<number>();
  const count = () => answer(api.GET('/api/v2/credits')).then((c) => setBalance(c.balance), () => {});
  useEffect(() => {
    void present().catch(() => {}).then(count);
    return onAccountChange(() => void count());
  }, []);
  const spent = () => void count().then(accountChanged);
  const bought = (now: number) => {
    setBalance(now);
    accountChanged();
  };
  return (
    <>
      <a class="skip" href="#studio">
        Skip to the studio
      </a>
      <header class="top">
        <Brand />
        <div class="account">
          <Credits balance={balance} bought={bought} />
          <Account user={user} leave={props.leave} />
        </div>
      </header>
      <Pushes />
      <main id="studio" tabIndex={-1}>
        <h1 class="unseen">Studio</h1>
        <Studio user={user.sub} balance={balance} spent={spent} />
      </main>
      <footer>
        <span>Every button here is a call of the public API.</span>
        <a href="../swagger/">API description</a>
      </footer>
    </>
  );
}

/** Opens the shop when credits are missing. */
export function openShop(): void {
  const shop = document.querySelector<HTMLDetailsElement>('.credits');
  if (!shop) return;
  shop.open = true;
  shop.querySelector('summary')?.focus();
}

/** The balance, and a shop: a purchase in the stand-in of a store. */
function Credits(props: { balance: number | undefined; bought: (balance: number) => void }) {
  const [products, setProducts] = useState<Schemas['Product'][]>([]);
  const [said, setSaid] = useState('');
  const [trouble, setTrouble] = useState<Trouble>();
  const [busy, run] = useTask(setTrouble);
  const open = () => {
    if (!products.length) void run(async () => setProducts((await answer(api.GET('/api/v2/credits/products'))).products));
  };
  const [asked, ask] = useState<Schemas['Product']>();
  const purchase = (p: Schemas['Product']) =>
    run(async () => {
      // Another purchase needs another confirmation, even after a failure.
      const { granted, balance } = await buy(p.productId).finally(() => ask(undefined));
      props.bought(balance);
      setSaid(granted ? `${granted} credits bought.` : 'Your purchase has been credited.');
    });
  const balance = (
    <span>
      <b>{props.balance ?? '–'}</b> {props.balance === 1 ? 'credit' : 'credits'}
    </span>
  );
  return (
    <Popover class="credits" button={balance} opened={open}>
      <p class="quiet">A separation costs one credit for each started five minutes. This shop takes no money.</p>
      {products.map((p) => (
        <Act key={p.productId} off={busy} act={() => ask(p)}>
          {p.credits} credits
        </Act>
      ))}
      {asked && (
        <Ask question={`${asked.credits} credits for 0.00?`} yes="Buy" off={busy} act={() => void purchase(asked)} cancel={() => ask(undefined)}>
          <p class="quiet">No money is taken.</p>
        </Ask>
      )}
      <p role="status">{said}</p>
      <Wrong trouble={trouble} />
    </Popover>
  );
}
