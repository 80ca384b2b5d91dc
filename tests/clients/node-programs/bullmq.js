// BullMQ, unmodified: a queue with a worker, while the server is killed and started again.

import assert from 'node:assert/strict';
import { Queue, Worker } from 'bullmq';
import { AT_A_TIME, Done, doAll, insist, port } from './jobs.js';

const connection = { port, retryStrategy: () => 50 };
const done = new Done();
const queue = new Queue('jobs', { connection });
const worker = new Worker('jobs', (job) => done.note(job.data.number), {
  connection: { ...connection, maxRetriesPerRequest: null },
  concurrency: AT_A_TIME,
  stalledInterval: 1000,
  lockDuration: 1500,
});
// It reports each connection that is lost, and reconnects by itself.
queue.on('error', () => {});
worker.on('error', () => {});
await insist(() => queue.add('later', { number: 0 }, { jobId: 'later-0', delay: 300 }));
await doAll(done, (number) => (
  queue.add('job', { number }, { jobId: `job-${number}`, priority: number % 3 })));
const counts = await queue.getJobCounts();
assert.equal(counts.completed, 301, JSON.stringify(counts));
assert.equal(counts.active + counts.waiting + counts.delayed + counts.failed, 0);
await worker.close();
await queue.close();
process.exit(0);
