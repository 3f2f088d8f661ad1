// A TypeScript client that calls tools until its stdin ends, and says how each call ended, a line of JSON each.
// Two callers share the one session: a quick one and a slow one, so that something is nearly always under way.
// Usage: node busy.mjs 1|2 <folder with node_modules> TARGET, a JSON object with `url` or `command`

import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';

const [line, folder, target] = process.argv.slice(2);
const { resolve } = createRequire(`${folder}/`);
const load = (name) => import(pathToFileURL(resolve(name)));
const quick = [
  ['echo', { message: 'hello' }],
  ['get-sum', { a: 2, b: 3 }],
  ['get-resource-reference', { resourceType: 'Text', resourceId: 1 }],
];
const slow = [['trigger-long-running-operation', { duration: 0.3, steps: 3 }]];
let stopped = false;

async function version1() {
  const { Client } = await load('@modelcontextprotocol/sdk/client/index.js');
  const { StdioClientTransport } = await load('@modelcontextprotocol/sdk/client/stdio.js');
  const { StreamableHTTPClientTransport } = await load('@modelcontextprotocol/sdk/client/streamableHttp.js');
  return { client: new Client({ name: 'busy', version: '1' }), StdioClientTransport, StreamableHTTPClientTransport };
}

async function version2() {
  const { Client, StreamableHTTPClientTransport } = await load('@modelcontextprotocol/client');
  const { StdioClientTransport } = await load('@modelcontextprotocol/client/stdio');
  const client = new Client({ name: 'busy', version: '1' }, { versionNegotiation: { mode: 'auto' } });
  return { client, StdioClientTransport, StreamableHTTPClientTransport };
}

const say = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);

// Says how one piece of work ended.
async function timed(name, work) {
  const began = performance.now();
  say({ begins: name });
  const failed = ({ name, code, message }) => ({ end: 'exception', text: `${name} ${code}: ${message}`.slice(0, 300) });
  const end = await work().catch(failed);
  say({ tool: name, ms: Math.round(performance.now() - began), ...end });
}

async function call(name, args) {
  const result = await client.callTool({ name, arguments: args });
  return result.isError ? { end: 'failure', text: result.content[0].text.slice(0, 300) } : { end: 'result' };
}

async function listTools() {
  return { end: 'result', tools: JSON.stringify((await client.listTools()).tools) };
}

async function caller(steps) {
  for (let count = 1; !stopped; count++) {
    const [name, args] = steps[count % steps.length];
    await timed(name, () => call(name, args));
    if (steps === quick && count % 10 === 0) await timed('tools/list', listTools);
    await sleep(20);
  }
}

const { client, StdioClientTransport, StreamableHTTPClientTransport } = await (line === '1' ? version1() : version2());
const { url, command } = JSON.parse(target);
const transport = url
  ? new StreamableHTTPClientTransport(new URL(url))
  : new StdioClientTransport({ command: command[0], args: command.slice(1), stderr: 'ignore' });
client.onclose = () => say({ onclose: true });
await client.connect(transport);
await timed('tools/list', listTools);
say({ ready: true });
process.stdin.on('end', () => (stopped = true)).resume();
await Promise.all([caller(quick), caller(slow)]);
await timed('tools/list', listTools);
await client.close();
say({ closed: true });
