"""Streams under kill -9: what was added is there, and is either to be delivered or pending."""

import threading
import time
import unittest

import redis

from server import ServerTest

ROUNDS = 4
CONSUMERS = 3


class Producer(threading.Thread):
    """Adds entries, and knows which of them were acknowledged."""

    def __init__(self, port, known):
        super().__init__()
        self.redis, self.known = redis.Redis(port=port), known

    def run(self):
        try:
            while True:
                self.known.append(self.redis.xadd("s", {"field": len(self.known)}))
        except redis.ConnectionError:
            pass


class Consumer(threading.Thread):
    """Reads entries and acknowledges some, and knows what it has got and what was acknowledged."""

    def __init__(self, port, number, got, done):
        super().__init__()
        self.redis, self.name = redis.Redis(port=port), f"c{number}"
        self.got, self.done = got, done

    def run(self):
        try:
            while True:
                for _, entries in self.redis.xreadgroup("g", self.name, {"s": ">"}, count=5, block=50):
                    for entry, _ in entries:
                        self.got.append(entry)
                        if int(entry.split(b"-")[1]) % 3 or len(self.got) % 2:
                            # It may have happened if nobody answers.
                            self.done[entry] = False
                            self.redis.xack("s", "g", entry)
                            self.done[entry] = True
        except redis.ConnectionError:
            pass


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

    def test_entries_are_delivered_or_pending_and_never_neither(self):
        known, got, done = [], [[] for _ in range(CONSUMERS)], {}
        self.client().xgroup_create("s", "g", "0", mkstream=True)
        for _ in range(ROUNDS):
            threads = [Producer(self.server.port, known)]
            threads += [Consumer(self.server.port, n, got[n], done) for n in range(CONSUMERS)]
            for thread in threads:
                thread.start()
            time.sleep(1.5)
            self.server.kill()
            for thread in threads:
                thread.join()
            self.server.start()
            self.check(self.client(), known, got, done)

    def check(self, client, known, got, done):
        entries = [entry for entry, _ in client.xrange("s")]
        self.assertEqual(client.xlen("s"), len(entries))
        self.assertLessEqual(set(known), set(entries))
        group = client.xinfo_groups("s")[0]
        key = lambda entry: tuple(int(part) for part in entry.split(b"-"))
        delivered = [entry for entry in entries if key(entry) <= key(group["last-delivered-id"])]
        pending = {row["message_id"]: row["consumer"] for row in client.xpending_range("s", "g", "-", "+", 10**6)}
        self.assertEqual(group["pending"], len(pending))
        # What was delivered and is not pending was acknowledged, or somebody has asked for that.
        for entry in delivered:
            if entry not in pending:
                self.assertIn(entry, done)
        # What a client knows to be acknowledged is pending no longer.
        self.assertFalse(pending.keys() & {entry for entry, is_known in done.items() if is_known})
        for number, entries_of_one in enumerate(got):
            for entry in entries_of_one:
                self.assertLessEqual(key(entry), key(group["last-delivered-id"]))
                if entry not in done:
                    self.assertEqual(pending[entry], f"c{number}".encode())
        # Both lists of what is pending are the same.
        by_consumer = {}
        for consumer in client.xinfo_consumers("s", "g"):
            name = consumer["name"]
            history = client.xreadgroup("g", name, {"s": "0"})[0][1]
            self.assertEqual(consumer["pending"], len(history))
            by_consumer.update({entry: name for entry, _ in history})
        self.assertEqual(by_consumer, pending)
        everywhere = [entry for one in got for entry in one]
        self.assertEqual(len(everywhere), len(set(everywhere)))
        self.assertGreater(len(delivered), 50)


if __name__ == "__main__":
    unittest.main()
