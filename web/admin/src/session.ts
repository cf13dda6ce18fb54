// The access token. It lives in this tab only and ends with it.

const key = 'cutroom-admin-token';

export const savedToken = (): string => sessionStorage.getItem(key) ?? '';
export const saveToken = (token: string): void => sessionStorage.setItem(key, token);
export const forgetToken = (): void => sessionStorage.removeItem(key);

/**
 * Removes from a pasted token the extra text of the header, shell or JSON document that it
 * was copied from.
 */
export function cleanToken(pasted: string): string {
  return pasted
    .trim()
    .replace(/^authorization:\s*/i, '')
    .replace(/^bearer\s+/i, '')
    .replace(/^["']|["'],?$/g, '')
    .replace(/\s+/g, '');
}

/** The unverified claims of a token; empty if it is not a token. */
export function claimsOf(token: string): Record<string, unknown> {
  try {
    const payload = token.split('.')[1] ?? '';
    const claims: unknown = JSON.parse(atob(payload.replace(/-/g, '+').replace(/_/g, '/')));
    if (typeof claims === 'object' && claims) return claims as Record<string, unknown>;
  } catch {
    // Not a token: the server's answer explains that better.
  }
  return {};
}

/** When the token expires, in epoch milliseconds, or null if it does not say. */
export function tokenEnd(token: string): number | null {
  const { exp } = claimsOf(token);
  return typeof exp === 'number' ? exp * 1000 : null;
}
