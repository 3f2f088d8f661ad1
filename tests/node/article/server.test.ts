// Steps 6 and 7 of the article: a server of the official SDK whose tools are wrapped, and its admin endpoints under express.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { ResilientToolCaller, type FallbackStep } from '@seawall/core';
import { resilienceRouter } from '@seawall/core/express';
import { resilientTools } from '@seawall/core/mcp';
import express from 'express';
import { z } from 'zod';
import { AgentLogger, AgentMetrics } from './telemetry.js';

type Content = { type: string; text: string }[];

async function connected(server: McpServer): Promise<(name: string, args: Record<string, unknown>) => Promise<{ text: string; isError: boolean }>> {
  const client = new Client({ name: 'test', version: '0' });
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  await Promise.all([server.connect(ours), client.connect(theirs)]);
  return async (name, args) => {
    const result = await client.callTool({ name, arguments: args });
    const text = (result.content as Content).map((block) => block.text).join('\n');
    return { text, isError: result.isError === true };
  };
}

test('step 6, written as the article writes it', async () => {
  const server = new McpServer({ name: 'github-issue-manager', version: '1.0.4' });
  const metrics = new AgentMetrics();
  const resilient = new ResilientToolCaller({
    breakerConfig: { failureThreshold: 5, cooldownMs: 30_000 },
    retryConfig: { baseDelayMs: 5 },
    metrics,
  });
  let isDown = false;

  function resilientTool(name: string, description: string, schema: any, handler: (args: any) => Promise<any>) {
    server.tool(name, description, schema, async (args: any) => {
      const logger = new AgentLogger();
      try {
        const fallbacks: FallbackStep<any>[] = [];
        if (name === 'get_issue' || name === 'list_issues') {
          fallbacks.push({
            name: `${name}-cached`,
            execute: async () => ({ content: [{ type: 'text', text: 'from the cache' }], isError: false }),
            isAvailable: () => true,
          });
        }
        const result = await resilient.call(name, () => handler(args), fallbacks.length > 0 ? fallbacks : undefined, {
          logResult: (r) => logger.info('result', { tool: name }),
        });
        return result && typeof result === 'object' && 'value' in result ? (result as any).value : result;
      } catch (error) {
        return { content: [{ type: 'text', text: `failed: ${error}` }], isError: true };
      }
    });
  }

  const schema = { number: z.number() };
  resilientTool('get_issue', 'Get issue', schema, async ({ number }) => {
    if (isDown) throw new Error('503 Service Unavailable');
    return { content: [{ type: 'text', text: `issue ${number}` }] };
  });
  resilientTool('create_issue', 'Create issue', schema, async () => {
    throw new Error('422 Unprocessable Entity: title is missing');
  });
  const call = await connected(server);

  assert.deepEqual(await call('get_issue', { number: 7 }), { text: 'issue 7', isError: false });
  isDown = true;
  assert.deepEqual(await call('get_issue', { number: 7 }), { text: 'from the cache', isError: false });
  const refused = await call('create_issue', { number: 7 });
  assert.ok(refused.isError && refused.text.includes('title is missing'));
  assert.equal(metrics.counters.get('tool:get_issue:success'), 2);
  assert.equal(metrics.counters.get('tool:create_issue:failure'), 1);
  assert.equal(resilient.getBreakerStatus('create_issue').failures, 0, "a caller's own mistake is not the server's failure");
});

test('the wrapper for server.tool: last good answers, marked errors, and one that says what happened', async () => {
  const server = new McpServer({ name: 'github-issue-manager', version: '1.0.4' });
  const resilient = new ResilientToolCaller({ retryConfig: { baseDelayMs: 5 }, breakerConfig: { failureThreshold: 3 } });
  const tool = resilientTools(server, resilient);
  const ran = { get_issue: 0, create_issue: 0 };
  let isDown = false;
  const text = (text: string, isError = false) => ({ content: [{ type: 'text', text }], isError });
  tool('get_issue', 'Get issue', { number: z.number() }, async ({ number }) => {
    ran.get_issue++;
    return isDown ? text('Error: GitHub API: 503 Service Unavailable', true) : text(`issue ${number}`);
  });
  tool('create_issue', 'Create issue', { title: z.string() }, async () => {
    ran.create_issue++;
    throw Object.assign(new Error('socket hang up'), { code: 'ECONNRESET' });
  });
  const call = await connected(server);

  assert.equal((await call('get_issue', { number: 7 })).text, 'issue 7');
  isDown = true;
  const again = await call('get_issue', { number: 7 });
  assert.ok(!again.isError && again.text.endsWith('\nissue 7'), again.text);
  assert.equal(ran.get_issue, 4, 'three attempts at the second call');
  assert.equal(resilient.getBreakerStatus('get_issue').status, 'open', 'marked errors count');

  const lost = await call('create_issue', { title: 'a' });
  assert.ok(lost.isError && lost.text.includes('It may have been executed'), lost.text);
  assert.equal(ran.create_issue, 1, 'a write that may have been executed is not repeated');
  const repeated = await call('create_issue', { title: 'a' });
  assert.ok(repeated.isError);
  assert.equal(ran.create_issue, 1, 'nor by the agent');
});

test('step 7: the admin endpoints', async () => {
  const resilient = new ResilientToolCaller({ breakerConfig: { failureThreshold: 1 }, retryConfig: { maxAttempts: 1 } });
  await assert.rejects(resilient.call('get/issue', async () => { throw new Error('500'); }));
  const app = express();
  app.use(resilienceRouter(resilient, { keys: ['sesame'] }));
  app.get('/metrics', (req, res) => { res.type('text/plain').send(resilient.metricsText()); });
  const http = app.listen(0, '127.0.0.1');
  await once(http, 'listening');
  const base = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  const ask = async (method: string, path: string, key?: string) => {
    const response = await fetch(base + path, { method, headers: key === undefined ? {} : { 'X-API-Key': key } });
    return [response.status, await response.json()];
  };

  assert.deepEqual(await ask('GET', '/resilience/breakers'), [401, { error: 'Missing X-API-Key header' }]);
  assert.deepEqual(await ask('POST', '/resilience/breakers/get%2Fissue/reset', 'guess'), [403, { error: 'Invalid API key' }]);
  const [, listed] = await ask('GET', '/resilience/breakers', 'sesame') as [number, { breakers: object; metrics: object }];
  assert.deepEqual(listed.breakers, { 'get/issue': 'open' });
  assert.ok('get/issue' in listed.metrics);
  assert.deepEqual(await ask('POST', '/resilience/breakers/nobody/reset', 'sesame'), [404, { error: 'Unknown tool' }]);
  assert.deepEqual(await ask('POST', '/resilience/breakers/get%2Fissue/reset', 'sesame'), [200, { status: 'reset', tool: 'get/issue' }]);
  assert.deepEqual(resilient.getAllBreakerStatus(), { 'get/issue': 'closed' });
  const metrics = await (await fetch(`${base}/metrics`)).text();
  assert.ok(metrics.includes('circuit_breaker_state{tool="get/issue",state="closed"} 1'), metrics);
  assert.equal((await fetch(`${base}/else`)).status, 404);
  http.closeAllConnections();
  http.close();
});
