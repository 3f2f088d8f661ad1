// The npm library as a user has it: installed from packed files. What Rust decides is tested there; this is about promises, signals,
// errors and timers.
//
//   run in a prefix that has the package: node --test core.test.mjs
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createServer } from 'node:http';
import { getEventListeners, once } from 'node:events';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import {
  AttemptTimeoutError,
  CircuitBreaker,
  CircuitOpenError,
  FallbackChain,
  FallbackExhaustedError,
  FallbackStoppedError,
  ResilientToolCaller,
  ToolCallError,
  withRetry,
} from '@seawall/core';

const fast = { baseDelayMs: 1, jitterFactor: 0 };
const never = () => new Promise(() => {});

/** A function that throws these, one after the other, and then returns 'ok'. */
function throwing(...errors) {
  const fn = async () => {
    fn.calls++;
    if (errors.length > 0) throw errors.shift();
    return 'ok';
  };
  fn.calls = 0;
  return fn;
}

const coded = (code) => Object.assign(new Error(code), { code });

test('the error that a function threw last is thrown, the same object', async () => {
  const error = new TypeError('429');
  const fn = throwing(new Error('429'), new Error('429'), error);
  await assert.rejects(withRetry(fn, { ...fast, maxAttempts: 3 }), (thrown) => thrown === error);
  assert.equal(fn.calls, 3);
});

test('what is thrown need not be an error', async () => {
  await assert.rejects(withRetry(() => Promise.reject(undefined)), (thrown) => thrown === undefined);
  assert.equal((await withRetry(throwing('429 Too Many Requests'), fast)).attempts, 2);
});

test('a function that throws or returns at once is an attempt too', async () => {
  assert.deepEqual(await withRetry(() => 7), { value: 7, attempts: 1, totalDelayMs: 0 });
  await assert.rejects(withRetry(() => { throw new RangeError('no'); }), RangeError);
});

test('an unknown effect is a write: repeated only when nothing was executed', async () => {
  const lost = throwing(coded('ECONNRESET'));
  await assert.rejects(withRetry(lost, fast), { code: 'ECONNRESET' });
  assert.equal(lost.calls, 1);
  assert.equal((await withRetry(throwing(coded('ECONNREFUSED')), fast)).attempts, 2);
  assert.equal((await withRetry(throwing(coded('ECONNRESET')), { ...fast, effect: 'read_only' })).attempts, 2);
  const get_issue = async () => { if (get_issue.failed++ === 0) throw coded('ECONNRESET'); };
  get_issue.failed = 0;
  assert.equal((await withRetry(get_issue, fast)).attempts, 2, 'its name tells that it reads');
});

test('the caller may call further texts transient, or none', async () => {
  const busy = () => throwing(new Error('the oracle sleeps'));
  await assert.rejects(withRetry(busy(), { ...fast, effect: 'read_only' }), /oracle/);
  const config = { ...fast, effect: 'read_only', retryableErrors: ['oracle sleeps'] };
  assert.equal((await withRetry(busy(), config)).attempts, 2);
  await assert.rejects(withRetry(throwing(new Error('429')), { ...fast, retryableErrors: [] }), /429/);
});

test('a configuration may be changed in place between two calls', async () => {
  const config = { ...fast, maxAttempts: 2, retryableErrors: ['429'] };
  const calls = async () => {
    const fn = throwing(...Array(5).fill(new Error('429')));
    await assert.rejects(withRetry(fn, config), /429/);
    return fn.calls;
  };
  assert.equal(await calls(), 2);
  config.maxAttempts = 3;
  assert.equal(await calls(), 3);
  config.retryableErrors.pop();
  assert.equal(await calls(), 1);
});

test('a pause that the server asks for is kept', async () => {
  const error = Object.assign(new Error('slow down'), { status: 429, headers: new Headers({ 'retry-after': '0.2' }) });
  const { totalDelayMs } = await withRetry(throwing(error), fast);
  assert.ok(totalDelayMs >= 200, `${totalDelayMs}`);
});

