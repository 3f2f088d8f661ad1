// The npm launcher as a user has it: installed from packed files into an empty prefix, with an empty HOME and no Rust on PATH. Every
// way in which a launcher ends must leave nothing behind.
//
//   SEAWALL_PREFIX=… (with node_modules) node --test tests/node/launcher.test.mjs
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';

const prefix = process.env.SEAWALL_PREFIX;
const bin = join(prefix, 'node_modules/.bin');
const everything = join(bin, 'mcp-server-everything');
const hello = {
  jsonrpc: '2.0',
  id: 0,
  method: 'initialize',
  params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '0' } },
};

/** A fresh HOME, and on PATH only node and the system. */
function env(tag) {
  return { HOME: mkdtempSync(join(tmpdir(), 'seawall-home-')), PATH: `${dirname(process.execPath)}:/usr/bin:/bin`, TAG: tag };
}

let tags = 0;

/** A client whose server is started by `command`; its processes are found by a mark in their environment. */
class Client {
  constructor(command, args) {
    this.tag = `seawall-test-${process.pid}-${tags++}`;
    this.process = spawn(command, args, { cwd: prefix, env: env(this.tag), stdio: ['pipe', 'pipe', 'pipe'] });
    this.lines = createInterface({ input: this.process.stdout })[Symbol.asyncIterator]();
    this.ended = once(this.process, 'exit');
    this.stderr = '';
    this.process.stderr.on('data', (text) => (this.stderr += text));
  }

  say(message) {
    this.process.stdin.write(`${JSON.stringify(message)}\n`);
  }

  async ask(message) {
    this.say(message);
    for (;;) {
      const { value, done } = await this.lines.next();
      assert.ok(!done, `no answer: ${this.stderr}`);
      const answer = JSON.parse(value);
      if (answer.id === message.id) return answer.result;
    }
  }

  async ready() {
    assert.ok((await this.ask(hello)).serverInfo);
    this.say({ jsonrpc: '2.0', method: 'notifications/initialized' });
    const { tools } = await this.ask({ jsonrpc: '2.0', id: 1, method: 'tools/list' });
    assert.ok(tools.some((tool) => tool.name === 'echo'));
    const params = { name: 'echo', arguments: { message: 'through npm' } };
    const { content } = await this.ask({ jsonrpc: '2.0', id: 2, method: 'tools/call', params });
    assert.match(content[0].text, /through npm/);
    assert.ok(found(this.tag, 'bin/seawall').length > 0 && found(this.tag, 'server-everything').length > 0);
    return this;
  }

  /** Waits until no process of this client is left, at most 15 s. */
  async isGone() {
    const late = Date.now() + 15_000;
    while (found(this.tag).length > 0) {
      assert.ok(Date.now() < late, `left behind: ${JSON.stringify(found(this.tag))}`);
      await new Promise((look) => setTimeout(look, 50));
    }
  }
}

/** The command lines and pids of the processes with this mark, and with this word. */
function found(tag, word = '') {
  const read = (pid, file) => {
    try {
      return readFileSync(`/proc/${pid}/${file}`, 'utf8').replaceAll('\0', ' ');
    } catch {
      return '';
    }
  };
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name) && read(name, 'environ').includes(`TAG=${tag} `));
  return pids.map((pid) => ({ pid: Number(pid), line: read(pid, 'cmdline') })).filter(({ line }) => line.includes(word));
}

const launched = () => new Client(join(bin, 'seawall'), ['run', '--', everything]).ready();
const byNpx = () => new Client('npx', ['-y', 'seawall', 'run', '--', everything]).ready();

test('there is no Rust where this runs', () => {
  assert.notEqual(spawnSync('cargo', ['--version'], { env: env('none') }).status, 0);
});

for (const [name, start] of [['the command', launched], ['npx', byNpx]]) {
  test(`${name}: lists, calls, and ends when its client closes stdin`, async () => {
    const client = await start();
    client.process.stdin.end();
    assert.deepEqual(await client.ended, [0, null]);
    await client.isGone();
  });

  test(`${name}: SIGTERM ends it, though stdin stays open`, async () => {
    const client = await start();
    client.process.kill('SIGTERM');
    await client.ended;
    await client.isGone();
  });

  test(`${name}: SIGKILL of the launcher leaves nothing behind, though stdin stays open`, async () => {
    const client = await start();
    const [launcher] = found(client.tag, 'node_modules/.bin/seawall run').filter(({ line }) => line.startsWith('node '));
    process.kill(launcher.pid, 'SIGKILL');
    await client.isGone();
  });
}

test('SIGINT ends it, and the exit code of the binary is the launcher\'s', async () => {
  const client = await launched();
  client.process.kill('SIGINT');
  assert.deepEqual(await client.ended, [0, null]);
  await client.isGone();
});

test('a binary that is killed ends its launcher by the same signal', async () => {
  const client = await launched();
  const [binary] = found(client.tag, 'bin/seawall --launcher');
  process.kill(binary.pid, 'SIGKILL');
  assert.deepEqual(await client.ended, [null, 'SIGKILL']);
  await client.isGone();
});

test('exit codes and output pass through', () => {
  const run = (...args) => spawnSync(join(bin, 'seawall'), args, { env: env('codes'), encoding: 'utf8' });
  assert.match(run('--version').stdout, /^seawall \d/);
  assert.equal(run('--version').status, 0);
  assert.equal(run('no-such-command').status, 1);
  assert.equal(run('status', '--admin', 'http://127.0.0.1:1').status, 4);
});

test('without the package of its platform the launcher says which one is missing', () => {
  const alone = mkdtempSync(join(tmpdir(), 'seawall-alone-'));
  spawnSync('cp', ['-r', join(prefix, 'node_modules/seawall'), alone]);
  const said = spawnSync('node', [join(alone, 'seawall/seawall.js'), '--version'], { env: env('alone'), encoding: 'utf8' });
  assert.equal(said.status, 4);
  assert.match(said.stderr, /the package @seawall\/linux-x64-gnu is not installed/);
});
