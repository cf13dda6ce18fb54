// Purchases that the store has accepted and the server has not credited yet. They survive the app.

import type { components } from '../../api/schema.js';
import type { Cutroom } from './client.js';
import { finalRefusals } from './contract.js';
import { CutroomError } from './errors.js';
import { unlessAborted } from './pause.js';
import { read, write } from './store.js';

export type Purchase = components['schemas']['CreditPurchaseRequest'];

/** The outcome of a purchase: finish it with the store unless it is `kept`. */
export type Settled =
  | { purchase: Purchase; outcome: 'credited'; granted: number; balance: number }
  | { purchase: Purchase; outcome: 'dropped'; detail: string }
  | { purchase: Purchase; outcome: 'kept'; error: CutroomError };

const key = 'cutroom.purchases';

export class Purchases {
  private presenting: Promise<Settled[]> | undefined;

  constructor(private cutroom: Cutroom) {}

  waiting = async (): Promise<Purchase[]> => (await read<Purchase[]>(this.cutroom.store, key)) ?? [];

  /**
   * Keeps a purchase that the store reports as paid, and presents everything that waits. The signal ends only the call:
   * the purchase is presented all the same.
   */
  async add(purchase: Purchase, signal?: AbortSignal): Promise<Settled[]> {
    return unlessAborted(this.keep(purchase), signal);
  }

  private async keep(purchase: Purchase): Promise<Settled[]> {
    await this.presenting?.catch(() => {}); // its end rewrites the list
    const others = (await this.waiting()).filter((p) => p.transactionId !== purchase.transactionId || p.platform !== purchase.platform);
    await write(this.cutroom.store, key, [...others, purchase]);
    return this.present();
  }

  /** Presents the purchases that wait, at every start of the app. A purchase is credited once, however often it is presented. */
  present = (signal?: AbortSignal): Promise<Settled[]> =>
    unlessAborted((this.presenting ??= this.presentAll().finally(() => (this.presenting = undefined))), signal);

  private async presentAll(): Promise<Settled[]> {
    const settled: Settled[] = [];
    for (const purchase of await this.waiting()) {
      const outcome = await this.settle(purchase);
      settled.push(outcome);
      if (outcome.outcome === 'kept') continue;
      await write(this.cutroom.store, key, (await this.waiting()).filter((p) => p.transactionId !== purchase.transactionId || p.platform !== purchase.platform));
    }
    return settled;
  }

  private async settle(purchase: Purchase): Promise<Settled> {
    const { api, answer } = this.cutroom;
    try {
      const { granted, balance } = await answer(api.POST('/api/v2/credits/purchase', { body: purchase }));
      return { purchase, outcome: 'credited', granted, balance };
    } catch (e) {
      if (!(e instanceof CutroomError)) throw e;
      if (e.code === 'receipt_invalid' && finalRefusals.includes(e.detail ?? '')) return { purchase, outcome: 'dropped', detail: e.detail ?? '' };
      return { purchase, outcome: 'kept', error: e };
    }
  }
}
