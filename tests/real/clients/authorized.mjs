// The TypeScript SDK 1.x or the TypeScript client 2.x, led as led.py says, with the headers of its target.
// Usage: node authorized.mjs 1|2 <folder with node_modules> TARGET

import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const [line, folder, target] = process.argv.slice(2);
const { resolve } = createRequire(`${folder}/`);
const load = (name) => import(pathToFileURL(resolve(name)));
const { url, headers, tool, arguments: args } = JSON.parse(target);
const info = { name: 'authorized', version: '1' };

async function version1() {
  const { Client } = await load('@modelcontextprotocol/sdk/client/index.js');
  const { StreamableHTTPClientTransport } = await load('@modelcontextprotocol/sdk/client/streamableHttp.js');
  return { make: () => new Client(info), StreamableHTTPClientTransport };
}

async function version2() {
  const { Client, StreamableHTTPClientTransport } = await load('@modelcontextprotocol/client');
  return { make: () => new Client(info, { versionNegotiation: { mode: 'auto' } }), StreamableHTTPClientTransport };
}

const { make, StreamableHTTPClientTransport } = await (line === '1' ? version1() : version2());
let client;

const steps = {
  async connect() {
    await client?.close();
    client = make();
    await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
    return { text: 'connected' };
  },
  async list() {
    return { text: (await client.listTools()).tools.map(({ name }) => name).join(' ') };
  },
  async call() {
    const { isError = false, content, _meta } = await client.callTool({ name: tool, arguments: args });
    return { isError, text: content[0].text, failure: _meta?.['seawall/failure'] };
  },
};

// An error as the program can read it. Its code is an HTTP status, one of JSON-RPC, or a word.
function thrown({ name, constructor, message, code, status, data }) {
  const http = [code, status, data?.status].find((number) => number >= 100 && number < 600);
  const kind = name === 'Error' ? constructor.name : name;
  return { exception: kind, text: message, status: http, code, failure: data };
}

console.log(JSON.stringify({ text: 'ready' }));
for await (const command of createInterface({ input: process.stdin })) {
  if (command === 'end') break;
  console.log(JSON.stringify(await steps[command]().catch(thrown)));
}
process.exit(0);
