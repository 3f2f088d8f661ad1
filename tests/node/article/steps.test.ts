// Steps 2 and 8 of the article that the API comes from, with the import path changed. Compiled by `tsc --strict`.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CircuitBreaker, CircuitOpenError, FallbackChain, FallbackExhaustedError, ResilientToolCaller, withRetry } from '@seawall/core';

test('step 2: a flaky API answers at the third attempt', async () => {
  let callCount = 0;
  const result = await withRetry(async () => {
    callCount++;
    if (callCount < 3) throw new Error('429 rate limit exceeded');
    return 'success!';
  });
  assert.equal(result.value, 'success!');
  assert.equal(result.attempts, 3);
  assert.ok(result.totalDelayMs >= 3000 && result.totalDelayMs <= 3600, `${result.totalDelayMs} ms: 1 s, 2 s, and up to 20 %`);
});

test('step 8: a retry succeeds on the third attempt', async () => {
  const resilient = new ResilientToolCaller({ retryConfig: { baseDelayMs: 10 } });
  let count = 0;
  const result = await resilient.call('test-tool', async () => {
    count++;
    if (count < 3) throw new Error('429 rate limit');
    return 'ok';
  });
  assert.equal(result.value, 'ok');
  assert.equal(result.attempts, 3);
});

test('step 8: a circuit breaker opens after 5 failures', async () => {
  const breaker = new CircuitBreaker({ failureThreshold: 5, cooldownMs: 1000 });
  for (let i = 0; i < 5; i++) {
    await assert.rejects(breaker.call('flaky', async () => { throw new Error('fail'); }), /^Error: fail$/);
  }
  await assert.rejects(breaker.call('flaky', async () => 'should not reach'), CircuitOpenError);
});

test('step 8: a fallback chain exhausts', async () => {
  const chain = new FallbackChain<string>([
    { name: 'primary', execute: async () => { throw new Error('fail'); } },
    { name: 'backup', execute: async () => { throw new Error('also fail'); } },
  ]);
  await assert.rejects(chain.execute(), FallbackExhaustedError);
});
