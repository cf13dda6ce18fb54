#!/usr/bin/env node
// Runs one scenario of the table in test/clients/phones_test.go with the built package. BASE and ID_TOKEN say where and who,
// STORE is a folder that outlives the process, and CLIP is a video of two seconds.

import assert from 'node:assert/strict';
import { openAsBlob } from 'node:fs';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { Cutroom, CutroomError, JobFailed, memory } from '../dist/index.js';
import { firstFilm } from './first-film.mjs';

const { BASE: baseUrl, ID_TOKEN: idToken, OTHER_ID_TOKEN: otherToken, STORE: folder, CLIP, LARGE, FILES, SILENT, ORDER, RECEIPT } = process.env;
const day = 86_400_000;
const never = new Promise(() => {});
const same = assert.deepEqual;

/** A network that first fails in a way that the scenario chooses, then works. */
class Net {
  faults = [];
  log = [];

  constructor(real) {
    this.real = real;
  }

  /** This answer instead of the server's. */
  answer(path, status, body, headers = {}) {
    this.fail(path, (request) => {
      this.note(request);
      const type = body.startsWith('{') ? 'application/json' : 'text/html';
      return new Response(body, { status, headers: { 'Content-Type': type, ...headers } });
    });
  }

  /** The server acts, and its answer is lost. */
  lose(path) {
    this.fail(path, async (request) => {
      await this.pass(request);
      throw new TypeError('the connection broke');
    });
  }

  /** The server acts, and the app is killed before it has the answer. */
  die(path) {
    this.fail(path, async (request) => {
      await this.pass(request);
      await writeFile(join(folder, 'key'), request.headers.get('Idempotency-Key') ?? '');
      process.kill(process.pid, 'SIGKILL');
      return never;
    });
  }

  /** The server acts, which resolves `acted`, and its answer waits for `release`. */
  hold(path) {
    const held = {};
    const released = new Promise((done) => (held.release = done));
    held.acted = new Promise((done) => this.fail(path, async (request) => {
      const response = await this.pass(request);
      done();
      await released;
      return response;
    }));
    return held;
  }

  sent = (path) => this.log.filter((call) => call.path.endsWith(path));
  puts = () => this.log.filter((call) => call.method === 'PUT').length;

  send = (input, init) => {
    const request = new Request(input, init);
    const k = this.faults.findIndex((fault) => new URL(request.url).pathname.endsWith(fault.path));
    return k >= 0 ? this.faults.splice(k, 1)[0].act(request) : this.pass(request);
  };

  fail(path, act) {
    this.faults.push({ path, act });
  }

  async pass(request) {
    const response = await this.real(request);
    this.note(request, response.headers.has('Idempotent-Replayed'));
    return response;
  }

  note(request, replayed = false) {
    this.log.push({ method: request.method, path: new URL(request.url).pathname, key: request.headers.get('Idempotency-Key'), replayed });
  }
}

/** A store that outlives the process. */
const inFiles = {
  path: (key) => join(folder, 'store', encodeURIComponent(key)),
  getItem: (key) => readFile(inFiles.path(key), 'utf8').catch(() => null),
  setItem: (key, value) => mkdir(join(folder, 'store'), { recursive: true }).then(() => writeFile(inFiles.path(key), value)),
  removeItem: (key) => rm(inFiles.path(key), { force: true }),
};

const fetchOfNode = globalThis.fetch;
const net = new Net(fetchOfNode);
globalThis.fetch = net.send; // the package sends parts with it
const waits = [];
const ended = [];
const client = (store, network = net, ahead = 0) => new Cutroom({
  baseUrl,
  store,
  fetch: network.send,
  now: () => Date.now() + ahead,
  onSignedOut: (reason) => ended.push(reason),
  onWait: (seconds) => seconds !== undefined && waits.push(seconds),
});
const cutroom = client(inFiles);

/** Signs in, unless an earlier process of this device has: the service limits sign-ins. */
const signIn = async () => (await cutroom.session()) ?? cutroom.signIn('provider_a', idToken);
const account = (device) => device.answer(device.api.GET('/api/v2/credits'));
const balance = async () => (await account(cutroom)).balance;
const post = (device, path, body) => device.answer(device.api.POST(`/api/v2${path}`, { body }));
const upload = async (path, progress) => cutroom.assets.upload(await openAsBlob(path), path, progress);
const film = (sourceAssetKey) => ({ quality: 'low', segments: [{ sourceAssetKey, order: 0, durationMs: 2000, trimEndMs: 1000 }] });
const failure = (call) => call.then((value) => assert.fail(`succeeded: ${JSON.stringify(value)}`), (e) => e);

