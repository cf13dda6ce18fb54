import { useEffect, useState } from 'preact/hooks';
import { report, ReportError } from './api';
import { comeBack, leave, signInConfig, type SignInConfig } from './provider';
import { cleanToken } from './session';

/** Takes an access token, and keeps it once the server has accepted it. */
export function SignIn(props: { reason: string; done: (token: string) => void }) {
  const [pasted, setPasted] = useState('');
  const [wrong, setWrong] = useState(props.reason);
  const [busy, setBusy] = useState(false);
  const [provider, setProvider] = useState<SignInConfig | null>(null);
  useEffect(() => {
    void signInConfig().then(setProvider);
    void attempt(comeBack());
  }, []);

  async function submit(e: SubmitEvent) {
    e.preventDefault();
    const token = cleanToken(pasted);
    if (!token) {
      setWrong('Paste an access token first.');
      return;
    }
    await attempt(Promise.resolve(token));
  }

  /** Waits for a token, if one is expected, and signs in with it. */
  async function attempt(coming: Promise<string | null>) {
    setBusy(true);
    try {
      const token = await coming;
      if (token) {
        setWrong('');
        await report('overview', {}, token);
        props.done(token);
        return;
      }
    } catch (failure) {
      setWrong(failure instanceof ReportError ? failure.message : 'Signing in failed.');
    }
    setBusy(false);
  }

  return (
    <main class="signin">
      <form class="panel" onSubmit={submit}>
        <h1>cutroom admin</h1>
        {provider && (
          <button type="button" class="primary" disabled={busy} onClick={() => leave(provider)}>
            Sign in with provider A
          </button>
        )}
        <p>
          Paste an access token of an account that has the admin role: <code>cutroom admin token</code> prints one. It stays in this browser
          tab, and is forgotten when you sign out or close the tab.
        </p>
        <label for="token">Access token</label>
        <input
          id="token"
          type="password"
          autoComplete="off"
          spellcheck={false}
          autoFocus
          value={pasted}
          aria-invalid={wrong !== ''}
          aria-describedby="wrong"
          onInput={(e) => setPasted(e.currentTarget.value)}
        />
        <p id="wrong" class="wrong" role="alert">
          {wrong}
        </p>
        <button type="submit" class="primary" disabled={busy}>
          {busy ? 'Signing in…' : 'Sign in'}
        </button>
      </form>
    </main>
  );
}
