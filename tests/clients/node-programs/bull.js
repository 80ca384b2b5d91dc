// Bull, unmodified: a queue with a worker, while the server is killed and started again.

import assert from 'node:assert/strict';
import Bull from 'bull';
import { AT_A_TIME, Done, doAll, port } from './jobs.js';

const done = new Done();
const queue = new Bull('jobs', {
  redis: { port, retryStrategy: () => 50 },
  settings: { stalledInterval: 1000, lockDuration: 1500 },
});
// It reports each connection that is lost, and reconnects by itself.
queue.on('error', () => {});
queue.process(AT_A_TIME, (job) => done.note(job.data.number));
await doAll(done, (number) => queue.add({ number }, { jobId: `job-${number}` }));
const counts = await queue.getJobCounts();
assert.equal(counts.completed, 300, JSON.stringify(counts));
assert.equal(counts.active + counts.waiting + counts.failed, 0);
process.exit(0);
