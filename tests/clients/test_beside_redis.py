"""The same commands to pando and to redis-server, and the same replies, byte for byte.

Needs a redis-server (Debian: redis-server); COMMANDS=NUMBER and SEED=NUMBER choose others than the
usual random commands.
"""

import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

from collections_of_redis import Collections, sorted_reply, whole
from server import ServerTest
from streams_of_redis import Streams, all_streams, without_times

REDIS = shutil.which("redis-server")
COMMANDS = int(os.environ.get("COMMANDS", 10000))
SEED = int(os.environ.get("SEED", 1))
BATCH = 50


class Connection:
    """Sends commands and returns replies as their bytes say, without any judgement."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(60)
        self.rest = b""

    def close(self):
        self.socket.close()

    def line(self):
        while b"\r\n" not in self.rest:
            self.more()
        line, self.rest = self.rest.split(b"\r\n", 1)
        return line

    def more(self):
        piece = self.socket.recv(1 << 20)
        if not piece:
            raise AssertionError("the server has closed the connection")
        self.rest += piece

    def reply(self):
        line = self.line()
        if line[:1] == b"$" and line != b"$-1":
            length = int(line[1:])
            while len(self.rest) < length + 2:
                self.more()
            value, self.rest = self.rest[:length], self.rest[length + 2:]
            return [b"$", value]
        if line[:1] in (b"*", b"~", b">") and line != b"*-1":
            return [line[:1], [self.reply() for _ in range(int(line[1:]))]]
        if line[:1] == b"%":
            return [b"%", [self.reply() for _ in range(2 * int(line[1:]))]]
        return line

    def send(self, commands):
        out = []
        for words in commands:
            out.append(b"*%d\r\n" % len(words))
            out.extend(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        self.socket.sendall(b"".join(out))
        return [self.reply() for _ in commands]

    def call(self, *words):
        return self.send([[as_bytes(word) for word in words]])[0]


def as_bytes(word):
    return word if isinstance(word, bytes) else str(word).encode()


class Generator(Streams, Collections):
    """Random commands over few keys, with edges more often than chance would have them."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, *choices):
        return self.random.choice(choices)

    def key(self):
        return self.pick("a", "b", "c", "d", "e", "none")

    def number(self):
        edges = (0, 1, -1, 7, 8, 9, 63, 64, 127, 128, 255, 256, -128, -129, 2**31, 2**63 - 1, -2**63)
        if self.random.random() < 0.02:
            return self.pick("x", "", "1.5", " 1", "01", 2**63, "-0")
        return self.pick(*edges) if self.random.random() < 0.3 else self.random.randint(-40, 400)

    def value(self):
        r = self.random
        kind = r.randrange(6)
        if kind == 0:
            return r.randint(-1000, 10**12)
        if kind == 1:
            return r.randbytes(r.randint(0, 60))
        if kind == 2:
            return b"\xff" * r.randint(0, 40)
        if kind == 3:
            return b"\0" * r.randint(0, 40)
        if kind == 4:
            return "".join(r.choice("abc") for _ in range(r.randint(0, 80)))
        return r.randbytes(r.randint(1, 3)) * r.randint(1, 30)

    def unit(self):
        return self.pick("BYTE", "BIT", "byte", "bit", "what") if self.random.random() < 0.9 else ""

    def range(self, least):
        words = [self.number(), self.number(), self.unit()]
        return words[:self.random.randint(least, 3)]

    def string(self):
        return self.pick(
            ["SET", self.key(), self.value()],
            ["SET", self.key(), self.value()],
            ["SET", self.key(), self.value(), "EX", 1000],
            ["APPEND", self.key(), self.value()],
            ["SETRANGE", self.key(), self.random.randint(0, 70), self.value()],
            ["GETRANGE", self.key(), self.number(), self.number()],
            ["STRLEN", self.key()],
            ["INCRBY", self.key(), self.random.randint(-5, 5)],
            ["DEL", self.key()],
            ["PERSIST", self.key()],
            ["SELECT", self.pick(0, 0, 1)],
        )

    def keys(self):
        copy = ["COPY", self.key(), self.key()]
        for _ in range(self.random.randrange(3)):
            copy += self.pick(["REPLACE"], ["DB", self.pick(0, 1, 2, 15, 16, -1, "x", 2**40)], ["DB"])
        return self.pick(
            ["RENAME", self.key(), self.key()],
            ["RENAMENX", self.key(), self.key()],
            copy,
            ["MOVE", self.key(), self.pick(0, 1, 1, 2, 16, -1, "x", 2**40)],
            ["TOUCH", self.key(), self.key()],
            ["OBJECT", self.pick("FREQ", "IDLETIME", "idletime"), "nothing"],
            ["OBJECT", "FREQ", self.key()],
            ["OBJECT", "what", self.key()],
            ["OBJECT", "ENCODING"],
            ["EXISTS", self.key()],
            ["PERSIST", self.key()],
            ["EXPIRE", self.key(), 1000],
        )

    def bits(self):
        return self.pick(
            ["SETBIT", self.key(), self.pick(-1, "x", 2**63 - 1, 2**32, 0, 7, 8), self.pick(0, 1, 1, 2)],
            ["SETBIT", self.key(), self.random.randint(0, 600), self.pick(0, 1)],
            ["GETBIT", self.key(), self.number()],
            ["BITCOUNT", self.key()],
            ["BITCOUNT", self.key(), *self.range(1)],
            ["BITPOS", self.key(), self.pick(0, 1), *self.range(0)],
            ["BITPOS", self.key(), self.pick(0, 1, 2, -1, "x")],
            ["BITOP", self.pick("AND", "OR", "XOR", "NOT", "xor"), self.key(),
             *(self.key() for _ in range(self.random.randint(1, 4)))],
            ["BITOP", "NOT", self.key(), self.key()],
        )

    def field_value(self):
        value = self.number()
        # Redis 7.0 saturates the least of all to the largest that a field takes.
        return value if value != -2**63 else -2**62

    def fields(self):
        r = self.random
        words = [self.pick("BITFIELD", "BITFIELD", "BITFIELD", "BITFIELD_RO"), self.key()]
        for _ in range(r.randrange(5)):
            of = self.pick("u8", "i8", "u1", "i1", "u63", "i64", "u5", "i16", "u13", "i33")
            if r.random() < 0.02:
                of = self.pick("u64", "i65", "u0", "x", "u", "i08")
            offset = self.pick(r.randint(0, 300), f"#{r.randint(0, 9)}")
            if r.random() < 0.02:
                offset = self.pick("-1", "#", "#-1", "x", 2**62, 100000)
            words += self.pick(
                ["GET", of, offset],
                ["SET", of, offset, self.field_value()],
                ["INCRBY", of, offset, self.number()],
                ["OVERFLOW", self.pick("WRAP", "SAT", "FAIL", "sat", "fail", "what")],
            )
        return words

    def subsequence(self):
        words = ["LCS", self.key(), self.key()]
        for _ in range(self.random.randrange(4)):
            words += self.pick(["IDX"], ["IDX"], ["LEN"], ["WITHMATCHLEN"], ["MINMATCHLEN"],
                               ["MINMATCHLEN", self.pick(0, 1, 2, 3, 5, -1, "x")], ["what"])
        return words

    def counted(self):
        r = self.random
        # No others write to these: what a damaged sketch counts is not defined.
        key, any_key = self.pick("h1", "h2", "h3"), self.pick("a", "h1", "h2", "h3", "nothing")
        many = r.randrange(300) if r.random() < 0.3 else r.randrange(4)
        return self.pick(
            ["PFADD", key, *(r.randrange(100000) for _ in range(many))],
            ["PFADD", key, *(r.randbytes(r.randrange(30)) for _ in range(many))],
            ["PFCOUNT", any_key, self.pick("h1", "h2", "nothing")],
            ["PFMERGE", self.pick("h1", "h2", "h3"), self.pick("h1", "h2", "nothing")],
            ["PFMERGE", key],
            ["PFDEBUG", self.pick("ENCODING", "DECODE", "decode", "what"), any_key],
            ["PFDEBUG", self.pick("TODENSE", "GETREG"), self.pick("h3", "nothing")],
            ["PFDEBUG", "ENCODING", key, "more"],
            ["STRLEN", any_key],
            ["DEL", self.pick("h1", "h2", "h3")] if r.random() < 0.1 else ["GET", key],
        )

    def strings(self):
        return (self.string, self.keys, self.bits, self.fields, self.subsequence, self.counted)

    def collections(self):
        return (self.hashes, self.lists, self.sets, self.sorted_sets, self.ranges, self.places,
                self.sorting, self.collection_keys)

    def streams(self):
        return (self.entries, self.entries, self.stream_reads, self.groups_of_streams, self.groups_of_streams)

    def command(self, families):
        return [as_bytes(word) for word in self.random.choice(families)()]


