// The reports of /api/v2/admin: their bodies, and how to ask for them.

export interface Overview {
  totalUsers: number;
  totalRenders: number;
  totalSeparations: number;
  totalJobs: number;
  totalSourceDurationMs: number;
  activeUsersLast7Days: number;
}

export interface Daily {
  date: string;
  renderCount: number;
  separationCount: number;
  totalSourceDurationMs: number;
}

export interface User {
  userId: string;
  email: string | null;
  name: string | null;
  provider: 'provider_a' | 'provider_b';
  role: 'user' | 'admin';
  balance: number;
  totalRenders: number;
  totalSeparations: number;
  totalSourceDurationMs: number;
  createdAt: string;
  lastActivityAt: string;
}

export interface Users {
  users: User[];
  total: number;
}

export type JobType = 'render' | 'separation';

export interface UserJob {
  jobId: string;
  jobType: JobType;
  status: string;
  sourceDurationMs: number;
  createdAt: string;
  finishedAt: string | null;
  error: string | null;
}

export interface LedgerEntry {
  refId: string;
  kind: string;
  credits: number;
  jobId: string | null;
  orderId: string | null;
  createdAt: string;
}

export interface Purchase {
  platform: 'platform_a' | 'platform_b';
  orderId: string | null;
  productId: string;
  credits: number;
  owed: number;
  createdAt: string;
  reversedAt: string | null;
}

/** A page of what one user has, under the name of what it is. */
export type UserList<Name extends string, Row> = Record<Name, Row[]> & { total: number };

export interface Calls {
  date: string;
  provider: string;
  endpoint: string;
  callCount: number;
  failureCount: number;
  failureRate: number;
  p95LatencyMs: number;
}

export interface Bucket {
  bucket: string;
  count: number;
}

export interface ActiveJob {
  jobType: JobType;
  jobId: string;
  status: string;
  userId: string;
  userEmail: string | null;
  sourceDurationMs: number;
  createdAt: string;
  progress: number;
}

export interface Breakdown {
  jobType: JobType;
  total: number;
  succeeded: number;
  failed: number;
  inProgress: number;
}

export interface Signups {
  date: string;
  providerACount: number;
  providerBCount: number;
}

export interface Revenue {
  payingUsers: number;
  purchaseCount: number;
  creditsSold: number;
  purchaseCount30d: number;
  creditsSold30d: number;
  platformAPurchaseCount: number;
  platformBPurchaseCount: number;
  platformACredits: number;
  platformBCredits: number;
  adminGrantedCredits: number;
}

export interface DailyRevenue {
  date: string;
  platformACredits: number;
  platformBCredits: number;
  purchaseCount: number;
}

/** A failure in words for the person in front of the screen. */
export class ReportError extends Error {
  constructor(
    message: string,
    /** HTTP status, 0 where the server was not reached. */
    readonly status: number,
  ) {
    super(message);
  }
}

const sentences: Record<string, string> = {
  missing_token: 'Sign in to see the reports.',
  invalid_token: 'The access token is not valid, or no longer. Get a fresh one and sign in again.',
  admin_required:
    'This account has no admin role. A role that was just granted is in the token from the next sign-in of the mobile app on.',
  invalid_from_date: 'The first day is not a date.',
  invalid_to_date: 'The last day is not a date.',
  from_must_be_before_to: 'The first day must not be after the last day.',
  range_too_wide: 'The range is too wide: at most 90 days can be shown.',
};

/** Query parameters; empty and absent ones are left out. */
export type Query = Record<string, string | undefined>;

/** Asks for a report, such as "stats/daily". Throws a ReportError. */
export async function report<T>(path: string, query: Query, token: string, signal?: AbortSignal): Promise<T> {
  // Relative to the page, so that a prefix in front of the service is kept.
  const url = new URL(`../api/v2/admin/${path}`, document.baseURI);
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
  if (answer.ok && body !== null) return body as T;
  throw new ReportError(explain(answer, body), answer.status);
}

function explain(answer: Response, body: unknown): string {
  const code = typeof body === 'object' && body && 'error' in body ? String(body.error) : '';
  if (sentences[code]) return sentences[code];
  if (answer.status < 500) return code || `The server refused to answer (${answer.status}).`;
  const id = answer.headers.get('X-Request-Id');
  return `The server failed to answer (${answer.status}).` + (id ? ` Its log has the reason under request ${id}.` : '');
}
