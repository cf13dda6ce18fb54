// An app of the packed client, which compiles only if the types are there: each expected error is one of the types.
// docs/app shows the parts between "sample:" and "end".
import { Cutroom, CutroomError, JobFailed, type Purchase, type Settled, type Store, type components } from '@cutroom/client';

type Schemas = components['schemas'];

// sample: session
export async function start(baseUrl: string, store: Store, idToken: () => Promise<string>): Promise<Cutroom> {
  // onSignedOut: show the sign-in; forget drafts only if the reason is account_deleted.
  const cutroom = new Cutroom({ baseUrl, store, onSignedOut: (reason) => console.log(reason) });
  if (!(await cutroom.session())) await cutroom.signIn('provider_a', await idToken());
  return cutroom;
}
// end

// sample: upload
export const upload = (cutroom: Cutroom, clip: File, bar: (share: number) => void, signal: AbortSignal): Promise<string> =>
  cutroom.assets.upload(clip, clip.name, bar, signal); // the same call continues an interrupted upload in parts
// end

// sample: separate
export async function stems(cutroom: Cutroom, sourceAssetKey: string, draft: string): Promise<Schemas['SeparationStatus']> {
  const { jobId } = await cutroom.jobs.separate({ sourceAssetKey }, `${draft}.voice`); // charged once, however often it is called
  return cutroom.jobs.stems(jobId);
}
// end

// sample: wait
export async function film(cutroom: Cutroom, job: string, show: (state: Schemas['RenderStatus']) => void, signal: AbortSignal): Promise<Blob | undefined> {
  try {
    await cutroom.jobs.film(job, { onState: show, signal });
    return await cutroom.jobs.download(job, signal);
  } catch (e) {
    if (!(e instanceof JobFailed) || e.code !== 'source_missing') throw e;
    console.log('upload it again:', e.field);
    return undefined;
  }
}
// end

// sample: buy
export async function settle(cutroom: Cutroom, purchase: Purchase, finish: () => Promise<void>): Promise<void> {
  const all: Settled[] = await cutroom.purchases.add(purchase);
  const mine = all.find((s) => s.purchase.transactionId === purchase.transactionId);
  if (mine && mine.outcome !== 'kept') await finish(); // with the store
}
// end

const cutroom = new Cutroom({ baseUrl: 'https://api.example.com', timeoutMs: 1000 });
// @ts-expect-error a configuration has segments
export const bare: Schemas['RenderConfigV3'] = { quality: 'low' };
// @ts-expect-error it is no number
export const wrong: number = cutroom.jobs;
export const field = (e: unknown): string | undefined => (e instanceof JobFailed || e instanceof CutroomError ? e.field : undefined);
