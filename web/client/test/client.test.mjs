// Runs the built package against a server: BASE and ID_TOKEN say where and who, CLIP is a video of two seconds, and
// ORDER, RECEIPT are a purchase of credits.10 in the sandbox's store.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { Cutroom, CutroomError, JobFailed, memory } from '../dist/index.js';

const { BASE: baseUrl, ID_TOKEN: idToken, CLIP: clipPath, ORDER, RECEIPT } = process.env;
const clip = new Blob([await readFile(clipPath)]);

/** A fetch that fails in a way of the test's choosing, then works. */
function faulty() {
  const faults = [];
  const calls = [];
  const send = async (request) => {
    const path = new URL(request.url).pathname;
    const k = faults.findIndex((f) => path.endsWith(f.path));
    const fault = k >= 0 ? faults.splice(k, 1)[0] : undefined;
    calls.push({ path, key: request.headers.get('Idempotency-Key'), body: await request.clone().text() });
    if (fault?.instead) return fault.instead();
    const response = await fetch(request);
    if (fault?.lose) throw new TypeError('the connection broke');
    return fault?.after ? fault.after(response) : response;
  };
  return { send, faults, calls };
}

const json = (status, body, headers = {}) => () => new Response(JSON.stringify(body), { status, headers: { 'Content-Type': 'application/json', ...headers } });

const net = faulty();
const store = memory();
const ended = [];
const waits = [];
let network = Promise.resolve();
const cutroom = new Cutroom({ baseUrl, store, fetch: net.send, online: () => network, onSignedOut: (reason) => ended.push(reason), onWait: (s) => s !== undefined && waits.push(s) });
const sent = (path) => net.calls.filter((c) => c.path.endsWith(path));

const films = (assetKey) => ({ quality: 'low', segments: [{ sourceAssetKey: assetKey, order: 0, durationMs: 2000, trimEndMs: 1000 }] });

