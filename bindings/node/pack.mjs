// Packs the npm packages from one template: the launcher, and the package of each platform whose files are given.
//
//   node bindings/node/pack.mjs --out DIR [--binary PATH] [--addon PATH --dist DIR]
//
// Declares every platform of platforms.json. Packs only that of this machine, and says of the others: not built here.
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '../..');
const { platform } = createRequire(import.meta.url)('./launcher/platform.js');
const { values: given } = parseArgs({
  options: { out: { type: 'string' }, binary: { type: 'string' }, addon: { type: 'string' }, dist: { type: 'string' } },
});
const { scope, mcpName } = read('scope.json');
const platforms = read('platforms.json');
const version = /^version = "(.+)"$/m.exec(readFileSync(join(root, 'Cargo.toml'), 'utf8'))[1];
const common = { version, license: 'MIT OR Apache-2.0', engines: { node: '>=18' } };

function read(file) {
  return JSON.parse(readFileSync(join(here, file), 'utf8'));
}

/** The package of a platform: a name, where it may be installed, and one file. */
function ofPlatform({ name, os, cpu, libc }, suffix, what) {
  const where = { os: [os], cpu: [cpu], ...(libc && { libc: [libc] }) };
  return { name: `${scope}/${suffix}${name}`, description: `${what} for ${name}`, ...common, ...where };
}

function optional(suffix) {
  return Object.fromEntries(platforms.map(({ name }) => [`${scope}/${suffix}${name}`, version]));
}

/** Writes a package's folder by `fill` and packs it. */
function pack(manifest, fill) {
  const folder = mkdtempSync(join(tmpdir(), 'seawall-npm-'));
  fill(folder);
  for (const licence of ['LICENSE-APACHE', 'LICENSE-MIT']) {
    cpSync(join(root, licence), join(folder, licence));
  }
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  execFileSync('npm', ['pack', '--silent', '--pack-destination', given.out], { cwd: folder, stdio: 'inherit' });
  rmSync(folder, { recursive: true });
}

function packPlatforms(suffix, what, source, file) {
  for (const one of platforms) {
    if (one.name !== platform()) {
      console.log(`${scope}/${suffix}${one.name}: not built here`);
      continue;
    }
    pack(ofPlatform(one, suffix, what), (folder) => {
      mkdirSync(dirname(join(folder, file)), { recursive: true });
      cpSync(source, join(folder, file));
    });
  }
}

mkdirSync(given.out, { recursive: true });

if (given.binary) {
  packPlatforms('', 'The seawall binary', given.binary, 'bin/seawall');
  const launcher = {
    name: 'seawall',
    description: 'Keeps AI agents working when their MCP tools fail: a wrapper for one MCP server, a gateway for many.',
    ...common,
    mcpName,
    keywords: ['mcp', 'resilience', 'gateway', 'circuit-breaker', 'retry'],
    bin: { seawall: 'seawall.js' },
    optionalDependencies: optional(''),
    seawall: { scope },
  };
  pack(launcher, (folder) => cpSync(join(here, 'launcher'), folder, { recursive: true }));
  const server = readFileSync(join(here, 'server.json'), 'utf8');
  writeFileSync(join(given.out, 'server.json'), server.replaceAll('MCP_NAME', mcpName).replaceAll('VERSION', version));
}

if (given.addon) {
  packPlatforms('core-', 'The native part of the seawall library', given.addon, 'seawall.node');
  const core = { ...read('core/package.json'), name: `${scope}/core`, ...common, optionalDependencies: optional('core-'), seawall: { scope } };
  delete core.private;
  pack(core, (folder) => {
    cpSync(given.dist, join(folder, 'dist'), { recursive: true });
    cpSync(join(here, 'launcher/platform.js'), join(folder, 'dist/platform.js'));
    cpSync(join(here, 'core/README.md'), join(folder, 'README.md'));
  });
}
