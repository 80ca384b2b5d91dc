"""redis-py with its cache on the side of the client, beside other writers: once it is quiet, no value is stale."""

import random
import threading
import time
import unittest

import redis
import redis.connection

try:
    from redis.cache import CacheConfig

    # It wants Redis 7.4, but needs nothing that 7.2 does not have.
    redis.connection.CacheProxyConnection.MIN_ALLOWED_VERSION = "7.2.0"
except ImportError:
    CacheConfig = None

from server import ServerTest

KEYS = [f"key{number}" for number in range(20)]
READERS = 6
ROUNDS = 25


@unittest.skipIf(CacheConfig is None, "this redis-py has no cache")
class TestClientSideCache(ServerTest):
    def client(self, **options):
        client = redis.Redis(port=self.server.port, protocol=3, decode_responses=True, **options)
        self.addCleanup(client.close)
        return client

    def test_reads_come_from_the_cache_until_a_change(self):
        cached, other = self.client(cache_config=CacheConfig()), self.client()
        other.set("a", "1")
        for _ in range(3):
            self.assertEqual(cached.get("a"), "1")
        calls = lambda: other.info("commandstats")["cmdstat_get"]["calls"]
        before = calls()
        self.assertEqual(cached.get("a"), "1")
        self.assertEqual(calls(), before, "it was not asked for")
        other.set("a", "2")
        self.assert_soon(cached, "2")
        cached.set("a", "3")
        self.assert_soon(cached, "3")
        other.flushall()
        self.assert_soon(cached, None)

    def assert_soon(self, client, value):
        """What tells that the key has changed may still be on its way when who has changed it has its reply."""
        limit = time.monotonic() + 10
        while client.get("a") != value:
            self.assertLess(time.monotonic(), limit)

    def test_no_value_is_stale_once_it_is_quiet(self):
        readers = [self.client(cache_config=CacheConfig(max_size=1000)) for _ in range(READERS)]
        writers = [self.client() for _ in range(3)]
        plain = self.client()
        failed = []

        def read(client, stop, seed):
            choose = random.Random(seed)
            try:
                while not stop.is_set():
                    if choose.random() < 0.8:
                        client.get(choose.choice(KEYS))
                    else:
                        client.mget(choose.sample(KEYS, 3))
            except Exception as error:
                failed.append(error)

        def write(client, seed):
            choose = random.Random(seed)
            try:
                for number in range(60):
                    if choose.random() < 0.6:
                        client.set(choose.choice(KEYS), f"{seed} {number}")
                    elif choose.random() < 0.5:
                        client.mset({key: f"{seed} {number}" for key in choose.sample(KEYS, 4)})
                    elif choose.random() < 0.9:
                        with client.pipeline() as pipeline:
                            for key in choose.sample(KEYS, 3):
                                pipeline.set(key, f"{seed} {number}")
                            pipeline.execute()
                    else:
                        client.delete(*choose.sample(KEYS, 2))
            except Exception as error:
                failed.append(error)

        for number in range(ROUNDS):
            stop = threading.Event()
            reading = [threading.Thread(target=read, args=(client, stop, number * 100 + place)) for place, client in enumerate(readers)]
            writing = [threading.Thread(target=write, args=(client, number * 1000 + place)) for place, client in enumerate(writers)]
            for thread in reading + writing:
                thread.start()
            for thread in writing:
                thread.join()
            stop.set()
            for thread in reading:
                thread.join()
            self.assertEqual(failed, [])
            truth = dict(zip(KEYS, plain.mget(KEYS)))
            for reader in readers:
                limit = time.monotonic() + 10
                # What was told is on its way.
                while {key: reader.get(key) for key in KEYS} != truth:
                    self.assertLess(time.monotonic(), limit, f"round {number}")
                    time.sleep(0.05)


if __name__ == "__main__":
    unittest.main()
