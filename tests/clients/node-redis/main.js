// node-redis, unmodified: what an application does. Arguments: port, version of the protocol.
// The first wrong answer ends it with an error.
// It prints RESTART when the server may be killed, and goes on when it reads a line.

import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';
import { BasicClientSideCache, WatchError, createClient, defineScript } from 'redis';

const [port, protocol] = process.argv.slice(2).map(Number);

const ADD_BELOW = defineScript({
  NUMBER_OF_KEYS: 1,
  SCRIPT: `local now = redis.call('INCRBY', KEYS[1], ARGV[1])
           if now > tonumber(ARGV[2]) then
             redis.call('DECRBY', KEYS[1], ARGV[1])
             return -1
           end
           return now`,
  parseCommand(parser, key, by, most) {
    parser.pushKey(key);
    parser.push(String(by), String(most));
  },
  transformReply: (reply) => reply,
});

async function connect() {
  const client = createClient({ socket: { port }, RESP: protocol, scripts: { addBelow: ADD_BELOW } });
  // It reports each connection that is lost, and reconnects by itself.
  client.on('error', () => {});
  await client.connect();
  return client;
}

async function cache(client) {
  assert.equal(await client.get('page'), null);
  assert.equal(await client.set('page', 'text', { expiration: { type: 'EX', value: 100 } }), 'OK');
  assert.equal(await client.get('page'), 'text');
  const left = await client.ttl('page');
  assert.ok(left > 90 && left <= 100, `${left}`);
  assert.equal(await client.set('page', 'other', { condition: 'NX' }), null);
  assert.deepEqual(await client.mGet(['page', 'none']), ['text', null]);
  assert.equal(await client.hSet('user', { name: 'Ada', born: '1815' }), 2);
  assert.deepEqual({ ...await client.hGetAll('user') }, { name: 'Ada', born: '1815' });
  await client.zAdd('scores', [{ score: 1.5, value: 'a' }, { score: 0.5, value: 'b' }]);
  assert.deepEqual((await client.zRangeWithScores('scores', 0, -1)).map((of) => ({ ...of })),
    [{ value: 'b', score: 0.5 }, { value: 'a', score: 1.5 }]);
  await assert.rejects(client.incr('page'), /not an integer/);
  assert.equal(await client.del(['page', 'user', 'scores']), 3);
}

async function watchedCounter() {
  const add = async () => {
    const client = await connect();
    for (let left = 20; left > 0;) {
      await client.watch('counter');
      const value = Number(await client.get('counter') ?? 0);
      try {
        await client.multi().set('counter', String(value + 1)).exec();
        left -= 1;
      } catch (error) {
        assert.ok(error instanceof WatchError, error);
      }
    }
    client.destroy();
  };
  await Promise.all(Array.from({ length: 5 }, add));
}

async function bulkLoad(client) {
  const sets = Array.from({ length: 10000 }, (_, n) => client.set(`bulk:${n}`, `${n}`));
  await Promise.all(sets);
  const found = new Set();
  for await (const keys of client.scanIterator({ MATCH: 'bulk:*', COUNT: 1000 })) {
    keys.forEach((key) => found.add(key));
  }
  assert.equal(found.size, 10000);
  assert.equal(await client.unlink([...found]), 10000);
}

async function messages(client) {
  const subscriber = await connect();
  const got = [];
  let all;
  const done = new Promise((resolve) => { all = resolve; });
  const note = (message, channel) => {
    got.push(`${channel} ${message}`);
    if (got.length === 200) all();
  };
  await subscriber.subscribe('news', note);
  await subscriber.pSubscribe('n*', note);
  for (let n = 0; n < 100; n += 1) assert.equal(await client.publish('news', `${n}`), 2);
  await done;
  const expected = Array.from({ length: 100 }, (_, n) => [`news ${n}`, `news ${n}`]).flat();
  assert.deepEqual(got, expected);
  await subscriber.unsubscribe('news');
  await subscriber.pUnsubscribe('n*');
  assert.equal(await client.publish('news', 'nobody'), 0);
  subscriber.destroy();
}

