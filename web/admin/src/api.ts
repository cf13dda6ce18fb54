// Fetches the reports of /api/v2/admin. Their types are generated from the API's
// description.

import type { components, paths } from '../../api/schema';

export type Schemas = components['schemas'];

/** The reports, by their path after /api/v2/admin/. */
export type Path = { [P in keyof paths]: P extends `/api/v2/admin/${infer R}` ? R : never }[keyof paths];

/** The body of a report. */
export type Report<P extends Path> = paths[`/api/v2/admin/${P}`] extends {
  get: { responses: { 200: { content: { 'application/json': infer Body } } } };
}
  ? Body
  : never;

/** A failure in words for the person in front of the screen. */
export class ReportError extends Error {
  constructor(
    message: string,
    /** HTTP status, 0 if the server was not reached. */
    readonly status: number,
  ) {
    super(message);
  }
}

const sentences: Record<string, string> = {
  missing_token: 'Sign in to see the reports.',
  invalid_token: 'The access token is invalid or has expired. Get a new one and sign in again.',
  admin_required: 'This account is not an admin. If it was made one just now, get a new token: sign in again, or run cutroom admin token.',
  invalid_from_date: 'The first day is not a date.',
  invalid_to_date: 'The last day is not a date.',
  from_must_be_before_to: 'The first day must not be after the last day.',
  range_too_wide: 'The range is too wide: at most 90 days can be shown.',
};

/** Parameters: `userId` goes into the path, the others into the query. Empty and absent ones are left out. */
export type Query = Record<string, string | undefined>;

/** Fetches a report, such as "stats/daily". Throws a ReportError. */
export async function report<P extends Path>(path: P, { userId = '', ...query }: Query, token: string, signal?: AbortSignal): Promise<Report<P>> {
  // Relative to the page, so that a prefix in front of the service is kept.
  const url = new URL(`../api/v2/admin/${path.replace('{userId}', encodeURIComponent(userId))}`, document.baseURI);
  url.hash = '';
  for (const [key, value] of Object.entries(query)) if (value) url.searchParams.set(key, value);
  let answer: Response;
  try {
    answer = await fetch(url, { headers: { Authorization: `Bearer ${token}` }, signal: signal ?? null });
  } catch (e) {
    if (signal?.aborted) throw e;
    throw new ReportError('The server cannot be reached. Check the connection and try again.', 0);
  }
  const body: unknown = await answer.json().catch(() => null);
  if (answer.ok && body !== null) return body as Report<P>;
  throw new ReportError(explain(answer, body), answer.status);
}

function explain(answer: Response, body: unknown): string {
  const code = typeof body === 'object' && body && 'error' in body ? String(body.error) : '';
  if (sentences[code]) return sentences[code];
  if (answer.status < 500) return code || `The server refused to answer (${answer.status}).`;
  const id = answer.headers.get('X-Request-Id');
  return `The server failed to answer (${answer.status}).` + (id ? ` Its log has the reason under request ${id}.` : '');
}
