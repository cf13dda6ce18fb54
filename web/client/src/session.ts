// The signed-in session: kept in the store, renewed in time, by the server's clock.

import type { components } from '../../api/schema.js';
import { renewBeforeSec } from './contract.js';
import { signedOut } from './errors.js';
import { read, write, type Store } from './store.js';

export type Session = components['schemas']['AuthResponse'];

const key = 'cutroom.session';

/** The store's key of the first user: the one signed in when this version first runs, else the first to sign in. */
export const firstUser = 'cutroom.firstUser';

/** How long a failed renewal is not repeated, in milliseconds. */
const renewalPauseMs = 60_000;

export class Sessions {
  private current: Session | undefined;
  private loaded: Promise<void> | undefined;
  private renewing: Promise<void> | undefined;
  /** The server's clock minus this device's, in milliseconds. */
  private skewMs = 0;
  /** When a renewal last failed, by the device's clock. Otherwise every request would try again, and the server limits renewals. */
  private failedAt = -Infinity;

  constructor(
    private store: Store,
    private now: () => number,
    private refresh: (session: Session) => Promise<Session>,
  ) {}

  /** The current session, undefined if nobody is signed in. */
  async get(): Promise<Session | undefined> {
    this.loaded ??= read<Session>(this.store, key).then((session) => void (this.current ??= session));
    await this.loaded;
    return this.current;
  }

  async keep(session: Session | undefined): Promise<void> {
    const user = ((await this.get()) ?? session)?.user.sub;
    this.current = session;
    if (user && !(await read(this.store, firstUser))) await write(this.store, firstUser, user);
    await write(this.store, key, session);
  }

  /** Learns the server's clock from the `Date` header of an answer. */
  heard(date: string | null): void {
    const at = date ? Date.parse(date) : NaN;
    if (!Number.isNaN(at)) this.skewMs = at - this.now();
  }

  /**
   * The access token. Renews it first when less than half of a week is left; only one renewal runs at a time. Throws a
   * CutroomError of status 401 if a `user` is named and is not the one who is signed in.
   */
  async token(user?: string): Promise<string | undefined> {
    const session = await this.get();
    const renew = session && session.expiresAt - (this.now() + this.skewMs) < 1000 * renewBeforeSec;
    if (renew && Math.abs(this.now() - this.failedAt) >= renewalPauseMs) {
      this.renewing ??= this.refresh(session)
        // A sign-out or another sign-in in the meantime wins.
        .then((fresh) => (this.current === session ? this.keep(fresh) : undefined))
        .catch(() => void (this.failedAt = this.now())) // the old token may still be valid; if it is not, the next answer says so
        .finally(() => (this.renewing = undefined));
      await this.renewing;
    }
    if (user && this.current?.user.sub !== user) throw signedOut();
    return this.current?.accessToken;
  }
}
