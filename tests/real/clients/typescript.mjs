// What a TypeScript client sees: connects with SDK 1.x or 2.x, does the steps it reads, prints what it was shown.
// It answers everything a server may ask: sampling, elicitation, roots; 1.x also as tasks.
// Usage: node typescript.mjs 1|2 <folder with node_modules>  < job.json  > seen.json

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [line, folder] = process.argv.slice(2);
const { resolve } = createRequire(`${folder}/`);
const load = (name) => import(pathToFileURL(resolve(name)));
const job = JSON.parse(readFileSync(0, 'utf8'));
const asked = [];
const heard = [];
let hear = () => {};

const answers = {
  'sampling/createMessage': ({ params }) => ({
    model: 'none',
    role: 'assistant',
    content: { type: 'text', text: `You said: ${JSON.stringify(params.messages)}` },
  }),
  'elicitation/create': ({ params }) =>
    params.mode === 'url' ? { action: 'accept' } : { action: 'accept', content: reply(params.requestedSchema) },
  'roots/list': () => ({ roots: [{ uri: job.root, name: 'files' }] }),
};

// Takes the default or the first choice of every field; a name is Ada.
function reply(schema) {
  const first = (field) => field.default ?? field.enum?.[0] ?? field.oneOf?.[0].const;
  const fields = Object.entries(schema.properties).map(([name, field]) => [name, first(field)]);
  return Object.fromEntries([...fields, ['name', 'Ada']].filter(([name, value]) => value && schema.properties[name]));
}

const capabilities = { sampling: {}, elicitation: { form: {}, url: {} }, roots: { listChanged: true } };

async function version1() {
  const { Client } = await load('@modelcontextprotocol/sdk/client/index.js');
  const { StdioClientTransport } = await load('@modelcontextprotocol/sdk/client/stdio.js');
  const { StreamableHTTPClientTransport } = await load('@modelcontextprotocol/sdk/client/streamableHttp.js');
  const types = await load('@modelcontextprotocol/sdk/types.js');
  const { InMemoryTaskStore } = await load('@modelcontextprotocol/sdk/experimental/tasks');
  const tasks = { requests: { sampling: { createMessage: {} }, elicitation: { create: {} } } };
  const client = new Client(
    { name: 'real-ts1', version: '1' },
    { capabilities: { ...capabilities, tasks }, taskStore: new InMemoryTaskStore() },
  );
  const schemas = {
    'sampling/createMessage': types.CreateMessageRequestSchema,
    'elicitation/create': types.ElicitRequestSchema,
    'roots/list': types.ListRootsRequestSchema,
  };
  for (const [method, schema] of Object.entries(schemas)) {
    client.setRequestHandler(schema, (request, extra) => answerNowOrAsTask(method, request, extra));
  }
  client.fallbackNotificationHandler = async (notification) => noted(notification);
  const call = (params, options) => client.callTool(params, undefined, options);
  return { client, call, StdioClientTransport, StreamableHTTPClientTransport };
}

async function answerNowOrAsTask(method, request, extra) {
  asked.push({ method, params: request.params });
  if (!request.params?.task) return answers[method](request);
  const task = await extra.taskStore.createTask({ ttl: 60_000, pollInterval: 100 });
  await extra.taskStore.storeTaskResult(task.taskId, 'completed', answers[method](request));
  return { task };
}

async function version2() {
  const { Client, StreamableHTTPClientTransport } = await load('@modelcontextprotocol/client');
  const { StdioClientTransport } = await load('@modelcontextprotocol/client/stdio');
  const client = new Client(
    { name: 'real-ts2', version: '1' },
    { capabilities, versionNegotiation: { mode: 'auto' } },
  );
  for (const [method, answer] of Object.entries(answers)) {
    client.setRequestHandler(method, async (request) => {
      asked.push({ method, params: request.params });
      return answer(request);
    });
  }
  const call = (params, options) => client.callTool(params, options);
  return { client, call, StdioClientTransport, StreamableHTTPClientTransport };
}

function noted(notification) {
  heard.push(notification);
  hear();
}

async function until(method) {
  const wanted = () => heard.find((notification) => notification.method === method);
  const deadline = AbortSignal.timeout(5_000);
  while (!wanted() && !deadline.aborted) {
    await new Promise((done) => {
      hear = done;
      deadline.onabort = done;
    });
  }
  return wanted() ?? `no ${method} within 5 s`;
}

async function withTask(client, params) {
  let last;
  for await (const message of client.experimental.tasks.callToolStream(params)) last = message;
  return last;
}

async function step(connected, { method, params, progress, task, hears, abort }) {
  const { client, call } = connected;
  const seen = [];
  const options = progress ? { onprogress: (update) => seen.push(update) } : {};
  if (abort) options.signal = AbortSignal.timeout(abort);
  const methods = {
    'tools/list': () => client.listTools(params),
    'tools/call': () => (task ? withTask(client, params) : call(params, options)),
    'prompts/list': () => client.listPrompts(params),
    'prompts/get': () => client.getPrompt(params),
    'resources/list': () => client.listResources(params),
    'resources/templates/list': () => client.listResourceTemplates(params),
    'resources/read': () => client.readResource(params),
    'resources/subscribe': () => client.subscribeResource(params),
    'completion/complete': () => client.complete(params),
    'logging/setLevel': () => client.setLoggingLevel(params.level),
  };
  const result = await methods[method]().catch(({ name, code, message, data }) => ({ error: { name, code, message, data } }));
  return { result, ...(progress && { progress: seen }), ...(hears && { heard: await until(hears) }) };
}

const connected = await (line === '1' ? version1() : version2());
const { client, StdioClientTransport, StreamableHTTPClientTransport } = connected;
const { url, command, env } = job.target;
const transport = url
  ? new StreamableHTTPClientTransport(new URL(url))
  : new StdioClientTransport({ command: command[0], args: command.slice(1), env, stderr: 'ignore' });
await client.connect(transport);
const hello = {
  serverInfo: client.getServerVersion(),
  capabilities: client.getServerCapabilities(),
  instructions: client.getInstructions(),
};
const steps = [];
for (const each of job.steps) steps.push(await step(connected, each));
await client.close();
process.stdout.write(JSON.stringify({ hello, steps, asked }), () => process.exit(0));
