// The programs of the README, run as they stand, and what their comments say that they print.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const programs = [...readFileSync('README.md', 'utf8').matchAll(/```js\n(.*?)```/gs)].map(([, program]) => program);

test('the README has programs', () => assert.equal(programs.length, 3));

for (const [place, program] of programs.entries()) {
  test(`program ${place + 1} of the README prints what it says`, () => {
    const ran = spawnSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8', timeout: 30_000 });
    assert.equal(ran.status, 0, ran.stderr);
    const promised = [...program.matchAll(/console\.log\(.*; \/\/ (.*)$/gm)].map(([, line]) => line);
    assert.deepEqual(ran.stdout.split('\n').slice(0, promised.length), promised);
  });
}
