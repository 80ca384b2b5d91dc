// socket.io over both of its adapters, unmodified: what one server sends to all arrives at the clients of
// the other one, also after the server of the adapter was killed and started again.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { createAdapter as overChannels } from '@socket.io/redis-adapter';
import { createAdapter as overStreams } from '@socket.io/redis-streams-adapter';
import { createClient } from 'redis';
import { Server } from 'socket.io';
import { io } from 'socket.io-client';
import { port, restart } from './jobs.js';

const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

async function connect() {
  const client = createClient({ socket: { port, reconnectStrategy: () => 50 } });
  client.on('error', () => {});
  await client.connect();
  return client;
}

async function start(adapter) {
  const http = createServer();
  const server = new Server(http, { adapter });
  await new Promise((resolve) => { http.listen(0, '127.0.0.1', resolve); });
  const client = io(`http://127.0.0.1:${http.address().port}`, { transports: ['websocket'] });
  await new Promise((resolve) => { client.once('connect', resolve); });
  return { server, client };
}

const adapters = {
  channels: async () => overChannels(await connect(), await connect()),
  streams: async () => overStreams(await connect(), { streamName: 'socket.io' }),
};
const pairs = [];
for (const [name, adapter] of Object.entries(adapters)) {
  pairs.push({ name, nodes: [await start(await adapter()), await start(await adapter())] });
}

// Sends until the other server's client has got it: what is sent while the server starts may be lost.
async function reaches({ name, nodes: [from, to] }, text) {
  let got = false;
  to.client.once(text, () => { got = true; });
  for (let tries = 0; !got; tries += 1) {
    assert.ok(tries < 100, `${name}: ${text} did not arrive`);
    from.server.emit(text);
    await pause(100);
  }
}

for (const pair of pairs) await reaches(pair, 'before');
await restart();
for (const pair of pairs) await reaches(pair, 'after');
for (const { name, nodes } of pairs) {
  const sockets = await nodes[0].server.fetchSockets();
  assert.equal(sockets.length, 2, name);
}
process.exit(0);
