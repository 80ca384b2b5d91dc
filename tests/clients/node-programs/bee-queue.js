// Bee-Queue, unmodified: a queue with a worker, while the server is killed and started again.

import assert from 'node:assert/strict';
import Queue from 'bee-queue';
import { AT_A_TIME, Done, doAll, port } from './jobs.js';

const done = new Done();

function open() {
  const queue = new Queue('jobs', {
    redis: { port, retry_strategy: () => 50 },
    stallInterval: 1500,
    removeOnSuccess: false,
  });
  // It reports each connection that is lost, and reconnects by itself.
  queue.on('error', () => {});
  queue.process(AT_A_TIME, (job) => done.note(job.data.number));
  return queue;
}

let queue = open();
const stalled = setInterval(() => queue.checkStalledJobs().catch(() => {}), 1000);
// It loads its scripts once, and does not see that a server that was started again has none.
const reopen = () => {
  queue.close(1).catch(() => {});
  queue = open();
};
await doAll(done, (number) => queue.createJob({ number }).setId(`job-${number}`).save(), reopen);
// Jobs that could not say that they had ended are done again when they have stalled.
for (let tries = 0; (await queue.checkHealth()).succeeded < 300; tries += 1) {
  assert.ok(tries < 200, JSON.stringify(await queue.checkHealth()));
  await new Promise((resolve) => { setTimeout(resolve, 100); });
}
clearInterval(stalled);
done.check();
const counts = await queue.checkHealth();
assert.equal(counts.waiting + counts.active + counts.failed, 0, JSON.stringify(counts));
process.exit(0);