@unittest.skipUnless(REDIS, "no redis-server is installed")
class ServersBesideEachOther(ServerTest):
    """A redis-server beside the server, and connections to both."""

    def setUp(self):
        super().setUp()
        self.place = tempfile.TemporaryDirectory(prefix="pando-redis-")
        # A port that the kernel has just given away is free.
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.redis = subprocess.Popen(
            [REDIS, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", self.place.name],
            stdout=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"})
        self.theirs = self.connect(port)
        self.ours = self.connect(self.server.port)

    def tearDown(self):
        self.ours.close()
        self.theirs.close()
        self.redis.terminate()
        self.redis.wait(timeout=20)
        self.place.cleanup()
        super().tearDown()

    def connect(self, port):
        deadline = time.monotonic() + 60
        while True:
            try:
                connection = Connection(port)
                if connection.call("PING") == b"+PONG":
                    return connection
                connection.close()
            except ConnectionRefusedError:
                pass
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def same(self, *words):
        ours, theirs = self.ours.call(*words), self.theirs.call(*words)
        self.assertEqual(ours, theirs, words)
        return ours

    def both(self, commands):
        ours, theirs = self.ours.send(commands), self.theirs.send(commands)
        for at, (words, our, their) in enumerate(zip(commands, ours, theirs)):
            our, their = comparable(words, our), comparable(words, their)
            if our != their and not is_known(words, our, their):
                before = "\n".join(map(repr, commands[max(0, at - 10):at]))
                self.fail(f"{words}: {our} instead of {their} behind\n{before}")


class BesideRedis(ServersBesideEachOther):
    def compare(self, families, shown):
        generator, done = Generator(SEED), 0
        while done < COMMANDS:
            commands = [generator.command(families(generator)) for _ in range(BATCH)]
            if generator.random.random() < 0.3:
                commands = [[b"SELECT", b"0"], [b"MULTI"], *commands, [b"EXEC"]]
                self.both_of_exec(commands)
            else:
                self.both(commands)
            self.both(shown())
            done += BATCH

    def test_small_print_has_the_same_replies(self):
        for line in SMALL_PRINT.strip().splitlines():
            self.same(*line.split())

    def test_commands_are_described_as_redis_does(self):
        ours, theirs = (described(of.call("COMMAND")) for of in (self.ours, self.theirs))
        for name in ours.keys() & theirs.keys():
            self.assertEqual(
                {what: ours[name][what] for what in ours[name] if (name, what) not in DESCRIBED_OTHERWISE},
                {what: theirs[name][what] for what in ours[name] if (name, what) not in DESCRIBED_OTHERWISE},
                name)
        # What is told apart here is a difference still.
        for name, what in DESCRIBED_OTHERWISE:
            self.assertNotEqual(ours[name][what], theirs[name][what], name)
        for name, (more, less) in FLAGS_OF_ITS_OWN.items():
            self.assertEqual(ours[name]["flags"], theirs[name]["flags"] - less | more, name)

    def test_what_commands_take_is_documented_as_redis_does(self):
        ours, theirs = (documented(of.call("COMMAND", "DOCS")) for of in (self.ours, self.theirs))
        both = ours.keys() & theirs.keys()
        self.assertGreater(len(both), 300)
        self.assertEqual({name for name in both if ours[name] != theirs[name]}, DOCUMENTED_OTHERWISE)

    def test_random_commands_of_strings_have_the_same_replies(self):
        self.compare(Generator.strings, dump)

    def test_random_commands_of_strings_in_pieces_have_the_same_replies(self):
        # A string of which a part is changed is cut into pieces of three bytes, from 24 bytes on.
        self.ours.call("CONFIG", "SET", "packed-bytes-max", "3")
        self.compare(Generator.strings, dump)

    def test_random_commands_of_collections_have_the_same_replies(self):
        self.compare(Generator.collections, whole)

    def test_random_commands_of_collections_have_the_same_replies_in_resp3(self):
        for connection in (self.ours, self.theirs):
            connection.call("HELLO", "3")
        self.compare(Generator.collections, whole)

    def test_random_commands_of_large_collections_have_the_same_replies(self):
        # All but the smallest have rows for their elements. Redis's limits say which of them have
        # an order of their own, that of a listpack: none.
        self.ours.call("CONFIG", "SET", "packed-bytes-max", "12")
        # Redis 7.0 has no such sets.
        self.ours.call("CONFIG", "SET", "set-max-listpack-entries", "0")
        for name in ("hash-max-listpack-entries", "set-max-intset-entries", "zset-max-listpack-entries"):
            self.same("CONFIG", "SET", name, "2")
        self.same("CONFIG", "SET", "list-max-listpack-size", "2")
        self.compare(Generator.collections, whole)

    def test_random_commands_of_streams_have_the_same_replies(self):
        self.compare(Generator.streams, all_streams)

    def test_random_commands_of_streams_have_the_same_replies_in_resp3(self):
        for connection in (self.ours, self.theirs):
            connection.call("HELLO", "3")
        self.compare(Generator.streams, all_streams)

    def test_databases_that_change_places_have_the_same_replies(self):
        # Some collections are large, and some strings expire late.
        self.ours.call("CONFIG", "SET", "packed-bytes-max", "200")
        generator, done = Generator(SEED), 0
        numbers = (0, 0, 1, 1, 2, 2, 2, 15, 16, -1, "x", 2**40)
        swap = lambda: ["SWAPDB", generator.pick(*numbers), generator.pick(*numbers)]
        select = lambda: ["SELECT", generator.pick(0, 1, 2)]
        families = (generator.string, *generator.collections(), swap, select)
        while done < COMMANDS:
            self.both([generator.command(families) for _ in range(BATCH)])
            for number in (b"0", b"1", b"2"):
                self.both([[b"SELECT", number], *whole(), [b"DBSIZE"]])
            self.both(dump())
            done += BATCH

    def test_watched_keys_fail_exec_as_in_redis(self):
        # Two keys: more of them would share a stripe now and then, which is a change of both.
        generator = random.Random(SEED)
        for _ in range(COMMANDS // 20):
            self.both([[b"SELECT", b"0"], [b"WATCH", *generator.choice(([b"a"], [b"b"], [b"a", b"b"]))]])
            commands = [generator.choice(CHANGES).split() for _ in range(generator.randrange(5))]
            self.both([[as_bytes(word) for word in words] for words in commands])
            again = [[b"WATCH", b"b"]] if generator.random() < 0.2 else []
            self.both([*again, [b"MULTI"], [b"SET", b"result", b"1"], [b"GET", b"a"], [b"EXEC"]])

    def both_of_exec(self, commands):
        ours, theirs = self.ours.send(commands), self.theirs.send(commands)
        self.assertEqual(ours[:-1], theirs[:-1])
        if ours[-1] != theirs[-1]:
            for words, our, their in zip(commands[2:], ours[-1][1], theirs[-1][1]):
                our, their = comparable(words, our), comparable(words, their)
                if not is_known(words, our, their):
                    self.assertEqual(our, their, words)


def described(commands):
    """Of a reply of COMMAND: the commands and their subcommands by their names."""
    found = {}
    for _, of in commands[1]:
        flags, categories = (frozenset(name[1:].decode() for name in of[at][1]) for at in (2, 6))
        found[of[0][1].decode()] = {
            "arity": of[1], "flags": flags, "places": of[3:6], "categories": categories,
            "keys": without_notes(of[8])}
        found.update(described(of[9]))
    return found


def pairs(reply):
    return zip(reply[1][::2], reply[1][1::2])


def documented(commands):
    """Of a reply of COMMAND DOCS: the commands and their subcommands by their names, each with what
    both servers say of them in the same words."""
    found = {}
    for name, of in pairs(commands):
        fields = {field[1]: value for field, value in pairs(of)}
        found.update(documented(fields.pop(b"subcommands", (None, []))))
        found[name[1].decode()] = {
            field: without_display(fields[field]) for field in fields
            if field in (b"doc_flags", b"deprecated_since", b"replaced_by", b"arguments", b"group")}
    return found


def without_display(reply):
    """Without the texts that Redis shows since 7.2, which are the names here."""
    if not isinstance(reply[1], list):
        return reply
    names = [value for field, value in pairs(reply) if field[1] == b"display_text"]
    if names:
        assert names == [value for field, value in pairs(reply) if field[1] == b"name"]
        reply = (reply[0], [part for pair in pairs(reply) if pair[0][1] != b"display_text" for part in pair])
    return (reply[0], [without_display(part) for part in reply[1]])


def comparable(words, reply):
    return without_times(words, sorted_reply(words, reply))


# What happens to keys that are watched.
CHANGES = (
    "FLUSHALL", "FLUSHDB", "FLUSHALL", "FLUSHDB", "SET a 1", "SET b 1", "DEL a", "DEL b", "RPUSH a x",
    "DEL a b", "PERSIST a", "EXPIRE a 1000", "GET a", "RENAME a b", "COPY b a",
)
# What COMMAND shows of these in other words than Redis 7.0. docs/compatibility.md names those that
# are refused inside MULTI.
FLAGS_OF_ITS_OWN = {
    "client|reply": ({"no_multi"}, set()), "config|rewrite": ({"no_multi"}, set()),
    "debug": ({"no_multi"}, set()), "swapdb": ({"no_multi"}, set()),
    # As since 7.2, which lets scripts call it.
    "wait": ({"blocking"}, {"noscript"}),
    # It looks at keys, which are not there until the store is open.
    "watch": (set(), {"loading"}),
}
DESCRIBED_OTHERWISE = {
    *((name, "flags") for name in FLAGS_OF_ITS_OWN), ("wait", "categories"),
    # As since 7.2.
    ("zrank", "arity"), ("zrevrank", "arity"), ("command|getkeys", "arity"),
}
DOCUMENTED_OTHERWISE = {
    # As since 7.2, and 7.4.
    "geohash", "geopos", "pfmerge", "zrank", "zrevrank", "hscan", "client|kill",
    # 7.0 does not say what they take.
    "command|getkeys", "command|getkeysandflags", "cluster", "debug",
    # Without the flag for commands of the system itself.
    "pfdebug", "pfselftest",
}
SMALL_PRINT = """
CONFIG SET hz x
CONFIG SET hz 7 HZ 8
CONFIG SET maxmemory 1 maxmemory 2
CONFIG SET maxmemory x nosuch 1
CONFIG SET nosuch 1 databases 3
CONFIG SET hz 7 b
CONFIG SET timeout -1
CONFIG SET maxclients 0
CONFIG SET maxmemory -5
CONFIG SET save x
CONFIG SET appendfsync x
CONFIG SET maxmemory-policy x
CONFIG SET notify-keyspace-events q
CONFIG SET client-query-buffer-limit 1
CONFIG SET list-max-listpack-size 99999999999
CONFIG SET hash-max-listpack-value -1
CONFIG SET daemonize yes
CONFIG SET hz 20 active-expire-effort 3
CONFIG GET hz
CONFIG GET active-expire-effort
CONFIG REWRITE
SLOWLOG GET x
SLOWLOG GET -2
SLOWLOG GET 1 2
MEMORY USAGE k SAMPLES -1
MEMORY USAGE k SAMPLES x
MEMORY USAGE k SAMPLES 1 SAMPLES x
MEMORY USAGE k SAMPLES 1 SAMPLES
MEMORY USAGE k SAMPLES 1 SAMPLES 0
SCAN -1
SCAN -
SELECT 99999999999
SELECT -99999999999
SELECT 16
SELECT x
SRANDMEMBER k x 1
EVALSHA x 99
EVALSHA x -1
EVALSHA x x
EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 99
SCAN 99999999999999999999999
SHUTDOWN NOSAVE SAVE
COMMAND GETKEYS MEMORY USAGE
COMMAND GETKEYS MEMORY USAGE k
COMMAND GETKEYS SORT a BY store GET x STORE d
COMMAND GETKEYS GEORADIUS k 1 1 1 m STOREDIST d
COMMAND GETKEYS GEORADIUS k 1 1 1 m STORE a STOREDIST b
COMMAND GETKEYS GEORADIUS k 1 1 1 m STOREDIST b STORE a
COMMAND GETKEYS GEORADIUS k 1 1 1 m STORE a STORE b
COMMAND GETKEYS GEORADIUS k 1 1 1 m STORE STOREDIST b
COMMAND GETKEYS GEORADIUS k 1 1 1 m STORE
COMMAND GETKEYS GEORADIUS k 1 1 STORE x
COMMAND GETKEYSANDFLAGS GEORADIUSBYMEMBER k m 1 m STORE a STOREDIST b
COMMAND GETKEYS SPUBLISH c m
COMMAND GETKEYS ZUNIONSTORE d 3 a b
COMMAND GETKEYSANDFLAGS LMOVE a b LEFT RIGHT
COMMAND GETKEYSANDFLAGS SET a b
COMMAND GETKEYSANDFLAGS SET a b GET
COMMAND GETKEYSANDFLAGS BITFIELD a GET u1 0
COMMAND GETKEYSANDFLAGS PING
COMMAND LIST FILTERBY x y
COMMAND LIST FILTERBY MODULE
ROLE
CLIENT PAUSE x
CLIENT PAUSE -1
CLIENT PAUSE 10 x
client pause 10 WRITE x
CLIENT PAUSE 1 WRITE
CLIENT UNPAUSE
CLIENT LIST ID 0 -1
CLIENT LIST ID 1 x
CLIENT REPLY x
CLIENT REPLY
MODULE LIST
MODULE LOAD x
MODULE X
CLUSTER INFO
CLUSTER HELP
CLUSTER KEYSLOT x
CLUSTER X
READONLY
REPLICAOF NO ONE
REPLICAOF a b
FAILOVER
ACL WHOAMI
ACL USERS
ACL CAT
ACL CAT nosuch
DEBUG SLEEP 0
LATENCY GRAPH x
LATENCY HISTORY x
MEMORY PURGE
WATCH none
UNWATCH
what\0ever a\0b
"""


def without_notes(value):
    """A part of COMMAND INFO without the notes that Redis has beside the specifications of keys."""
    if not isinstance(value, list) or not isinstance(value[1], list):
        return value
    kind, items = value
    if [b"$", b"notes"] in items:
        at = items.index([b"$", b"notes"])
        items = items[:at] + items[at + 2:]
    return [kind, [without_notes(item) for item in items]]


def dump():
    commands = []
    for number in (b"0", b"1"):
        commands.append([b"SELECT", number])
        for key in (b"a", b"b", b"c", b"d", b"e", b"none", b"h1", b"h2", b"h3"):
            commands += [[b"GET", key], [b"PERSIST", key], [b"TYPE", key]]
        commands.append([b"DBSIZE"])
    return commands


def is_known(words, ours, theirs):
    """True for a difference of versions: 7.0 does not look at the arguments if there is no key."""
    name = words[0].upper()
    if name == b"SORT" and b"can't be converted into double" in theirs:
        # 7.0 takes an error of an earlier conversion for one of this (errno is not reset).
        return all(re.fullmatch(rb"-?[0-9.]+", of[1]) for of in ours[1]) if ours[0] == b"*" else False
    if name == b"LPOS":
        return b"-9223372036854775808" in words and ours[:4] == b"-ERR"
    return (name in (b"BITCOUNT", b"BITPOS") and theirs in (b":0", b":-1", b":1")
            and ours[:4] == b"-ERR")


if __name__ == "__main__":
    unittest.main()
