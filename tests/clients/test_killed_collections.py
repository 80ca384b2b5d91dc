"""Collections of all types while the server is killed and started again: what was acknowledged is there,
and a command that was in flight has happened as a whole or not at all. The limit of packed collections is
low, so that both forms and the way between them are met. A queue loses and doubles nothing.

ROUNDS: number of kills (3); SEED: of the random choices."""

import os
import random
import subprocess
import threading
import time

import redis

from server import PANDO, ServerTest

ROUNDS = int(os.environ.get("ROUNDS", "3"))
SEED = int(os.environ.get("SEED", "1"))
CLIENTS = 6
# Seconds between a start and the kill.
TIME = 1.5


def text(value):
    return str(value).encode()


class Model:
    """The collections of one client: what they must be, and what the command in flight would make of
    them. Numbers are short or, seldom, long enough for rows of their own."""

    def __init__(self, number, rng):
        self.rng = rng
        self.names = {kind: f"{kind}:{number}" for kind in ["hash", "list", "set", "zset", "log"]}
        self.state = {"hash": {}, "list": [], "set": set(), "zset": {}, "log": []}
        self.next = 0

    def element(self):
        self.next += 1
        pad = "x" * self.rng.choice([0, 0, 10, 10, 40, 400])
        return text(f"{self.rng.randrange(120)}{pad}")

    def step(self):
        """Chooses a command; returns its kind, its arguments, and the state behind it."""
        kind = self.rng.choice(list(self.state))
        key, now = self.names[kind], self.state[kind]
        elements = [self.element() for _ in range(self.rng.choice([1, 1, 1, 3, 30]))]
        if self.rng.random() < 0.02:
            return kind, ["DEL", key], type(now)()
        return kind, *getattr(self, kind)(key, now, elements)

    def hash(self, key, now, elements):
        if self.rng.random() < 0.6:
            pairs = {element: text(self.rng.randrange(1000)) for element in elements}
            return ["HSET", key, *[part for pair in pairs.items() for part in pair]], {**now, **pairs}
        left = {field: value for field, value in now.items() if field not in elements}
        return ["HDEL", key, *elements], left

    def list(self, key, now, elements):
        choice = self.rng.randrange(6)
        if choice == 0:
            return ["LPUSH", key, *elements], [*reversed(elements), *now]
        if choice in (1, 2):
            return ["RPUSH", key, *elements], [*now, *elements]
        if choice == 3:
            return ["LPOP", key, len(elements)], now[len(elements):]
        if choice == 4:
            return ["LTRIM", key, 0, 150], now[:151]
        return ["LREM", key, 1, elements[0]], without_first(now, elements[0])

    def set(self, key, now, elements):
        if self.rng.random() < 0.6:
            return ["SADD", key, *elements], now | set(elements)
        return ["SREM", key, *elements], now - set(elements)

    def zset(self, key, now, elements):
        choice = self.rng.randrange(5)
        if choice < 3:
            scores = {element: self.rng.randrange(50) for element in elements}
            parts = [part for element, score in scores.items() for part in (score, element)]
            return ["ZADD", key, *parts], {**now, **scores}
        if choice == 3:
            left = {element: score for element, score in now.items() if element not in elements}
            return ["ZREM", key, *elements], left
        least = self.rng.randrange(50)
        left = {element: score for element, score in now.items() if not least <= score <= least + 2}
        return ["ZREMRANGEBYSCORE", key, least, least + 2], left

    def log(self, key, now, elements):
        if self.rng.random() < 0.8:
            # Ids of its own: what was added can be known without the reply.
            entry = (text(f"{self.next}-1"), elements[0])
            return ["XADD", key, entry[0], "f", entry[1]], [*now, entry]
        return ["XTRIM", key, "MAXLEN", 100], now[-100:]


def without_first(values, value):
    place = values.index(value) if value in values else len(values)
    return values[:place] + values[place + 1:]


def found(client, model):
    """Reads all collections of a model, each in two ways that must agree."""
    names = model.names
    of_log = client.xrange(names["log"])
    return {
        "hash": client.hgetall(names["hash"]),
        "list": client.lrange(names["list"], 0, -1),
        "set": client.smembers(names["set"]),
        "zset": dict(client.zrange(names["zset"], 0, -1, withscores=True)),
        "log": [(entry, fields[b"f"]) for entry, fields in of_log],
    }, {
        "hash": client.hlen(names["hash"]),
        "list": client.llen(names["list"]),
        "set": client.scard(names["set"]),
        "zset": client.zcount(names["zset"], "-inf", "+inf"),
        "log": client.xlen(names["log"]),
    }


