// What a call costs that succeeds at once, beside cockatiel and opossum, what a refused one costs, and what crossing into Rust costs.
//
//   run in a prefix that has the packages (tests/node/run): node bench.mjs [--write PAGE]
import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { arch } from 'node:os';
import { CircuitBreaker, ResilientToolCaller, withRetry } from '@seawall/core';
import * as cockatiel from 'cockatiel';
import Opossum from 'opossum';

const CALLS = 20_000;
const ROUNDS = 15;
const require = createRequire(import.meta.url);
const version = (name) => require(`${name}/package.json`).version;
const work = async () => 7;
const down = async () => { throw new Error('500'); };

async function subjects() {
  const attempts = { maxAttempts: 3, backoff: new cockatiel.ExponentialBackoff() };
  const peerRetry = cockatiel.retry(cockatiel.handleAll, attempts);
  const guard = () => cockatiel.circuitBreaker(cockatiel.handleAll, { halfOpenAfter: 1e9, breaker: new cockatiel.ConsecutiveBreaker(5) });
  const peerBreaker = guard();
  const peerAll = cockatiel.wrap(cockatiel.timeout(60_000, 'aggressive'), peerRetry, guard());
  const opossum = new Opossum(work, { timeout: false });
  const opossumTimed = new Opossum(work, { timeout: 60_000 });
  const breaker = new CircuitBreaker();
  const read = { effect: 'read_only' };
  const timed = { effect: 'read_only', timeoutMs: 60_000 };
  const resilient = new ResilientToolCaller();
  const args = { args: { number: 7 } };

  const [openOurs, openCockatiel, openOpossum] = [new CircuitBreaker({ cooldownMs: 1e8 }), guard(), new Opossum(down, { timeout: false, resetTimeout: 1e9, volumeThreshold: 1 })];
  for (let i = 0; i < 10; i++) {
    await openOurs.call('a', down).catch(() => {});
    await openCockatiel.execute(down).catch(() => {});
    await openOpossum.fire().catch(() => {});
  }
  const caught = () => {};
  return {
    'the work alone': work,
    'seawall withRetry': () => withRetry(work),
    'seawall withRetry, with a configuration': () => withRetry(work, read),
    'cockatiel retry': () => peerRetry.execute(work),
    'seawall CircuitBreaker': () => breaker.call('a', work),
    'cockatiel circuitBreaker': () => peerBreaker.execute(work),
    'opossum': () => opossum.fire(),
    'seawall withRetry, with a timeout': () => withRetry(work, timed),
    'opossum, with a timeout': () => opossumTimed.fire(),
    'seawall ResilientToolCaller: retry, breaker, timeout': () => resilient.call('get_issue', work),
    'cockatiel: retry, breaker, timeout': () => peerAll.execute(work),
    'seawall ResilientToolCaller, with args: all policies': () => resilient.call('list_mails', work, [], args),
    'seawall, refused by an open breaker': () => openOurs.call('a', work).catch(caught),
    'cockatiel, refused by an open breaker': () => openCockatiel.execute(work).catch(caught),
    'opossum, refused by an open breaker': () => openOpossum.fire().catch(caught),
    'one call into Rust and back': () => breaker.getStatus('nobody'),
  };
}

async function perCall(call) {
  const began = process.hrtime.bigint();
  for (let i = 0; i < CALLS; i++) await call();
  return Number(process.hrtime.bigint() - began) / CALLS / 1000;
}

const all = await subjects();
const took = Object.fromEntries(Object.keys(all).map((name) => [name, []]));
for (const call of Object.values(all)) await perCall(call); // warm
for (let round = 0; round < ROUNDS; round++) {
  for (const [name, call] of Object.entries(all)) took[name].push(await perCall(call));
}
const rows = Object.entries(took).map(([name, times]) => {
  times.sort((a, b) => a - b);
  return `| ${name} | ${times[ROUNDS >> 1].toFixed(2)} | ${times[0].toFixed(2)} |`;
});
const page = `# What a call costs in Node

A call that succeeds at once, through each library, and a call that an open breaker refuses: ${ROUNDS} rounds of ${CALLS} calls, one subject after the other
in each round. Node ${process.versions.node} on ${arch()}; cockatiel ${version('cockatiel')}, opossum ${version('opossum')}. The machine was shared and noisy: compare rows, not pages.

| what | µs a call, median | best |
|---|---:|---:|
${rows.join('\n')}

Missed: a retry alone, a breaker alone and a refusal cost more than cockatiel's and opossum's, which never leave JavaScript. Together, as a tool is
called, our retry, breaker and timeout cost less than cockatiel's.

Made with the native half built for release; renewed by \`SEAWALL_ADDON_PROFILE=release tests/node/run core && cp bindings/node/bench.mjs target/node/core/ && node
target/node/core/bench.mjs --write docs/evidence/node.md\`.
`;
console.log(rows.join('\n'));
const at = process.argv.indexOf('--write');
if (at > 0) writeFileSync(process.argv[at + 1], page);
