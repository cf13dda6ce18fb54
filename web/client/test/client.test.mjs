// Tests of the built package that need no server. The scenarios of the table in test/clients/phones_test.go are in scenarios.mjs.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cutroom, memory } from '../dist/index.js';

const baseUrl = 'https://server.example';

const session = (sub) => ({ accessToken: sub, expiresAt: Date.now() + 7 * 86_400_000, user: { sub } });

/** A store in which a user is signed in. */
function signedIn() {
  const store = memory();
  store.setItem('cutroom.session', JSON.stringify(session('u')));
  return store;
}

/** A client whose requests all get this status and body, and the requests that it sent. */
function device(status, body, options = {}) {
  const sent = [];
  const fetch = async (request) => {
    sent.push(request);
    return new Response(JSON.stringify(body), { status, headers: { 'Content-Type': 'application/json' } });
  };
  return { sent, cutroom: new Cutroom({ baseUrl, fetch, ...options }) };
}

test('nothing is sent before there is a network', async () => {
  let back;
  const network = new Promise((done) => (back = done));
  const { sent, cutroom } = device(200, { balance: 2 }, { online: () => network });
  const asked = cutroom.answer(cutroom.api.GET('/api/v2/credits'));
  await new Promise(setImmediate);
  assert.equal(sent.length, 0);
  back();
  assert.equal((await asked).balance, 2);
});

test('a fetch that ignores its signal is given up', async () => {
  const sent = [];
  const cutroom = new Cutroom({ baseUrl, timeoutMs: 5, fetch: (request) => (sent.push(request), new Promise(() => {})) });
  const call = cutroom.answer(cutroom.api.POST('/api/v2/credits/admin-grant', { body: {} })); // which is not safe to repeat
  await assert.rejects(call, { name: 'CutroomError', status: 0, next: 'again' });
  assert(sent[0].signal.aborted);
});

test('a key is made where there is no crypto, as in React Native', async () => {
  const own = Object.getOwnPropertyDescriptor(globalThis, 'crypto');
  Object.defineProperty(globalThis, 'crypto', { value: undefined, configurable: true });
  const { sent, cutroom } = device(400, { error: 'no' }, { store: signedIn() });
  try {
    for (const slot of ['a', 'b']) await assert.rejects(cutroom.jobs.render({ segments: [] }, slot));
  } finally {
    Object.defineProperty(globalThis, 'crypto', own);
  }
  const keys = sent.map((request) => request.headers.get('Idempotency-Key'));
  for (const key of keys) assert.match(key, /^[0-9a-f]{32}$/);
  assert.notEqual(keys[0], keys[1]);
});

test('the late answer of a submit leaves its slot to a newer one', async () => {
  const answers = [];
  const fetch = () => new Promise((done) => answers.push((jobId) => done(Response.json({ jobId, reused: false }))));
  const cutroom = new Cutroom({ baseUrl, store: signedIn(), fetch });
  const old = cutroom.jobs.render({ segments: [] }, 'draft');
  while (answers.length < 1) await new Promise(setImmediate);
  const stop = new AbortController();
  const newer = cutroom.jobs.render({ segments: [], quality: 'low' }, 'draft', stop.signal);
  while (answers.length < 2) await new Promise(setImmediate);
  answers[0]('rnd-1');
  assert.equal((await old).jobId, 'rnd-1');
  stop.abort(new Error('enough'));
  await assert.rejects(newer, /enough/);
  const again = cutroom.jobs.unanswered('draft');
  while (answers.length < 3) await new Promise(setImmediate);
  answers[2]('rnd-2');
  assert.equal((await again)?.jobId, 'rnd-2');
});

test('a submit that waits for the network is not sent as the user who signs in meanwhile', async () => {
  let back;
  const networks = [new Promise((done) => (back = done))];
  const online = async () => networks.shift();
  const { sent, cutroom } = device(200, session('v'), { store: signedIn(), online });
  const open = cutroom.jobs.render({ segments: [] }, 'draft');
  while (networks.length) await new Promise(setImmediate);
  await cutroom.signIn('provider_a', 'token');
  back();
  await assert.rejects(open, { status: 401, next: 'signIn' });
  assert.equal(await cutroom.jobs.unanswered('draft'), undefined);
  assert.deepEqual(sent.map((request) => new URL(request.url).pathname), ['/api/v2/auth/provider_a']);
});
