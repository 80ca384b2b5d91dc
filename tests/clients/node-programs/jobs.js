// What the programs with queues have in common: jobs are added, some of them are done, the server is
// killed and started again, and the rest is done.

import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';

export const JOBS = 300;
// Number of jobs that are done before the server is killed.
const BEFORE = 100;
// Number of jobs that workers do at a time.
export const AT_A_TIME = 4;

export const port = Number(process.argv[2]);

const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

// Calls `work` until it does not fail: what it asks for is idempotent.
export async function insist(work) {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      await pause(50);
    }
  }
}

// Asks for the server to be killed, and returns when it runs again.
export async function restart() {
  const lines = createInterface({ input: process.stdin });
  const restarted = new Promise((resolve) => { lines.once('line', resolve); });
  process.stdout.write('RESTART\n');
  await restarted;
  lines.close();
}

// The jobs that were done, by number.
export class Done {
  counts = new Map();

  async note(number) {
    // A worker that is interrupted has done something before.
    await pause(2);
    this.counts.set(number, (this.counts.get(number) ?? 0) + 1);
  }

  async reach(count) {
    while (this.counts.size < count) await pause(10);
  }

  // Checks that all jobs were done; only those that were running when the server was killed, and so
  // could not say that they had ended, may have run twice.
  check() {
    assert.equal(this.counts.size, JOBS);
    const twice = [...this.counts.values()].filter((count) => count > 1);
    assert.ok(twice.length <= AT_A_TIME, `${twice.length} jobs were done again`);
    assert.ok(twice.every((count) => count === 2));
  }
}

// Adds jobs and waits until they are done; `add` adds the job of a number, `afterRestart` is called once
// the server runs again.
export async function doAll(done, add, afterRestart = () => {}) {
  for (let number = 0; number < JOBS; number += 1) {
    await insist(() => add(number));
    if (number === JOBS / 2) {
      await done.reach(BEFORE);
      await restart();
      afterRestart();
    }
  }
  await done.reach(JOBS);
  // What is done again is done soon.
  await pause(1000);
  done.check();
}