test('settings that cannot work are refused by name', async () => {
  await assert.rejects(withRetry(async () => 1, { maxAttempts: 0 }), /attempts/);
  await assert.rejects(withRetry(async () => 1, { baseDelayMs: -1 }), /baseDelayMs/);
  await assert.rejects(withRetry(async () => 1, { effect: 'reads' }), /effect/);
  assert.throws(() => new CircuitBreaker({ failureThreshold: 1.5 }), /failureThreshold/);
  assert.throws(() => new FallbackChain([]), /Fallback chain must have at least one step/);
});

test('a timeout aborts the attempt, and another follows', async () => {
  const signals = [];
  const hangs = ({ signal }) => new Promise(() => signals.push(signal));
  const config = { ...fast, effect: 'read_only', attemptTimeoutMs: 30, maxAttempts: 2 };
  await assert.rejects(withRetry(hangs, config), AttemptTimeoutError);
  assert.deepEqual(signals.map((signal) => [signal.aborted, signal.reason.name]), [[true, 'TimeoutError'], [true, 'TimeoutError']]);
});

test('a signal ends a pause, an attempt, and a call that has not begun', async () => {
  const reason = new Error('enough');
  await assert.rejects(withRetry(async () => 1, { signal: AbortSignal.abort(reason) }), (thrown) => thrown === reason);

  const pause = new AbortController();
  const fn = throwing(new Error('429'));
  const paused = withRetry(fn, { baseDelayMs: 60_000, maxDelayMs: 60_000, signal: pause.signal });
  setImmediate(() => pause.abort(reason));
  await assert.rejects(paused, (thrown) => thrown === reason);
  assert.equal(fn.calls, 1);

  const attempt = new AbortController();
  let inner;
  const running = withRetry(({ signal }) => { inner = signal; return never(); }, { signal: attempt.signal });
  setImmediate(() => attempt.abort(reason));
  await assert.rejects(running, (thrown) => thrown === reason);
  assert.equal(inner.reason, reason);

  const long = new AbortController();
  await withRetry(async () => 1, { signal: long.signal });
  assert.equal(getEventListeners(long.signal, 'abort').length, 0, 'a signal outlives its calls');
});

test('an aborted probe gives its place back', async () => {
  const breaker = new CircuitBreaker({ failureThreshold: 1, cooldownMs: 20 });
  await assert.rejects(breaker.call('a', async () => { throw new Error('500'); }));
  const open = await breaker.call('a', async () => 1).catch((error) => error);
  assert.ok(open instanceof CircuitOpenError && open.retryAfterMs <= 20);
  await new Promise((over) => setTimeout(over, open.retryAfterMs + 2));
  const controller = new AbortController();
  const probe = breaker.call('a', never, { signal: controller.signal });
  await assert.rejects(breaker.call('a', async () => 1), CircuitOpenError, 'one probe at a time');
  controller.abort();
  await assert.rejects(probe, { name: 'AbortError' });
  assert.equal(await breaker.call('a', async () => 'well'), 'well');
});

test('a breaker tells its changes, its states, and is reset', async () => {
  const changes = [];
  const breaker = new CircuitBreaker({ failureThreshold: 2, onStateChange: (...change) => changes.push(change) });
  assert.deepEqual(breaker.getStatus('a'), { status: 'closed', failures: 0, lastFailure: null });
  assert.deepEqual(breaker.getAllStatus(), {});
  for (let i = 0; i < 2; i++) await assert.rejects(breaker.call('a', async () => { throw new Error('500'); }));
  assert.deepEqual(changes, [['a', 'closed', 'open']]);
  const { status, failures, lastFailure } = breaker.getStatus('a');
  assert.deepEqual([status, failures], ['open', 2]);
  assert.ok(Math.abs(Date.now() - lastFailure) < 1000);
  assert.equal(breaker.reset('a'), true);
  assert.equal(breaker.reset('nobody'), false);
  assert.deepEqual(changes[1], ['a', 'open', 'closed']);
  assert.deepEqual(breaker.getAllStatus(), { a: 'closed' });
});

test('a listener that throws fails no call', async () => {
  const warned = once(process, 'warning');
  const breaker = new CircuitBreaker({ failureThreshold: 1, onStateChange: () => { throw new Error('listener'); } });
  await assert.rejects(breaker.call('a', async () => { throw new Error('500'); }), /500/);
  assert.equal((await warned)[0].message, 'listener');
});

