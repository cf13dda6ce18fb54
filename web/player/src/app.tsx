import { useEffect, useState } from 'preact/hooks';
import { answer, api, buy, current, keep, onEnd, renew, signIn, type Provider, type Schemas, type Session } from './api';
import { Studio } from './studio';

export function App() {
  const [session, set] = useState(current);
  useEffect(() => {
    onEnd(() => set(null));
    void renew().catch(() => {});
  }, []);
  if (!session) return <SignIn done={set} />;
  const leave = () => {
    keep(null);
    set(null);
  };
  return <Signed key={session.user.sub} session={session} leave={leave} />;
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

function SignIn(props: { done: (session: Session) => void }) {
  const [name, setName] = useState('Uma User');
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState('');
  const enter = (provider: Provider) => {
    setBusy(true);
    signIn(provider, name.trim() || 'Somebody').then(props.done, (e: Error) => {
      setTrouble(e.message);
      setBusy(false);
    });
  };
  return (
    <main class="signin">
      <Brand />
      <h1>Pull voices out of the noise. Cut them into a film.</h1>
      <p class="quiet">Everything here runs on this machine: no account, nothing leaves it. The identity is made up by the sandbox.</p>
      <form
        class="panel"
        onSubmit={(e) => {
          e.preventDefault();
          enter('provider_a');
        }}
      >
        <label>
          Your name
          <input type="text" autoComplete="name" maxLength={60} required value={name} onInput={(e) => setName(e.currentTarget.value)} />
        </label>
        <button type="submit" class="primary" disabled={busy}>
          Continue with provider A
        </button>
        <button type="button" disabled={busy} onClick={() => enter('provider_b')}>
          Continue with provider B
        </button>
        <p class="wrong" role="alert">
          {trouble}
        </p>
      </form>
    </main>
  );
}

function Signed(props: { session: Session; leave: () => void }) {
  const { user } = props.session;
  const [balance, setBalance] = useState<number>();
  const count = () => answer(api.GET('/api/v2/credits')).then((c) => setBalance(c.balance), () => {});
  useEffect(() => void count(), []);
  return (
    <>
      <a class="skip" href="#studio">
        Skip to the studio
      </a>
      <header class="top">
        <Brand />
        <div class="account">
          <Credits balance={balance} bought={setBalance} />
          <span class="who">{user.name || 'Signed in'}</span>
          <button type="button" class="plain" onClick={props.leave}>
            Sign out
          </button>
        </div>
      </header>
      <main id="studio" tabIndex={-1}>
        <h1 class="unseen">Studio</h1>
        <Studio user={user.sub} balance={balance ?? 0} spent={count} />
      </main>
      <footer>
        <span>Every button here is a call of the public API.</span>
        <a href="../swagger/">API description</a>
      </footer>
    </>
  );
}

/** The balance, and a shop: a purchase in the stand-in of a store. */
function Credits(props: { balance: number | undefined; bought: (balance: number) => void }) {
  const [products, setProducts] = useState<Schemas['Product'][]>([]);
  const [said, setSaid] = useState('');
  const open = () => {
    if (!products.length) answer(api.GET('/api/v2/credits/products')).then((p) => setProducts(p.products), (e: Error) => setSaid(e.message));
  };
  return (
    <details class="credits" onToggle={open}>
      <summary>
        <b>{props.balance ?? '–'}</b> {props.balance === 1 ? 'credit' : 'credits'}
      </summary>
      <div class="panel shop">
        <p class="quiet">A separation costs one credit for each started five minutes. This shop takes no money.</p>
        {products.map((p) => (
          <button
            key={p.productId}
            type="button"
            onClick={() =>
              buy(p.productId).then(
                (balance) => {
                  props.bought(balance);
                  setSaid(`${p.credits} credits bought.`);
                },
                (e: Error) => setSaid(e.message),
              )
            }
          >
            Buy {p.credits} credits
          </button>
        ))}
        <p role="status">{said}</p>
      </div>
    </details>
  );
}
