// rate-limiter-flexible, unmodified: limits hold beside many callers, and after a restart.

import assert from 'node:assert/strict';
import { Redis } from 'ioredis';
import { RateLimiterRedis, RateLimiterRes } from 'rate-limiter-flexible';
import { insist, port, restart } from './jobs.js';

const connect = () => {
  const client = new Redis({ port, retryStrategy: () => 50, maxRetriesPerRequest: 1 });
  client.on('error', () => {});
  return client;
};

async function consume(limiter, key) {
  try {
    await limiter.consume(key);
    return true;
  } catch (refused) {
    if (refused instanceof RateLimiterRes) return false;
    throw refused;
  }
}

const clients = Array.from({ length: 4 }, connect);
const limiters = clients.map((storeClient) => (
  new RateLimiterRedis({ storeClient, points: 100, duration: 600, blockDuration: 600 })));
const calls = Array.from({ length: 400 }, (_, number) => consume(limiters[number % 4], 'user'));
const allowed = (await Promise.all(calls)).filter((is) => is);
assert.equal(allowed.length, 100);
await restart();
assert.equal(await insist(() => consume(limiters[0], 'user')), false);
assert.equal(await insist(() => consume(limiters[1], 'other')), true);
const state = await insist(() => limiters[2].get('user'));
assert.ok(state.msBeforeNext > 500_000 && state.remainingPoints === 0, `${state}`);
process.exit(0);
