// Finds the binary of this platform in the optional dependency that npm chose for it.
'use strict';

/** The platform as its package is named: linux-x64-gnu. */
function platform() {
  const libc = process.platform !== 'linux' ? '' : isGlibc() ? '-gnu' : '-musl';
  return `${process.platform}-${process.arch}${libc}`;
}

/** Whether this node runs on glibc. The report of a process without network lookups takes a millisecond. */
function isGlibc() {
  process.report.excludeNetwork = true;
  return process.report.getReport().header.glibcVersionRuntime !== undefined;
}

/** The path of the binary; undefined, after a word on stderr, where there is none. */
function binary() {
  const { scope } = require('./package.json').seawall;
  const name = `${scope}/${platform()}`;
  const file = process.platform === 'win32' ? 'seawall.exe' : 'seawall';
  try {
    return require.resolve(`${name}/bin/${file}`);
  } catch {
    console.error(
      `seawall: the package ${name} is not installed. It is an optional dependency: install without --omit=optional, ` +
        'or, where your platform is not built, build from source: cargo install seawall-gateway',
    );
    return undefined;
  }
}

module.exports = { binary, platform };