class KilledCollections(ServerTest):
    # The test has written collections whose elements have rows of their own.
    has_large = False

    def client(self):
        return redis.Redis(port=self.server.port, socket_timeout=60)

    def tearDown(self):
        self.assertEqual(self.server.stop(), 0)
        checked = subprocess.run(
            [PANDO, "verify", self.directory.name + "/data", "--rows"], capture_output=True,
            text=True)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        if self.has_large:
            self.assertNotIn(" 0 large collections", checked.stdout)
        super().tearDown()

    def round(self, workers):
        """Runs workers beside each other until the server was killed, and starts it again."""
        failures = []

        def guarded(work):
            try:
                work(self.client())
            except redis.ConnectionError:
                pass
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=guarded, args=(work,)) for work in workers]
        for thread in threads:
            thread.start()
        time.sleep(TIME)
        self.server.kill()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.server.start()

    def test_acknowledged_changes_are_there_and_others_whole_or_not_at_all(self):
        client = self.client()
        client.config_set("packed-bytes-max", 300)
        models = [Model(number, random.Random(SEED * 100 + number)) for number in range(CLIENTS)]
        done = 0

        def work(model):
            def run(client):
                nonlocal done
                model.flying = None
                while True:
                    kind, command, after = model.step()
                    model.flying = (kind, command, after)
                    client.execute_command(*command)
                    model.state[kind] = after
                    model.flying = None
                    done += 1
            return run

        for number in range(ROUNDS):
            self.round([work(model) for model in models])
            client = self.client()
            client.config_set("packed-bytes-max", 300)
            for model in models:
                self.compare(number, client, model)
        self.assertGreater(done, 100 * ROUNDS)
        self.has_large = True

    def compare(self, number, client, model):
        state, lengths = found(client, model)
        for kind, value in state.items():
            self.assertEqual(lengths[kind], len(value), kind)
            if value == model.state[kind]:
                continue
            flying = model.flying
            happened = flying is not None and flying[0] == kind and flying[2] == value
            self.assertTrue(happened, (
                f"round {number}, seed {SEED}: {model.names[kind]} is neither as before nor as behind "
                f"{flying and flying[1]}:\n{value}\n{model.state[kind]}"))
            model.state[kind] = value

    def test_a_queue_loses_and_doubles_nothing(self):
        self.client().config_set("packed-bytes-max", 300)
        # What was added and acknowledged, or was on its way; what was worked at; what was given back.
        added, flying, begun, closed = [], {}, set(), set()

        def produce(producer):
            def run(client):
                while True:
                    job = text(f"{producer}:{len(added)}:{time.monotonic_ns()}")
                    flying[producer] = job
                    client.lpush("jobs", job)
                    added.append(job)
                    flying[producer] = None
            return run

        def consume(consumer):
            own = f"own:{consumer}"

            def run(client):
                # What it had taken before it lost the server.
                for job in client.lrange(own, 0, -1):
                    finish(client, job)
                while True:
                    job = client.blmove("jobs", own, 1, "RIGHT", "LEFT")
                    if job is not None:
                        finish(client, job)

            def finish(client, job):
                begun.add(job)
                self.assertEqual(client.lrem(own, 1, job), 1)
                closed.add(job)

            return run

        for _ in range(ROUNDS):
            consumers = [consume(number) for number in range(3)]
            self.round([produce("a"), produce("b"), *consumers])
            client = self.client()
            places = [client.lrange(key, 0, -1) for key in ["jobs", "own:0", "own:1", "own:2"]]
            waiting = [job for place in places for job in place]
            self.assertEqual(len(waiting), len(set(waiting)), "a job is there twice")
            self.assertEqual(closed & set(waiting), set(), "what was taken is there again")
            for job in added:
                self.assertTrue(job in begun or job in waiting, f"{job} is lost")
            unknown = set(waiting) - set(added) - {job for job in flying.values() if job}
            self.assertEqual(unknown, set())
            # One whose reply was lost is there all the same.
            added.extend(job for job in flying.values() if job in waiting or job in begun)
            flying.clear()
        self.assertGreater(len(closed), 20 * ROUNDS)
