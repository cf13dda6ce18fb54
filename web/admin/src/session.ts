// The access token. It lives in this tab only and ends with it.

const key = 'cutroom-admin-token';

export const savedToken = (): string => sessionStorage.getItem(key) ?? '';
export const saveToken = (token: string): void => sessionStorage.setItem(key, token);
export const forgetToken = (): void => sessionStorage.removeItem(key);

/**
 * What was pasted, without the decoration that comes along when a token is
 * copied out of a header, a shell or a JSON document.
 */
export function cleanToken(pasted: string): string {
  return pasted
    .trim()
    .replace(/^authorization:\s*/i, '')
    .replace(/^bearer\s+/i, '')
    .replace(/^["']|["'],?$/g, '')
    .replace(/\s+/g, '');
}

/** What a token says, unverified; nothing where it is none. */
export function claimsOf(token: string): Record<string, unknown> {
  try {
    const payload = token.split('.')[1] ?? '';
    const claims: unknown = JSON.parse(atob(payload.replace(/-/g, '+').replace(/_/g, '/')));
    if (typeof claims === 'object' && claims) return claims as Record<string, unknown>;
  } catch {
    // Not a token at all: the server says so with better words.
  }
  return {};
}

/** When the token ends in epoch milliseconds, or null where it does not say. */
export function tokenEnd(token: string): number | null {
  const { exp } = claimsOf(token);
  return typeof exp === 'number' ? exp * 1000 : null;
}