test('an open circuit is not retried, whatever number its message contains', async () => {
  const breaker = new CircuitBreaker({ failureThreshold: 1 });
  const name = '503 timeout';
  await assert.rejects(breaker.call(name, async () => { throw new Error('500'); }));
  let calls = 0;
  await assert.rejects(withRetry(() => { calls++; return breaker.call(name, async () => 1); }, { ...fast, effect: 'read_only' }), CircuitOpenError);
  assert.equal(calls, 1);
  const outer = new CircuitBreaker({ failureThreshold: 1 });
  await assert.rejects(outer.call('outer', () => breaker.call(name, async () => 1)), CircuitOpenError);
  assert.equal(outer.getStatus('outer').status, 'closed', 'a refusal is no failure of the server');
});

test('a chain shares breakers, skips, warns and keeps the cause', async () => {
  const breaker = new CircuitBreaker({ failureThreshold: 1 });
  await assert.rejects(breaker.call('live', async () => { throw new Error('500'); }));
  const steps = [
    { name: 'live', execute: async () => 'live' },
    { name: 'cluster', execute: async () => 'cluster', isAvailable: () => false },
    { name: 'copy', execute: async () => 'copy' },
  ];
  const result = await new FallbackChain(steps, breaker).execute();
  assert.deepEqual([result.value, result.finalStep, result.attempts], ['copy', 'copy', 1]);
  assert.match(result.warnings[0], /^live: circuit open \(retry in \d+ms\)$/);
  assert.equal(result.warnings[1], 'cluster: unavailable, skipping');

  const error = new Error('500');
  const failing = new FallbackChain([{ name: 'a', execute: async () => { throw error; } }]);
  const thrown = await failing.execute().catch((thrown) => thrown);
  assert.ok(thrown instanceof FallbackExhaustedError && thrown.cause === error);
  assert.deepEqual(thrown.warnings, ['a: 500']);
});

test("a caller's own mistake stops a chain", async () => {
  const chain = new FallbackChain([
    { name: 'a', execute: async () => { throw new Error('400 Bad Request'); } },
    { name: 'b', execute: async () => 'never asked' },
  ]);
  await assert.rejects(chain.execute(), (thrown) => thrown instanceof FallbackStoppedError && thrown.step === 'a');
});

test('an open circuit degrades to a text, as the article has it', async () => {
  const resilient = new ResilientToolCaller({ breakerConfig: { failureThreshold: 1 }, retryConfig: { maxAttempts: 1 } });
  await assert.rejects(resilient.call('get_issue', async () => { throw new Error('500'); }), /^Error: 500$/);
  const result = await resilient.call('get_issue', async () => 'never');
  assert.equal(result.finalStep, 'graceful-degradation');
  assert.match(result.value, /The "get_issue" tool is temporarily unavailable/);
  assert.match(result.warnings[0], /^get_issue: circuit open for \d+ms$/);
  assert.match(resilient.metricsText(), /graceful_degradation_total\{tool="get_issue"\} 1\n/);
  assert.equal(resilient.resetBreaker('get_issue'), true);
  assert.equal((await resilient.call('get_issue', async () => 'live')).value, 'live');
});

test('without args no call is like another; with them the last good answer is served', async () => {
  const resilient = new ResilientToolCaller({ retryConfig: { maxAttempts: 1 } });
  for (let i = 0; i < 20; i++) assert.equal((await resilient.call('get_issue', async () => i)).value, i);
  const answer = { content: [] };
  const call = (fn, args) => resilient.call('get_issue', fn, undefined, { args });
  assert.equal((await call(async () => answer, { number: 7 })).value, answer);
  const down = async () => { throw new Error('503'); };
  const rescued = await call(down, { number: 7 });
  assert.equal(rescued.value, answer, 'the same object');
  assert.equal(rescued.finalStep, 'get_issue-cached');
  await assert.rejects(call(down, { number: 8 }), /503/);
  assert.match(resilient.metricsText(), /fallback_activated_total\{tool="get_issue",step="get_issue-cached"\} 1\n/);
});

