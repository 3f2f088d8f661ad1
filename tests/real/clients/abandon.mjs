// The TypeScript SDK 1.x abandons a write and asks again; prints what it read each time.
// Usage: node abandon.mjs <folder with node_modules> < job.json > seen.json; the ways of abandoning are those of abandon.py

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const { resolve } = createRequire(`${process.argv[2]}/`);
const load = (name) => import(pathToFileURL(resolve(name)));
const { Client } = await load('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = await load('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = await load('@modelcontextprotocol/sdk/client/streamableHttp.js');
const job = JSON.parse(readFileSync(0, 'utf8'));
const { url, headers, command, env } = job.target;
const PATIENCE = 20_000;
const limit = job.patience * 1000;

async function connected() {
  const client = new Client({ name: 'abandons', version: '1' });
  await client.connect(
    url
      ? new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } })
      : new StdioClientTransport({ command: command[0], args: command.slice(1), env, stderr: 'ignore' }),
  );
  return client;
}

const call = (client, options) =>
  client.callTool({ name: job.tool, arguments: job.arguments }, undefined, options).then(
    (result) => ({ error: result.isError ?? false, text: result.content[0].text }),
    (error) => ({ exception: `${error.name}: ${error.message}` }),
  );

let client = await connected();
const options = job.how === 'cancel' ? { signal: AbortSignal.timeout(limit), timeout: PATIENCE } : { timeout: limit };
let first;
if (job.how === 'drop' && !url) {
  const waiting = call(client, { timeout: PATIENCE });
  await new Promise((done) => setTimeout(done, limit));
  await client.close();
  first = await waiting;
  client = await connected();
} else {
  first = await call(client, options);
}
const count = job.how === 'three' ? 3 : 1;
const then = await Promise.all(Array.from({ length: count }, () => call(client, { timeout: PATIENCE })));
console.log(JSON.stringify({ first, then }));
await client.close();
process.exit(0);
