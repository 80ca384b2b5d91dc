"""Large collections under kill -9: what was acknowledged is there, and heads agree with elements."""

import random
import threading
import time
import unittest

import redis

from server import ServerTest

ROUNDS = 4
WRITERS = 4


class Writer(threading.Thread):
    """Changes elements of its own, and knows which of them were acknowledged."""

    def __init__(self, port, number, known):
        super().__init__()
        self.redis = redis.Redis(port=port)
        self.random = random.Random(number)
        self.number, self.known = number, known

    def run(self):
        try:
            while True:
                self.step()
        except redis.ConnectionError:
            pass

    def step(self):
        name = f"{self.number}-{self.random.randrange(400)}"
        # A change that nobody has acknowledged may have happened or not.
        self.known.pop(name, None)
        value = self.random.randrange(10**9)
        if self.random.random() < 0.3:
            pipeline = self.redis.pipeline()
            pipeline.hdel("h", name).srem("s", name).zrem("z", name)
            pipeline.execute()
            self.known[name] = None
        else:
            pipeline = self.redis.pipeline()
            pipeline.hset("h", name, value).sadd("s", name).zadd("z", {name: value})
            pipeline.execute()
            self.known[name] = value
        self.redis.rpush("l", name)
        if self.random.random() < 0.5:
            self.redis.lpop("l")


class KilledServer(ServerTest):
    def client(self):
        client = redis.Redis(port=self.server.port)
        deadline = time.monotonic() + 60
        while True:
            try:
                client.ping()
                return client
            except redis.ConnectionError:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)

    def test_heads_and_elements_agree_after_a_kill(self):
        known = [{} for _ in range(WRITERS)]
        for _ in range(ROUNDS):
            client = self.client()
            # All of them are large, and become so again and again.
            client.config_set("packed-bytes-max", 30)
            client.delete("l")
            writers = [Writer(self.server.port, n, known[n]) for n in range(WRITERS)]
            for writer in writers:
                writer.start()
            time.sleep(1.5)
            self.server.kill()
            for writer in writers:
                writer.join()
            self.server.start()
            self.check(self.client(), known)

    def check(self, client, known):
        fields = client.hgetall("h")
        self.assertEqual(client.hlen("h"), len(fields))
        members = client.smembers("s")
        self.assertEqual(client.scard("s"), len(members))
        scored = client.zrange("z", 0, -1, withscores=True)
        self.assertEqual(client.zcard("z"), len(scored))
        self.assertEqual(len({member for member, _ in scored}), len(scored))
        self.assertEqual(client.zcount("z", "-inf", "+inf"), len(scored))
        self.assertEqual(scored, sorted(scored, key=lambda of: (of[1], of[0])))
        for rank, (member, score) in enumerate(scored):
            if rank % 17 == 0:
                self.assertEqual(client.zrank("z", member), rank)
                self.assertEqual(client.zscore("z", member), score)
        elements = client.lrange("l", 0, -1)
        self.assertEqual(client.llen("l"), len(elements))
        # The three were changed together.
        self.assertEqual(set(fields), members)
        self.assertEqual({member: float(value) for member, value in fields.items()}, dict(scored))
        acknowledged = 0
        for writer in known:
            for name, value in writer.items():
                found = fields.get(name.encode())
                self.assertEqual(None if found is None else int(found), value, name)
                acknowledged += 1
        self.assertGreater(acknowledged, 100)


if __name__ == "__main__":
    unittest.main()