test('the library ends a call with its own error, and says whether it may have been executed', async () => {
  const resilient = new ResilientToolCaller({ retryConfig: { timeoutMs: 30 } });
  const error = await resilient.call('create_issue', never).catch((error) => error);
  assert.ok(error instanceof ToolCallError);
  assert.deepEqual([error.code, error.mayHaveExecuted], ['TIMEOUT', true]);
});

test('a call whose last attempt was cut off does not throw the error of an earlier one', async () => {
  const resilient = new ResilientToolCaller({ retryConfig: { ...fast, timeoutMs: 60 } });
  const error = await resilient.call('get_issue', ({ number }) => (number === 1 ? Promise.reject(new Error('503')) : never())).catch((error) => error);
  assert.deepEqual([error.name, error.code], ['ToolCallError', 'TIMEOUT']);
});

test('a configuration of one call counts for it, and keeps the breaker', async () => {
  const resilient = new ResilientToolCaller({ breakerConfig: { failureThreshold: 3 } });
  const down = throwing(...Array(9).fill(new Error('503')));
  const once = { retryConfig: { maxAttempts: 1 } };
  await assert.rejects(resilient.call('get_issue', down, undefined, once), /503/);
  await assert.rejects(resilient.call('get_issue', down, undefined, { retryConfig: { ...fast, maxAttempts: 2 } }), /503/);
  assert.equal(down.calls, 3);
  assert.equal(resilient.getBreakerStatus('get_issue').status, 'open');
  await assert.rejects(resilient.call('b', down, undefined, { retryConfig: { retryableErrors: ['oracle'] } }), /constructor/);
});

test('facts of a real fetch: nobody listens, so a write may be repeated', async () => {
  const http = createServer().listen(0, '127.0.0.1');
  await once(http, 'listening');
  const { port } = http.address();
  http.close();
  let calls = 0;
  const write = () => { calls++; return fetch(`http://127.0.0.1:${port}/`, { method: 'POST' }); };
  await assert.rejects(withRetry(write, fast), /fetch failed/);
  assert.equal(calls, 3);
});

test('ten thousand calls at once, and none is left', async () => {
  const breaker = new CircuitBreaker();
  const calls = Array.from({ length: 10_000 }, (_, i) =>
    withRetry(({ number }) => breaker.call('a', async () => { if (i % 10 === 0 && number === 1) throw new Error('429'); return i; }), fast));
  const results = await Promise.all(calls);
  assert.ok(results.every(({ value, attempts }, i) => value === i && attempts === (i % 10 === 0 ? 2 : 1)));
});

test('a pause keeps the process alive; nothing else does', () => {
  const run = (code) => spawnSync(process.execPath, ['--input-type=module', '-e', `import { withRetry, CircuitBreaker } from '@seawall/core'; ${code}`], { encoding: 'utf8', timeout: 20_000 });
  const paused = run(`let n = 0; const { attempts } = await withRetry(async () => { if (n++ === 0) throw new Error('429'); }, { baseDelayMs: 50 }); console.log(attempts)`);
  assert.deepEqual([paused.status, paused.stdout], [0, '2\n'], paused.stderr);
  const left = run(`new CircuitBreaker().call('a', () => new Promise(() => {})); console.log('end')`);
  assert.deepEqual([left.status, left.stdout], [0, 'end\n'], left.stderr);
});

test('it works in a worker thread, and by require', async () => {
  assert.equal(typeof createRequire(import.meta.url)('@seawall/core').withRetry, 'function');
  const code = `import('@seawall/core').then(async ({ withRetry }) => {
    let n = 0;
    const { attempts } = await withRetry(async () => { if (n++ === 0) throw new Error('429'); }, { baseDelayMs: 10 });
    require('node:worker_threads').parentPort.postMessage(attempts);
  })`;
  const workers = [1, 2].map(() => new Worker(code, { eval: true }));
  for (const [attempts] of await Promise.all(workers.map((worker) => once(worker, 'message')))) assert.equal(attempts, 2);
  await Promise.all(workers.map((worker) => worker.terminate()));
});
