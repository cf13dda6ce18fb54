// Signs in with provider_a: its page sends the user back with an identity token after
// the #. So only our own scripts run in this page.

import { ReportError, type Schemas } from './api';
import { claimsOf } from './session';

/** The service's sign-in settings. Without a client id there is no provider. */
export interface SignInConfig {
  clientId: string;
  authorizeUrl: string;
}

export async function signInConfig(): Promise<SignInConfig | null> {
  const answer = await fetch('config.json').catch(() => null);
  const config = answer?.ok ? ((await answer.json()) as SignInConfig) : null;
  return config?.clientId ? config : null;
}

const key = 'cutroom-admin-signin';

/** Goes to the provider's page. */
export function leave(config: SignInConfig): void {
  const [state, nonce] = [crypto.randomUUID(), crypto.randomUUID()];
  sessionStorage.setItem(key, JSON.stringify({ state, nonce }));
  const url = new URL(config.authorizeUrl);
  url.search = new URLSearchParams({
    client_id: config.clientId,
    redirect_uri: location.origin + location.pathname,
    response_type: 'id_token',
    scope: 'openid email profile',
    prompt: 'select_account',
    state,
    nonce,
  }).toString();
  location.assign(url);
}

/** The access token, if the user has just come back from the provider's page, or else null. */
export async function comeBack(): Promise<string | null> {
  const answer = new URLSearchParams(location.hash.slice(1));
  const idToken = answer.get('id_token');
  if (!idToken && !answer.has('error')) return null;
  history.replaceState(null, '', '#/');
  const sent = JSON.parse(sessionStorage.getItem(key) ?? '{}') as { state?: string; nonce?: string };
  sessionStorage.removeItem(key);
  // Refuse an answer to a request that this tab did not send.
  if (!idToken || !sent.state || answer.get('state') !== sent.state || claimsOf(idToken)['nonce'] !== sent.nonce)
    throw new ReportError('Signing in with the provider did not succeed. Try again.', 0);
  const reply = await fetch('../api/v2/auth/provider_a', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ idToken }),
  }).catch(() => null);
  if (!reply?.ok) throw new ReportError('The service did not accept the sign-in. Try again.', reply?.status ?? 0);
  return ((await reply.json()) as Schemas['AuthResponse']).accessToken;
}
