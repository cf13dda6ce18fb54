// What the built package does without a server. The scenarios of the table in test/clients/phones_test.go are in scenarios.mjs.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cutroom } from '../dist/index.js';

const baseUrl = 'https://server.example';

/** A client whose requests are all answered with this status and body, and what it sent. */
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
  const { sent, cutroom } = device(400, { error: 'no' });
  try {
    for (const slot of ['a', 'b']) await assert.rejects(cutroom.jobs.render({ segments: [] }, slot));
  } finally {
    Object.defineProperty(globalThis, 'crypto', own);
  }
  const keys = sent.map((request) => request.headers.get('Idempotency-Key'));
  for (const key of keys) assert.match(key, /^[0-9a-f]{32}$/);
  assert.notEqual(keys[0], keys[1]);
});
