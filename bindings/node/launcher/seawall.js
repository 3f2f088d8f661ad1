#!/usr/bin/env node
// Starts the seawall binary in its own place: same arguments, same stdin, stdout and stderr, same end.
'use strict';

const { spawn } = require('node:child_process');
const { constants } = require('node:os');
const { binary } = require('./platform.js');

const program = binary();
if (program === undefined) {
  process.exit(4);
}

// A session of its own: a signal of the terminal reaches the binary once, through the launcher. The binary ends by itself when
// the launcher is killed (--launcher).
const child = spawn(program, ['--launcher', String(process.pid), ...process.argv.slice(2)], {
  stdio: 'inherit',
  detached: true,
});

for (const signal of ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM']) {
  process.on(signal, () => child.kill(signal));
}

child.on('error', (error) => {
  console.error(`seawall: cannot start ${program}: ${error.message}`);
  process.exit(4);
});

child.on('exit', (code, signal) => {
  if (signal === null) {
    process.exit(code);
  }
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  // A signal that node does not die of.
  setTimeout(() => process.exit(128 + constants.signals[signal]), 100);
});
