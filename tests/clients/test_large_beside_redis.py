"""Large collections: the same commands to pando and to redis-server, and the same replies.

Collections of 16,384 elements and more are read, merged, sorted and stored by threads, in other
ways than small ones. Needs a redis-server (Debian: redis-server); COMMANDS=NUMBER, SEED=NUMBER and
MEMORY=BYTES choose others than the usual random commands, and more memory than there can be least.
"""

import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

from server import ServerTest
from test_beside_redis import Connection, as_bytes

REDIS = shutil.which("redis-server")
COMMANDS = int(os.environ.get("COMMANDS", 30))
SEED = int(os.environ.get("SEED", 1))

# Those that have no order in Redis: sorted before they are compared, in groups of so many.
UNORDERED = {"SMEMBERS": 1, "SINTER": 1, "SUNION": 1, "SDIFF": 1, "HKEYS": 1, "HVALS": 1, "HGETALL": 2}


class Generator:
    """Random commands over a few collections, most of them large."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, *choices):
        return self.random.choice(choices)

    def some(self, *choices):
        """One of the choices, each a list of words, or nothing."""
        return self.pick([], *choices)

    def sets(self, most=4):
        return [self.pick("s1", "s2", "s3", "small", "none") for _ in range(self.random.randint(1, most))]

    def score(self):
        edges = ("inf", "-inf", "0", "1e9", "-1.5")
        return self.pick(*edges) if self.random.random() < 0.05 else self.random.randrange(-4000, 4000) / 2

    def member(self):
        return f"m{self.random.randrange(30000)}"

    def place(self):
        return self.random.randrange(-21000, 21000) if self.random.random() < 0.7 else self.pick(0, -1, 1, 30000)

    def fill(self):
        """Commands that make the collections, of the same members in part."""
        commands = []

        def add(name, key, words, step=500):
            for first in range(0, len(words), step):
                commands.append([name, key, *words[first:first + step]])

        for key, count in ("s1", 20000), ("s2", 17000), ("s3", 25000), ("small", 200):
            add("SADD", key, [f"m{number}" for number in self.random.sample(range(30000), count)])
        for key, count in ("z1", 20000), ("z2", 17000), ("few", 300):
            members = self.random.sample(range(30000), count)
            add("ZADD", key, [word for number in members for word in (self.score(), f"m{number}")])
        add("RPUSH", "l1", [self.random.randrange(12000) for _ in range(20000)])
        add("RPUSH", "l2", [self.random.randrange(-900, 900) / 4 for _ in range(18000)])
        add("HSET", "h1", [word for number in range(20000) for word in (f"f{number}", self.random.randrange(9999))])
        for number in self.random.sample(range(12000), 5000):
            commands.append(["SET", f"w{number}", self.random.randrange(-300, 300)])
        for number in self.random.sample(range(12000), 2000):
            commands.append(["HSET", f"o{number}", "n", self.random.randrange(100), "text", self.pick("x", "y", "", "long" * 99)])
        places = []
        for number in range(17000):
            places += [self.random.uniform(-20, 20), self.random.uniform(-20, 20), f"p{number}"]
        add("GEOADD", "places", places, 999)
        return commands

    def change(self):
        key = self.pick("s1", "s2", "s3", "small")
        sorted_set = self.pick("z1", "z2", "few")
        members = [self.member() for _ in range(self.random.randint(1, 40))]
        scored = [word for member in members for word in (self.score(), member)]
        element = self.random.randrange(12000)
        return self.pick(
            ["SADD", key, *members],
            ["SREM", key, *members],
            ["ZADD", sorted_set, *scored],
            ["ZREM", sorted_set, *members],
            ["ZINCRBY", sorted_set, self.random.randrange(-50, 50), self.member()],
            ["ZREMRANGEBYRANK", sorted_set, self.place(), self.place()] if self.random.random() < 0.02 else ["ZCARD", sorted_set],
            ["LPUSH", "l1", element, element],
            ["RPUSH", "l1", element],
            ["LINSERT", "l1", "BEFORE", self.random.randrange(12000), element],
            ["LSET", "l1", self.random.randrange(-15000, 15000), element],
            ["LREM", "l1", self.random.randrange(-2, 3), self.random.randrange(12000)],
            ["RPOP", "l1", 5],
            ["HSET", "h1", f"f{self.random.randrange(22000)}", element],
            ["HDEL", "h1", f"f{self.random.randrange(22000)}"],
            ["SET", f"w{element}", self.random.randrange(-300, 300)],
            ["DEL", f"w{self.random.randrange(12000)}", f"o{self.random.randrange(12000)}"],
            ["HSET", f"o{element}", "n", self.random.randrange(100)],
            ["GEOADD", "places", self.random.uniform(-20, 20), self.random.uniform(-20, 20), f"p{self.random.randrange(18000)}"],
        )

    def combined(self):
        """Union, intersection or difference of sorted sets, and of sets as such."""
        name = self.pick("ZUNION", "ZINTER", "ZDIFF")
        inputs = [self.pick("z1", "z2", "few", "s1", "small", "none") for _ in range(self.random.randint(1, 4))]
        words = [len(inputs), *inputs]
        if name != "ZDIFF":
            if self.random.random() < 0.4:
                words += ["WEIGHTS", *(self.pick(1, 2, -1, 0, 0.5) for _ in inputs)]
            words += self.some(["AGGREGATE", self.pick("SUM", "MIN", "MAX")])
        if self.random.random() < 0.5:
            return [name + "STORE", "d", *words]
        return [name, *words, *self.some(["WITHSCORES"])]

    def sorted(self):
        key = self.pick("l1", "l2", "s1", "z1", "l1")
        words = ["SORT", key]
        if self.random.random() < 0.5:
            words += ["BY", self.pick("w*", "o*->n", "nosort", "o*->text")]
        if "nosort" in words and key in ("s1",):
            # A set has no order.
            words[-1] = "w*"
        words += self.some(["LIMIT", self.place(), self.place()])
        for _ in range(self.pick(0, 0, 1, 2)):
            words += ["GET", self.pick("#", "w*", "o*->n", "o*->text")]
        words += self.some(["DESC"], ["ASC"])
        if "BY" in words and words[words.index("BY") + 1] == "o*->text":
            # Elements of the same text have no order in Redis.
            words[words.index("BY") + 1] = "o*->n"
        if "BY" not in words and (key in ("s1", "z1") or self.random.random() < 0.4):
            words.append("ALPHA")
        return words + self.some(["STORE", "d"], ["STORE", "d"], ["STORE", key] if self.random.random() < 0.02 else ["STORE", "d"])

    def bounds(self, kind):
        if kind == "BYSCORE":
            low, high = sorted((self.random.randrange(-2100, 2100), self.random.randrange(-2100, 2100)))
            pair = [self.pick(low, f"({low}", "-inf", "(-inf"), self.pick(high, f"({high}", "+inf", "(inf")]
        else:
            low, high = sorted((self.member(), self.member()))
            pair = [self.pick(f"[{low}", f"({low}", "-"), self.pick(f"[{high}", f"({high}", "+")]
        return pair

    def ranged(self):
        key = self.pick("z1", "z2", "z1", "few")
        kind = self.pick("", "BYSCORE", "BYSCORE")
        pair = [self.place(), self.place()] if not kind else self.bounds(kind)
        reverse = self.some(["REV"])
        if reverse and kind:
            pair.reverse()
        words = [key, *pair, *([kind] if kind else []), *reverse]
        if kind:
            words += self.some(["LIMIT", self.random.randrange(-1, 20000), self.place()])
        if self.random.random() < 0.4:
            return ["ZRANGESTORE", "d", *words]
        return ["ZRANGE", *words, *self.some(["WITHSCORES"])]

    def near(self):
        words = ["places", "FROMLONLAT", self.random.uniform(-20, 20), self.random.uniform(-20, 20)]
        words += self.pick(["BYRADIUS", self.random.randrange(1, 4000), "km"], ["BYBOX", 2000, self.random.randrange(1, 4000), "km"])
        words += [self.pick("ASC", "DESC"), *self.some(["COUNT", self.random.randrange(1, 20000)])]
        if self.random.random() < 0.4:
            return ["GEOSEARCHSTORE", "d", *words, *self.some(["STOREDIST"])]
        return ["GEOSEARCH", *words, *self.some(["WITHDIST"], ["WITHHASH"])]

    def read(self):
        return self.pick(
            [self.pick("SINTER", "SUNION", "SDIFF"), *self.sets()],
            [self.pick("SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"), "d", *self.sets()],
            ["SINTERCARD", 2, self.pick("s1", "s3"), self.pick("s2", "small"), *self.some(["LIMIT", self.place() % 9000])],
            ["ZINTERCARD", 2, "z1", self.pick("z2", "s1"), *self.some(["LIMIT", 5000])],
            self.combined(), self.combined(), self.combined(),
            self.sorted(), self.sorted(), self.sorted(),
            self.ranged(), self.ranged(),
            self.near(),
            ["LRANGE", self.pick("l1", "l2"), self.place(), self.place()],
            [self.pick("HGETALL", "HKEYS", "HVALS"), "h1"],
            ["SMEMBERS", self.pick("s1", "s3", "small")],
            ["COPY", self.pick("s1", "z1", "l1", "h1"), "d", "REPLACE"],
        )


def shown(words, reply):
    """The reply in an order of its own where Redis has none."""
    if list(words[:2]) == ["ZRANGE", "d"]:
        return as_numbers(reply)
    group = UNORDERED.get(words[0])
    if group is None or not isinstance(reply, list) or not isinstance(reply[1], list):
        return reply
    kind, items = reply
    return [kind, sorted(tuple(items[at:at + group]) for at in range(0, len(items), group))]


def as_numbers(reply):
    """Members and scores; 7.0 shows some of these with a digit more than 7.2."""
    kind, items = reply
    if items and items[0][0] == b"*":
        items = [item for pair in items for item in pair[1]]
    texts = [item[1] if isinstance(item, list) else item.removeprefix(b",") for item in items]
    return [kind, [(member, float(score)) for member, score in zip(texts[::2], texts[1::2])]]


def stored(kind):
    """Commands that show what is stored, by its type."""
    ways = {
        b"+list": ["LRANGE", "d", 0, -1], b"+set": ["SMEMBERS", "d"], b"+hash": ["HGETALL", "d"],
        b"+zset": ["ZRANGE", "d", 0, -1, "WITHSCORES"],
    }
    # 7.2 stores small lists and sets in other forms than 7.0.
    has_encoding = kind in (b"+hash", b"+zset")
    shows = [ways[kind]] if kind in ways else []
    return shows + ([["OBJECT", "ENCODING", "d"]] if has_encoding else [])


@unittest.skipUnless(REDIS, "there is no redis-server")
class LargeBesideRedis(ServerTest):
    flags = ("--durability", "none", "--max-memory", os.environ.get("MEMORY", "16m"))

    def setUp(self):
        super().setUp()
        self.place = tempfile.TemporaryDirectory(prefix="pando-large-")
        path = self.place.name + "/socket"
        self.redis = subprocess.Popen(
            [REDIS, "--port", "0", "--unixsocket", path, "--save", "", "--dir", self.place.name],
            stdout=subprocess.DEVNULL)
        self.connections = [Connection(self.server.port), UnixConnection(path)]

    def tearDown(self):
        for connection in self.connections:
            connection.close()
        self.redis.kill()
        self.redis.wait()
        self.place.cleanup()
        super().tearDown()

    def same(self, *words):
        """The reply of both, which is the same."""
        ours, theirs = (shown(words, connection.call(*words)) for connection in self.connections)
        if ours != theirs:
            self.fail(f"{first_words(words)}\n{difference(ours, theirs)}")
        return ours

    def test_random_commands(self):
        generator = Generator(SEED)
        for protocol in 2, 3:
            for connection in self.connections:
                connection.call("FLUSHALL")
                connection.call("HELLO", protocol)
            for words in generator.fill():
                self.same(*words)
            for _ in range(COMMANDS):
                for _ in range(generator.random.randrange(4)):
                    self.same(*generator.change())
                words = generator.read()
                with self.subTest(" ".join(map(str, words[:20]))):
                    self.same(*words)
                    if "d" in words:
                        for show in stored(self.same("TYPE", "d")):
                            self.same(*show)


class UnixConnection(Connection):
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.rest = b""
        for _ in range(500):
            try:
                return self.socket.connect(path)
            except OSError:
                time.sleep(0.02)
        raise AssertionError("redis-server does not listen")


def first_words(words):
    return b" ".join(as_bytes(word) for word in words[:20]).decode("latin-1")


def difference(ours, theirs):
    """Where two replies begin to differ."""
    if not (isinstance(ours, list) and isinstance(theirs, list) and isinstance(ours[1], list)
            and isinstance(theirs[1], list)):
        return f"{str(ours)[:300]}\n{str(theirs)[:300]}"
    pairs = enumerate(zip(ours[1], theirs[1]))
    at = next((at for at, (one, other) in pairs if one != other), min(len(ours[1]), len(theirs[1])))
    return f"{len(ours[1])} and {len(theirs[1])} items, from {at}:\n{ours[1][at:at + 4]}\n{theirs[1][at:at + 4]}"


if __name__ == "__main__":
    unittest.main()