test('a film, over a bad connection', async (t) => {
  await cutroom.signIn('provider_a', idToken);
  let assetKey = '';

  await t.test('an upload asks again after a 503', async () => {
    net.faults.push({ path: '/assets/upload-url', instead: json(503, { error: 'unavailable' }, { 'Retry-After': '1' }) });
    const shares = [];
    assetKey = await cutroom.assets.upload(clip, 'clip.mp4', (share) => shares.push(share));
    assert.match(assetKey, /^assets\/[0-9a-f]{64}\.mp4$/);
    assert.deepEqual(waits.splice(0), [1]);
    assert.equal(shares.at(-1), 1);
    assert.equal(await cutroom.assets.upload(clip, 'again.mp4'), assetKey);
  });

  await t.test('nothing is sent before there is a network', async () => {
    let back;
    network = new Promise((done) => (back = done));
    const before = net.calls.length;
    const asked = cutroom.answer(cutroom.api.GET('/api/v2/credits'));
    await new Promise(setImmediate);
    assert.equal(net.calls.length, before);
    back();
    assert.ok((await asked).balance >= 0);
  });

  await t.test('a submit whose answer is lost is the same job', async () => {
    net.faults.push({ path: '/render/v3', lose: true });
    const { jobId } = await cutroom.jobs.render(films(assetKey), 'draft');
    const keys = sent('/render/v3').map((c) => c.key);
    assert.equal(keys.length, 2);
    assert.equal(keys[0], keys[1]);
    const states = [];
    const film = await cutroom.jobs.film(jobId, { onState: (s) => states.push(s.status) });
    assert.equal(film.jobId, jobId);
    assert.equal(states.at(-1), 'COMPLETED');
    const { jobs } = await cutroom.answer(cutroom.api.GET('/api/v2/render'));
    assert.equal(jobs.length, 1);
  });

  await t.test('a film and its poster arrive as bytes, and lists page by page', async () => {
    const { jobs: [film], nextCursor } = await cutroom.jobs.films({ limit: 1 });
    assert.ok(nextCursor === null || typeof nextCursor === 'string');
    const bytes = await cutroom.jobs.download(film.jobId);
    assert.equal(bytes.size, film.sizeBytes ?? bytes.size);
    assert.equal((await cutroom.jobs.poster(film.jobId)).type, 'image/jpeg');
    assert.equal((await cutroom.assets.list()).assets.length, 1);
    assert.deepEqual((await cutroom.jobs.separations()).jobs, []);
  });

  await t.test('a submit survives the app', async () => {
    // The app ends while it waits for the answer.
    let asked;
    const sending = new Promise((done) => (asked = done));
    const never = new Promise(() => {});
    let tries = 0;
    const online = async () => (tries++ ? never : undefined);
    const dying = new Cutroom({ baseUrl, store, online, timeoutMs: 10, fetch: (request) => (asked(request.url), never) });
    void dying.jobs.separate({ sourceAssetKey: assetKey, trimStartMs: 0 }, 'voice');
    assert.match(await sending, /separate\/v3$/);
    const first = await cutroom.jobs.unanswered('voice');
    assert.match(first.jobId, /^sep-/);
    assert.equal(await cutroom.jobs.unanswered('voice'), undefined);
    const ready = await cutroom.jobs.stems(first.jobId);
    assert.ok(ready.stems.length > 0);
    const { balance } = await cutroom.answer(cutroom.api.GET('/api/v2/credits'));
    assert.equal(balance, 2);
  });

  await t.test('a submit that may have been accepted keeps its key', async () => {
    const before = sent('/render/v3').length;
    for (const instead of [json(429, { error: 'too_many_jobs' }), () => new Response('<html>', { status: 403 })]) {
      net.faults.push({ path: '/render/v3', instead });
      await assert.rejects(cutroom.jobs.render(films(assetKey), 'kept'));
    }
    await cutroom.jobs.render(films(assetKey), 'kept');
    assert.equal(new Set(sent('/render/v3').slice(before).map((c) => c.key)).size, 1);
  });

  await t.test('errors are values with a next step', async () => {
    const missing = `assets/${'0'.repeat(64)}.mp4`;
    const refused = await cutroom.jobs.render(films(missing)).then(() => undefined, (e) => e);
    assert.ok(refused instanceof CutroomError);
    assert.equal(refused.status, 404);
    assert.equal(refused.field, 'segments[0].sourceAssetKey');
    assert.equal(refused.next, 'uploadAgain');
    const misspelt = await cutroom.answer(cutroom.api.POST('/api/v2/assets/analysis', { body: { assetKey, pionts: 100 } })).then(() => undefined, (e) => e);
    assert.equal(misspelt.status, 400);
    assert.equal(misspelt.next, 'fix');
    const name = await cutroom.assets.upload(clip, 'clip.exe').then(() => undefined, (e) => e);
    assert.equal(name.field, 'ext');
    assert.ok(new JobFailed('rnd-1', 'internal', 'x') instanceof Error);
  });

  await t.test('a purchase is kept until the server has answered', async () => {
    const purchase = { platform: 'platform_a', transactionId: ORDER, receipt: RECEIPT, productId: 'credits.10' };
    net.faults.push({ path: '/credits/purchase', instead: json(502, { error: 'receipt_verify_unavailable' }) }, { path: '/credits/purchase', lose: true });
    const [settled] = await cutroom.purchases.add(purchase);
    assert.equal(settled.outcome, 'credited');
    assert.equal(settled.balance, 12);
    assert.deepEqual(await cutroom.purchases.waiting(), []);
    const [never] = await cutroom.purchases.add({ ...purchase, transactionId: 'GPA.0000-0000-0000-00000', receipt: 'nonsense' });
    assert.equal(never.outcome, 'kept');
    assert.equal((await cutroom.purchases.waiting()).length, 1);
  });
});