async function queue(client) {
  const consumer = await connect();
  const taken = (async () => {
    const got = [];
    while (got.length < 200) got.push((await consumer.brPop('jobs', 10)).element);
    return got;
  })();
  for (let n = 0; n < 200; n += 1) await client.lPush('jobs', `${n}`);
  assert.deepEqual(await taken, Array.from({ length: 200 }, (_, n) => `${n}`));
  assert.equal(await consumer.blPop('jobs', 0.05), null);
  consumer.destroy();
}

async function streamGroup(client) {
  await client.xGroupCreate('log', 'readers', '$', { MKSTREAM: true });
  const read = async (name) => {
    const consumer = await connect();
    const seen = [];
    for (;;) {
      const reply = await consumer.xReadGroup('readers', name, { key: 'log', id: '>' },
        { COUNT: 10, BLOCK: 500 });
      if (reply === null) break;
      for (const { id, message } of reply[0].messages) {
        seen.push(Number(message.n));
        assert.equal(await consumer.xAck('log', 'readers', id), 1);
      }
    }
    consumer.destroy();
    return seen;
  };
  const readers = [read('one'), read('two')];
  for (let n = 0; n < 200; n += 1) await client.xAdd('log', '*', { n: `${n}` });
  const seen = (await Promise.all(readers)).flat().sort((a, b) => a - b);
  assert.deepEqual(seen, Array.from({ length: 200 }, (_, n) => n));
  assert.equal((await client.xPending('log', 'readers')).pending, 0);
}

async function script(client) {
  assert.equal(await client.addBelow('limit', 3, 5), 3);
  assert.equal(await client.addBelow('limit', 3, 5), -1);
  await client.scriptFlush();
  // It meets NOSCRIPT, and sends the text.
  assert.equal(await client.addBelow('limit', 2, 5), 5);
}

async function largeValues(client) {
  const value = 'pando'.repeat(1 << 18);
  await client.set('large', value);
  assert.equal(await client.get('large'), value);
  assert.equal(await client.strLen('large'), value.length);
  assert.equal(await client.del('large'), 1);
}

// A client with a cache on its own side, beside another that writes.
class Cached {
  keys = Array.from({ length: 20 }, (_, n) => `cached:${n}`);

  cache = new BasicClientSideCache({ ttl: 0, maxEntries: 0 });

  async open(writer) {
    this.writer = writer;
    const client = createClient({ socket: { port }, RESP: 3, clientSideCache: this.cache });
    client.on('error', () => {});
    this.client = await client.connect();
  }

  write(value) {
    return Promise.all(this.keys.map((key) => this.writer.set(key, value)));
  }

  // Waits until no value is stale: what was told is on its way.
  async becomes(value) {
    const deadline = Date.now() + 20000;
    for (let got; ;) {
      try {
        got = await Promise.all(this.keys.map((key) => this.client.get(key)));
        if (got.every((one) => one === value)) return;
      } catch (error) {
        got = error;
      }
      assert.ok(Date.now() < deadline, `${got} and not ${value}`);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }

  // What is read comes from the cache; what another changes does not.
  async check(name) {
    for (let n = 0; n < 20; n += 1) {
      await this.write(`${name} ${n}`);
      await this.becomes(`${name} ${n}`);
    }
    const asked = async () => (await this.writer.info('commandstats')).match(/cmdstat_get:calls=\d+/)[0];
    const before = await asked();
    await this.becomes(`${name} 19`);
    assert.equal(await asked(), before);
    await this.writer.del(this.keys);
    await this.becomes(null);
    await this.write(`kept ${name}`);
    await this.becomes(`kept ${name}`);
  }
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

const client = await connect();
await client.flushAll();
await cache(client);
await watchedCounter();
assert.equal(await client.get('counter'), '100');
await bulkLoad(client);
await messages(client);
await queue(client);
await streamGroup(client);
await script(client);
await largeValues(client);
const cached = new Cached();
if (protocol === 3) {
  await cached.open(client);
  await cached.check('before');
}
await restart(client);
if (protocol === 3) {
  // What was kept in the cache of a connection that is gone may be stale now.
  await cached.write('changed');
  await cached.becomes('changed');
  await cached.check('after');
  cached.client.destroy();
}
client.destroy();
