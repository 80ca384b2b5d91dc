// ioredis, unmodified: what an application does. Arguments: port, version of the protocol.
// The first wrong answer ends it with an error.
// It prints RESTART when the server may be killed, and goes on when it reads a line.

import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';
import { Redis } from 'ioredis';

const [port] = process.argv.slice(2).map(Number);

const ADD_BELOW = `
  local now = redis.call('INCRBY', KEYS[1], ARGV[1])
  if now > tonumber(ARGV[2]) then
    redis.call('DECRBY', KEYS[1], ARGV[1])
    return -1
  end
  return now`;

function connect() {
  const client = new Redis({ port, maxRetriesPerRequest: 1, retryStrategy: () => 50 });
  // It reports each connection that is lost, and reconnects by itself.
  client.on('error', () => {});
  client.defineCommand('addBelow', { numberOfKeys: 1, lua: ADD_BELOW });
  return client;
}

async function cache(client) {
  assert.equal(await client.get('page'), null);
  assert.equal(await client.set('page', 'text', 'EX', 100), 'OK');
  assert.equal(await client.get('page'), 'text');
  const left = await client.ttl('page');
  assert.ok(left > 90 && left <= 100, `${left}`);
  assert.equal(await client.set('page', 'other', 'NX'), null);
  assert.deepEqual(await client.mget('page', 'none'), ['text', null]);
  assert.equal(await client.hset('user', { name: 'Ada', born: '1815' }), 2);
  assert.deepEqual(await client.hgetall('user'), { name: 'Ada', born: '1815' });
  await client.zadd('scores', 1.5, 'a', 0.5, 'b');
  assert.deepEqual(await client.zrange('scores', 0, -1, 'WITHSCORES'), ['b', '0.5', 'a', '1.5']);
  await assert.rejects(client.incr('page'), /not an integer/);
  assert.equal(await client.del('page', 'user', 'scores'), 3);
}

async function watchedCounter() {
  const add = async () => {
    const client = connect();
    for (let left = 20; left > 0;) {
      await client.watch('counter');
      const value = Number(await client.get('counter') ?? 0);
      const replies = await client.multi().set('counter', value + 1).exec();
      if (replies !== null) left -= 1;
    }
    client.disconnect();
  };
  await Promise.all(Array.from({ length: 5 }, add));
}

async function bulkLoad(client) {
  const pipeline = client.pipeline();
  for (let n = 0; n < 10000; n += 1) pipeline.set(`bulk:${n}`, n);
  const replies = await pipeline.exec();
  assert.ok(replies.every(([error, reply]) => error === null && reply === 'OK'));
  const found = new Set();
  for await (const keys of client.scanStream({ match: 'bulk:*', count: 1000 })) {
    keys.forEach((key) => found.add(key));
  }
  assert.equal(found.size, 10000);
  assert.equal(await client.unlink([...found]), 10000);
}

async function messages(client) {
  const subscriber = connect();
  const got = [];
  let all;
  const done = new Promise((resolve) => { all = resolve; });
  const note = (channel, message) => {
    got.push(`${channel} ${message}`);
    if (got.length === 200) all();
  };
  subscriber.on('message', note);
  subscriber.on('pmessage', (_pattern, channel, message) => note(channel, message));
  await subscriber.subscribe('news');
  await subscriber.psubscribe('n*');
  for (let n = 0; n < 100; n += 1) assert.equal(await client.publish('news', n), 2);
  await done;
  const expected = Array.from({ length: 100 }, (_, n) => [`news ${n}`, `news ${n}`]).flat();
  assert.deepEqual(got, expected);
  await subscriber.unsubscribe('news');
  await subscriber.punsubscribe('n*');
  assert.equal(await client.publish('news', 'nobody'), 0);
  subscriber.disconnect();
}

async function queue(client) {
  const consumer = connect();
  const taken = (async () => {
    const got = [];
    while (got.length < 200) got.push((await consumer.brpop('jobs', 10))[1]);
    return got;
  })();
  for (let n = 0; n < 200; n += 1) await client.lpush('jobs', n);
  assert.deepEqual(await taken, Array.from({ length: 200 }, (_, n) => `${n}`));
  assert.equal(await consumer.blpop('jobs', 0.05), null);
  consumer.disconnect();
}

async function streamGroup(client) {
  await client.xgroup('CREATE', 'log', 'readers', '$', 'MKSTREAM');
  const read = async (name) => {
    const consumer = connect();
    const seen = [];
    for (;;) {
      const reply = await consumer.xreadgroup('GROUP', 'readers', name, 'COUNT', 10,
        'BLOCK', 500, 'STREAMS', 'log', '>');
      if (reply === null) break;
      for (const [id, fields] of reply[0][1]) {
        seen.push(Number(fields[1]));
        assert.equal(await consumer.xack('log', 'readers', id), 1);
      }
    }
    consumer.disconnect();
    return seen;
  };
  const readers = [read('one'), read('two')];
  for (let n = 0; n < 200; n += 1) await client.xadd('log', '*', 'n', n);
  const seen = (await Promise.all(readers)).flat().sort((a, b) => a - b);
  assert.deepEqual(seen, Array.from({ length: 200 }, (_, n) => n));
  assert.equal((await client.xpending('log', 'readers'))[0], 0);
}

async function script(client) {
  assert.equal(await client.addBelow('limit', 3, 5), 3);
  assert.equal(await client.addBelow('limit', 3, 5), -1);
  await client.script('FLUSH');
  // It meets NOSCRIPT, and sends the text.
  assert.equal(await client.addBelow('limit', 2, 5), 5);
}

async function largeValues(client) {
  const value = Buffer.alloc(1 << 20, 'pando');
  await client.set('large', value);
  assert.ok(value.equals(await client.getBuffer('large')));
  assert.equal(await client.strlen('large'), value.length);
  assert.equal(await client.del('large'), 1);
}

async function restart(client) {
  let acknowledged = await client.incr('kept');
  process.stdout.write('RESTART\n');
  const lines = createInterface({ input: process.stdin });
  let restarted = false;
  lines.once('line', () => { restarted = true; lines.close(); });
  for (let after = 0; after < 20;) {
    try {
      const now = await client.incr('kept');
      assert.ok(now > acknowledged, `${now} after ${acknowledged}`);
      acknowledged = now;
      if (restarted) after += 1;
    } catch (error) {
      if (error instanceof assert.AssertionError) throw error;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

const client = connect();
await client.flushall();
await cache(client);
await watchedCounter();
assert.equal(await client.get('counter'), '100');
await bulkLoad(client);
await messages(client);
await queue(client);
await streamGroup(client);
await script(client);
await largeValues(client);
await restart(client);
client.disconnect();