test('nothing hangs', async (t) => {
  /** A server that never answers, and counts the requests. */
  const silent = () => {
    const calls = [];
    return { calls, send: (request) => (calls.push(request), new Promise(() => {})) };
  };
  const abandoned = (signal) => new Promise((done) => (signal.aborted ? done() : signal.addEventListener('abort', done)));
  const failure = (call) => call.then(() => assert.fail('it succeeded'), (e) => e);

  await t.test('a request that is not answered ends', async () => {
    const { calls, send } = silent();
    const device = new Cutroom({ baseUrl, fetch: send, timeoutMs: 5 });
    const e = await failure(device.answer(device.api.POST('/api/v2/credits/admin-grant', { body: {} }))); // which is not safe to repeat
    await abandoned(calls[0].signal);
    assert.ok(e instanceof CutroomError);
    assert.equal(e.status, 0);
    assert.equal(e.next, 'again');
  });

  await t.test('a signal ends a request, a wait for the network and an upload', async () => {
    const stop = new AbortController();
    const { calls, send } = silent();
    const device = new Cutroom({ baseUrl, fetch: (request) => { setImmediate(() => stop.abort(new Error('enough'))); return send(request); } });
    assert.equal((await failure(device.assets.upload(clip, 'clip.mp4', () => {}, stop.signal))).message, 'enough');
    assert.equal(calls.length, 1);
    assert.equal((await failure(device.jobs.film('rnd-1', { signal: stop.signal }))).message, 'enough');
    const offline = new AbortController();
    const asked = new Cutroom({ baseUrl, online: () => new Promise(() => {}) }).jobs.films({ signal: offline.signal });
    offline.abort(new Error('never mind'));
    assert.equal((await failure(asked)).message, 'never mind');
  });

  await t.test('a key is made where there is no crypto, as in React Native', async () => {
    const own = Object.getOwnPropertyDescriptor(globalThis, 'crypto');
    Object.defineProperty(globalThis, 'crypto', { value: undefined, configurable: true });
    const keys = [];
    try {
      for (const slot of ['a', 'b']) {
        const device = new Cutroom({ baseUrl, fetch: async (request) => (keys.push(request.headers.get('Idempotency-Key')), json(400, { error: 'no' })()) });
        await failure(device.jobs.render({ segments: [] }, slot));
      }
    } finally {
      Object.defineProperty(globalThis, 'crypto', own);
    }
    for (const key of keys) assert.match(key, /^[0-9a-f]{32}$/);
    assert.notEqual(keys[0], keys[1]);
  });

  await t.test('a failed job names its field', async () => {
    const field = 'segments[0].sourceAssetKey';
    const state = { jobId: 'rnd-1', status: 'FAILED', error: 'the clip is damaged', errorCode: 'source_unreadable', field };
    const e = await failure(new Cutroom({ baseUrl, fetch: async () => json(200, state)() }).jobs.film('rnd-1'));
    assert.ok(e instanceof JobFailed);
    assert.equal(e.field, field);
  });
});

test('the session', async (t) => {
  await t.test('is renewed once, by the clock of the server', async () => {
    const session = await cutroom.session();
    // This device is six days ahead: without the server's clock the token would seem nearly over.
    const ahead = faulty();
    const device = new Cutroom({ baseUrl, store: memory(), fetch: ahead.send, now: () => Date.now() + 6 * 86_400_000 });
    await device.store.setItem('cutroom.session', JSON.stringify(session));
    await device.answer(device.api.GET('/api/v2/credits'));
    await device.answer(device.api.GET('/api/v2/credits'));
    const renewals = ahead.calls.filter((c) => c.path.endsWith('/auth/refresh')).length;
    assert.ok(renewals <= 1, `${renewals} renewals`);
    const old = faulty();
    const late = new Cutroom({ baseUrl, store: memory(), fetch: old.send });
    await late.store.setItem('cutroom.session', JSON.stringify({ ...session, expiresAt: Date.now() + 86_400_000 }));
    await Promise.all([1, 2, 3].map(() => late.answer(late.api.GET('/api/v2/credits'))));
    assert.equal(old.calls.filter((c) => c.path.endsWith('/auth/refresh')).length, 1);
    assert.ok((await late.session()).expiresAt > Date.now() + 5 * 86_400_000);
  });

  await t.test('ends once, and says so', async () => {
    const session = await cutroom.session();
    await store.setItem('cutroom.session', JSON.stringify({ ...session, accessToken: 'x.y.z' }));
    const tampered = new Cutroom({ baseUrl, store, onSignedOut: (reason) => ended.push(reason) });
    const refused = await tampered.answer(tampered.api.GET('/api/v2/credits')).then(() => undefined, (e) => e);
    assert.equal(refused.next, 'signIn');
    assert.deepEqual(ended, ['signed_out']);
    assert.equal(await tampered.session(), undefined);
  });
});
