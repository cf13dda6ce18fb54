import { openAsBlob } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { Cutroom, CutroomError } from '@cutroom/client';

export async function firstFilm(baseUrl, idToken, store, clip, film) {
  const cutroom = new Cutroom({ baseUrl, store }); // in a browser: localStorage
  try {
    if (!(await cutroom.session())) await cutroom.signIn('provider_a', idToken);
    const sourceAssetKey = await cutroom.assets.upload(await openAsBlob(clip), clip, (share) => console.log('uploaded', share));
    const { jobId } = await cutroom.jobs.render({ segments: [{ sourceAssetKey, order: 0, durationMs: 2000 }] }, 'draft 1');
    await cutroom.jobs.film(jobId, { onState: (state) => console.log(state.status, state.progress) });
    await writeFile(film, (await cutroom.jobs.download(jobId)).stream());
  } catch (e) {
    if (e instanceof CutroomError && e.next === 'signIn') console.log('sign in again');
    else if (e instanceof CutroomError && e.next === 'again') console.log('try again in', e.retryAfterSec ?? 10, 's');
    else console.log(e.message, e.field ?? '');
    throw e;
  }
}