/** The CutroomError of a call that must fail. */
async function refusal(call) {
  const e = await failure(call);
  if (!(e instanceof CutroomError)) throw e;
  return e;
}

/** Ends a call when the server has acted on its request. */
const cancelled = async (path, call) => {
  const { acted, release } = net.hold(path);
  const stop = new AbortController();
  const failed = failure(call(stop.signal));
  await acted;
  stop.abort(new Error('enough'));
  same((await failed).message, 'enough');
  release();
};

/** A device with this session and nothing else. */
function holding(session) {
  const store = memory();
  store.setItem('cutroom.session', JSON.stringify(session));
  return store;
}

const scenarios = {
  'a film although the answer of its submit is lost': async () => {
    await signIn();
    const shares = [];
    const key = await upload(CLIP, (share) => shares.push(share));
    same(shares.at(-1), 1);
    same(await upload(CLIP), key);
    same(net.puts(), 1);
    net.lose('/render/v3');
    const { jobId } = await cutroom.jobs.render(film(key), 'draft');
    const sent = net.sent('/render/v3');
    same(sent.length, 2);
    same(sent[0].key, sent[1].key);
    assert(sent[1].replayed, 'the second answer is not that of the first submit');
    const states = [];
    const done = await cutroom.jobs.film(jobId, { onState: (state) => states.push(state.status) });
    same(states.at(-1), 'COMPLETED');
    same((await cutroom.jobs.films({ limit: 1 })).jobs.map((job) => job.jobId), [jobId]);
    same((await cutroom.jobs.download(jobId)).size, done.sizeBytes);
    same((await cutroom.jobs.poster(jobId)).type, 'image/jpeg');
    same(await cutroom.jobs.unanswered('draft'), undefined);
  },

  'a busy server is asked again when it says': async () => {
    await signIn();
    net.answer('/assets/upload-url', 503, '{"error":"unavailable"}', { 'Retry-After': '1' });
    const key = await upload(CLIP);
    same(waits, [1]);
    net.answer('/render/v3', 429, '{"error":"rate_limited"}', { 'Retry-After': '2' });
    await cutroom.jobs.render(film(key));
    same(waits, [1, 2]);
    // A submit that may have been accepted keeps its key: neither a 429 nor a page from a proxy is its answer.
    for (const [status, body] of [[429, '{"error":"too_many_jobs"}'], [200, '<html>'], [403, '<html>']]) {
      net.answer('/render/v3', status, body);
      await refusal(cutroom.jobs.render(film(key), 'kept'));
    }
    await cutroom.jobs.render(film(key), 'kept');
    same(new Set(net.sent('/render/v3').slice(-4).map((call) => call.key)).size, 1);
    net.answer('/render/v3', 503, '{"error":"paused"}', { 'Retry-After': '1' });
    const paused = await refusal(cutroom.jobs.render(film(key), 'other'));
    same(paused.next, 'again');
    same(paused.retryAfterSec, 1);
    // Without a key a POST may have taken effect.
    net.answer('/credits/admin-grant', 502, '');
    same((await refusal(post(cutroom, '/credits/admin-grant', {}))).status, 502);
    same(net.sent('/credits/admin-grant').length, 1);
    same(waits, [1, 2]);
  },

  'the first film of the README': async () => {
    const file = join(folder, 'first.mp4');
    await firstFilm(baseUrl, idToken, inFiles, CLIP, file);
    assert((await readFile(file)).length > 1000, 'no film');
  },

  'a session that the server ends': async () => {
    const session = await signIn();
    for (const [code, reason] of [['unauthorized', 'signed_out'], ['account_deleted', 'account_deleted']]) {
      const store = holding(session);
      const device = client(store);
      await account(device);
      net.answer('/assets/upload-url', 401, `{"error":"${code}"}`);
      const refused = await refusal(device.assets.upload(await openAsBlob(CLIP), CLIP));
      same(refused.status, 401);
      same(refused.next, 'signIn');
      same(ended.at(-1), reason);
      same(await device.session(), undefined);
      same(store.getItem('cutroom.session'), null);
    }
    same(ended.length, 2);
    // The service itself refuses, on a POST that is repeated and on one that is not.
    for (const path of ['/assets/upload-url', '/credits/admin-grant']) {
      const tampered = client(holding({ ...session, accessToken: 'x.y.z' }));
      same((await refusal(post(tampered, path, {}))).status, 401);
      same(await tampered.session(), undefined);
    }
    // A submit that was refused because there was no session is sent again under its key.
    const key = await upload(CLIP);
    net.answer('/render/v3', 401, '{"error":"unauthorized"}');
    same((await refusal(cutroom.jobs.render(film(key), 'draft'))).next, 'signIn');
    await signIn();
    assert(await cutroom.jobs.unanswered('draft'), 'the submit is lost');
    const sent = net.sent('/render/v3');
    same(sent.length, 2);
    same(sent[0].key, sent[1].key);
  },

  'a wrong clock': async () => {
    const session = await signIn();
    const network = () => new Net(fetchOfNode);
    const renewals = (of) => of.sent('/auth/refresh').length;
    // Six days ahead, the token seems nearly over until the server's clock is known.
    const fastNet = network();
    const fast = client(holding(session), fastNet, 6 * day);
    for (let n = 0; n < 3; n++) await account(fast);
    assert(renewals(fastNet) <= 1, 'renewed again and again');
    // A token with a day left is renewed, once for three requests.
    const lateNet = network();
    const dayLeft = { ...session, expiresAt: Date.now() + day };
    const late = client(holding(dayLeft), lateNet);
    await Promise.all([1, 2, 3].map(() => account(late)));
    same(renewals(lateNet), 1);
    assert((await late.session()).expiresAt > Date.now() + 5 * day, 'not renewed');
    // Six days behind, it seems fresh until the server's clock is known.
    const slowNet = network();
    const slow = client(holding(dayLeft), slowNet, -6 * day);
    await account(slow);
    same(renewals(slowNet), 0);
    await account(slow);
    same(renewals(slowNet), 1);
    // After a renewal has failed, not every request tries it again.
    const deafNet = network();
    const deaf = client(holding(dayLeft), deafNet);
    for (let n = 0; n < 2; n++) deafNet.answer('/auth/refresh', 503, '');
    for (let n = 0; n < 3; n++) await account(deaf);
    same(renewals(deafNet), 1);
  },

  'killed between submit and answer': async () => {
    await signIn();
    const sourceAssetKey = await upload(CLIP);
    await writeFile(join(folder, 'balance'), String(await balance()));
    net.die('/separate/v3');
    await cutroom.jobs.separate({ sourceAssetKey }, 'voice');
  },

  'started again after that': async () => {
    const { jobId } = await cutroom.jobs.unanswered('voice');
    const sent = net.sent('/separate/v3');
    same(sent.map((call) => call.key), [await readFile(join(folder, 'key'), 'utf8')]);
    assert(sent[0].replayed, 'it is another submit');
    same(await cutroom.jobs.unanswered('voice'), undefined);
    const { stems, credits } = await cutroom.jobs.stems(jobId);
    assert(stems.length > 0, 'no stems');
    same((await cutroom.jobs.separations()).jobs.length, 1);
    same(await balance(), Number(await readFile(join(folder, 'balance'), 'utf8')) - credits);
  },

  'a dropped connection in one part of an upload': async () => {
    await signIn();
    const shares = [];
    same(await upload(LARGE, (share) => shares.push(share)), `assets/${basename(LARGE)}`);
    same(shares.at(-1), 1);
    assert(shares.every((share) => share >= 0 && share <= 1), `${shares}`);
    assert(net.sent('/assets/upload-url').length > 1, 'nothing failed');
    same(net.sent('/assets/complete').length, 1);
  },

  'hashes of files of any length': async () => {
    await signIn();
    const names = await readdir(FILES);
    assert(names.length > 5, `${names}`);
    for (const name of names) same(await upload(join(FILES, name)), `assets/${name}`);
    same((await cutroom.assets.list()).assets.length, names.length + 1);
  },

  'killed in an upload': async () => {
    await signIn();
    net.die('.wav'); // the first part that arrives ends the process
    await upload(LARGE);
  },

  'continued after that': async () => {
    const { size } = await openAsBlob(LARGE);
    const body = { sha256Hex: basename(LARGE, '.wav'), sizeBytes: size, ext: 'wav', contentType: 'audio/wav', multipart: true };
    const { parts } = await post(cutroom, '/assets/upload-url', body);
    const waiting = parts.filter((part) => !part.done).length;
    assert(waiting < parts.length, 'no part has arrived');
    const shares = [];
    same(await upload(LARGE, (share) => shares.push(share)), `assets/${basename(LARGE)}`);
    // Parts that were under way when the process died may have arrived since.
    assert(net.puts() <= waiting, 'parts were sent again');
    assert(shares[0] > 0.1, `the progress begins at ${shares[0]}`);
  },

  'a purchase is credited once': async () => {
    await signIn();
    const before = await balance();
    const purchase = { platform: 'platform_a', transactionId: ORDER, receipt: RECEIPT, productId: 'credits.10' };
    net.answer('/credits/purchase', 502, '{"error":"receipt_verify_unavailable"}');
    net.lose('/credits/purchase');
    const [settled] = await cutroom.purchases.add(purchase);
    same(settled.outcome, 'credited');
    same(settled.balance, before + 10);
    same(await cutroom.purchases.waiting(), []);
    await cutroom.purchases.add(purchase);
    same(await balance(), before + 10);
    net.answer('/credits/purchase', 402, '{"error":"receipt_invalid","detail":"cancelled"}');
    same((await cutroom.purchases.add(purchase)).map((s) => s.detail), ['cancelled']);
    // A page that does not come from the service credits nothing and drops nothing.
    net.answer('/credits/purchase', 200, '<html>');
    same((await cutroom.purchases.add(purchase)).map((s) => s.outcome), ['kept']);
    same((await cutroom.purchases.present()).map((s) => s.outcome), ['credited']);
    const nonsense = { ...purchase, transactionId: 'GPA.0000-0000-0000-00000', receipt: 'nonsense' };
    same((await cutroom.purchases.add(nonsense)).map((s) => s.outcome), ['kept']);
    same(await cutroom.purchases.waiting(), [nonsense]);
  },

  'a submit and a purchase that the app cancels': async () => {
    await signIn();
    const recording = { sourceAssetKey: await upload(CLIP) };
    const before = await balance();
    await cancelled('/separate/v3', (signal) => cutroom.jobs.separate(recording, 'voice', signal));
    const { jobId } = await cutroom.jobs.separate(recording, 'voice');
    const sent = net.sent('/separate/v3');
    same(sent.map((call) => call.replayed), [false, true]);
    same(sent[0].key, sent[1].key);
    same(await cutroom.jobs.unanswered('voice'), undefined);
    const paid = await balance();
    same(paid, before - (await cutroom.jobs.stems(jobId)).credits);
    same((await cutroom.jobs.separations()).jobs.length, 1);
    const purchase = { platform: 'platform_a', transactionId: ORDER, receipt: RECEIPT, productId: 'credits.10' };
    await cancelled('/credits/purchase', (signal) => cutroom.purchases.add(purchase, signal));
    same((await cutroom.purchases.add(purchase)).map((s) => s.outcome), ['credited']);
    same(await cutroom.purchases.waiting(), []);
    same(await balance(), paid + 10);
  },

  'another user signs in while a submit is open': async () => {
    await signIn();
    const recording = { sourceAssetKey: await upload(CLIP) };
    const before = await balance();
    await cancelled('/separate/v3', (signal) => cutroom.jobs.separate(recording, 'voice', signal));
    await inFiles.removeItem('cutroom.firstUser'); // as earlier versions left the store
    await cutroom.signOut();
    same(await cutroom.jobs.unanswered('voice'), undefined);
    same((await refusal(cutroom.jobs.separate(recording, 'voice'))).next, 'signIn');
    await cutroom.signIn('provider_a', otherToken);
    same(await cutroom.jobs.unanswered('voice'), undefined);
    same(await upload(CLIP), recording.sourceAssetKey);
    await cutroom.jobs.separate(recording, 'voice');
    await cutroom.signOut();
    await cutroom.signIn('provider_a', idToken);
    const { jobId } = await cutroom.jobs.unanswered('voice');
    const sent = net.sent('/separate/v3');
    same(sent.map((call) => call.replayed), [false, false, true]);
    same(sent[2].key, sent[0].key);
    assert.notEqual(sent[1].key, sent[0].key);
    same(await cutroom.jobs.unanswered('voice'), undefined);
    same(await balance(), before - (await cutroom.jobs.stems(jobId)).credits);
    same((await cutroom.jobs.separations()).jobs.length, 1);
  },

  'errors have a next step': async () => {
    await signIn();
    const missing = await refusal(cutroom.jobs.render(film(`assets/${'0'.repeat(64)}.mp4`)));
    same(missing.status, 404);
    same(missing.field, 'segments[0].sourceAssetKey');
    same(missing.next, 'uploadAgain');
    assert(missing.requestId, 'no request id');
    same(await cutroom.jobs.unanswered('render'), undefined);
    same((await refusal(post(cutroom, '/assets/analysis', { assetKey: 'x', pionts: 100 }))).next, 'fix');
    same((await refusal(cutroom.assets.upload(new Blob(['x']), 'clip.exe'))).field, 'ext');
    same((await refusal(cutroom.jobs.film('../auth/account?x='))).status, 404);
    net.answer('/status', 200, '<html>');
    net.answer('/status', 200, JSON.stringify({
      jobId: 'rnd-1', status: 'FAILED', error: 'the clip is damaged', errorCode: 'source_unreadable', field: 'segments[0].sourceAssetKey',
    }));
    const failed = await failure(cutroom.jobs.film('rnd-1'));
    assert(failed instanceof JobFailed, failed);
    same(failed.code, 'source_unreadable');
    same(failed.field, 'segments[0].sourceAssetKey');
  },

  'a server that does not answer': async () => {
    const brief = new Cutroom({ baseUrl: SILENT, timeoutMs: 1000 });
    const unsafe = await refusal(post(brief, '/credits/admin-grant', {}));
    same(unsafe.status, 0);
    same(unsafe.next, 'again');
    // A signal ends a call long before its time-out, which is a minute here, and a wait for the network or a renewal.
    const silent = new Cutroom({ baseUrl: SILENT });
    const offline = new Cutroom({ baseUrl, online: () => never });
    const renewing = new Cutroom({ baseUrl: SILENT, store: holding({ ...(await signIn()), expiresAt: Date.now() + 3_600_000 }) });
    const late = new Promise((done) => setTimeout(done, 45_000, new Error('too late')));
    for (const call of [
      (signal) => silent.jobs.film('rnd-1', { signal }),
      async (signal) => silent.assets.upload(await openAsBlob(CLIP), CLIP, () => {}, signal),
      (signal) => offline.jobs.films({ signal }),
      (signal) => renewing.jobs.films({ signal }),
    ]) {
      const stop = new AbortController();
      setTimeout(() => stop.abort(new Error('enough')), 300);
      same((await Promise.race([failure(call(stop.signal)), late])).message, 'enough');
    }
  },

  'the samples of docs/app': async () => {
    const { default: ts } = await import('typescript');
    const source = (await readFile(new URL('app.ts', import.meta.url), 'utf8')).replace('@cutroom/client', new URL('../dist/index.js', import.meta.url).href);
    const compiled = join(folder, 'app.mjs');
    await writeFile(compiled, ts.transpile(source, { target: 'ES2022', module: 'ESNext' }));
    const samples = await import(compiled);
    const device = await samples.start(baseUrl, inFiles, async () => idToken);
    const before = (await account(device)).balance;
    const stop = new AbortController();
    const shares = [];
    const key = await samples.upload(device, new File([await readFile(CLIP)], 'clip.mp4'), (share) => shares.push(share), stop.signal);
    same(shares.at(-1), 1);
    const separation = await samples.stems(device, key, 'draft');
    same((await samples.stems(device, key, 'draft')).stems.map((stem) => stem.stemId), separation.stems.map((stem) => stem.stemId));
    const { jobId } = await device.jobs.render(film(key), 'draft');
    assert((await samples.film(device, jobId, () => {}, stop.signal)).size > 1000, 'no film');
    const paid = (await account(device)).balance;
    same(paid, before - separation.credits);
    const finished = [];
    const purchase = { platform: 'platform_a', transactionId: ORDER, receipt: RECEIPT, productId: 'credits.10' };
    for (const bought of [purchase, { ...purchase, transactionId: 'GPA.0000-0000-0000-00000', receipt: 'nonsense' }]) {
      await samples.settle(device, bought, async () => void finished.push(bought.transactionId));
    }
    same(finished, [ORDER]);
    same((await device.purchases.waiting()).length, 1);
    same((await account(device)).balance, paid + 10);
  },
};

const scenario = scenarios[process.argv[2]];
if (!scenario) {
  console.log(Object.keys(scenarios).join('\n'));
  process.exit(2);
}
await scenario();
process.exit(); // without waiting for what was abandoned on purpose
