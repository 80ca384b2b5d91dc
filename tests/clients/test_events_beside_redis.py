"""The same commands to pando and to redis-server, and the same keyspace events, in the same order.

Needs a redis-server, as test_beside_redis; COMMANDS=NUMBER and SEED=NUMBER choose others than the
usual random commands.
"""

import os
import time
import unittest

from test_beside_redis import BATCH, SEED, BesideRedis, Generator, as_bytes
from test_beside_redis import Connection

COMMANDS = int(os.environ.get("COMMANDS", 6000))
DONE = b"__key done"


class Listener:
    """Receives what is published about keys."""

    def __init__(self, port, publisher):
        self.connection, self.publisher = Connection(port), publisher
        self.connection.call("PSUBSCRIBE", "__key*")

    def events(self):
        """The events so far: channels and texts."""
        self.publisher.call("PUBLISH", DONE, "")
        found = []
        while True:
            _, (_, _, channel, text) = self.connection.reply()
            if channel[1] == DONE:
                return found
            found.append((channel[1], text[1]))


def lines(text):
    return [line.split() for line in text.strip().splitlines()]


# What an event depends on that random commands meet seldom.
CASES = """
SET k v EX 100
SET k v KEEPTTL
SET k v XX GET
SET k v NX
SET k v PXAT 99999999999999
GETEX k
GETEX k EX 100
GETEX k PERSIST
GETEX k PERSIST
GETEX k EXAT 1
GETEX k EX 100
SETEX k 100 v
PSETEX k 100000 v
GETSET k v
GETDEL k
GETDEL k
GET k
MGET k j
MSET k v j w k x
MSETNX k v l w
MSETNX m v n w
SETNX k v
APPEND k x
APPEND empty
SETRANGE k 0 x
SETRANGE none 0
INCR n
DECR n
DECRBY n 2
INCRBYFLOAT n 1.5
EXPIRE m 100
EXPIRE m 200 LT
EXPIRE m -1
PEXPIREAT j 1
PERSIST k
UNLINK k nothing
DEL a b c
SETBIT b 7 0
SETBIT b 7 0
SETBIT b 7 1
SETBIT b 100 0
BITFIELD b GET u8 0
BITFIELD b SET u8 0 1
BITFIELD b SET u8 0 1
BITFIELD b SET u8 1000 0
BITFIELD b OVERFLOW FAIL INCRBY u2 0 5
BITOP AND t none none
BITOP OR t b b
BITOP AND t none none
PFADD p
PFADD p
PFADD p a b
PFADD p a
PFMERGE q p
PFMERGE q p
PFCOUNT p
RENAME q p
RENAME p p
RENAMENX p q
RENAMENX q q
COPY q p
COPY q p
COPY q p REPLACE
COPY q p DB 1
MOVE q 1
MOVE q 1
LPUSH l a b c
RPUSH l d
LPUSHX none a
RPUSHX l e
LINSERT l BEFORE a x
LINSERT l BEFORE none x
LSET l 0 y
LREM l 0 none
LREM l 0 y
LTRIM l 0 -1
LTRIM l 0 1
LPOP l
LPOP l 0
RPOP l
RPOP l
LTRIM l 0 1
RPUSH l a b c
LMOVE l l LEFT RIGHT
LMOVE l o RIGHT LEFT
RPOPLPUSH l o
RPOPLPUSH l o
RPOPLPUSH l o
LMPOP 2 l o LEFT COUNT 2
BLPOP o 1
BLMOVE o l LEFT LEFT 0.01
RPUSH o 3 1 2
SORT o STORE s
SORT none STORE s
LTRIM o 5 6
HSET h a 1 b 2
HMSET h c 3
HSETNX h c 4
HSETNX h d 4
HINCRBY h n 2
HINCRBYFLOAT h f 2.5
HDEL h none
HDEL h a b c
HDEL h d n f
SADD s a b c
SADD s a
SREM s none
SMOVE s t a
SMOVE s t none
SMOVE s s b
SMOVE s t b
SMOVE s t c
SADD s 1 2 3
SPOP t 0
SPOP t 10
SPOP t
SINTERSTORE d s s
SINTERSTORE d s none
SUNIONSTORE d s
SDIFFSTORE d s s
SDIFFSTORE d s s
ZADD z 1 a 2 b 3 c
ZADD z 1 a
ZADD z INCR 1 a
ZADD z NX 5 a
ZINCRBY z 1 a
ZINCRBY z 0 a
ZREM z none
ZREM z a
ZREMRANGEBYRANK z 5 6
ZREMRANGEBYSCORE z 2 2
ZREMRANGEBYLEX z - +
ZADD z 1 a 2 b 3 c 4 d
ZPOPMIN z
ZPOPMAX z 2
ZMPOP 1 z MIN
ZMPOP 1 z MIN
ZADD z 1 a 2 b
BZPOPMIN z 1
BZMPOP 1 1 z MAX
ZADD z 1 a 2 b
ZUNIONSTORE y 1 z
ZINTERSTORE y 2 z none
ZDIFFSTORE y 1 z
ZRANGESTORE y z 0 -1
ZRANGESTORE y z 5 6
GEOADD g 13.36 38.11 a
GEOADD g 13.36 38.11 a
GEOSEARCHSTORE y g FROMMEMBER a BYRADIUS 1 km
GEORADIUS g 13 38 500 km STORE y
GEORADIUS g 13 80 1 km STORE y
GEORADIUSBYMEMBER g a 1 km STOREDIST y
XADD x 1-1 a b
XADD x NOMKSTREAM MAXLEN 1 2-1 a b
XADD nothing NOMKSTREAM * a b
XADD x MAXLEN 5 3-1 a b
XTRIM x MAXLEN 1
XTRIM x MAXLEN 1
XGROUP CREATE x g 0
XGROUP CREATE w g 0 MKSTREAM
XGROUP CREATECONSUMER x g alice
XGROUP CREATECONSUMER x g alice
XGROUP SETID x g 0
XREADGROUP GROUP g alice STREAMS x >
XREADGROUP GROUP g bob STREAMS x >
XREADGROUP GROUP g carol STREAMS x 0
XACK x g 1-1
XCLAIM x g dave 0 3-1
XCLAIM x g dora 0 9-1
XAUTOCLAIM x g eve 0 0
XAUTOCLAIM x g eve 0 0
XGROUP DELCONSUMER x g alice
XGROUP DELCONSUMER x g nobody
XSETID x 9-9
XDEL x 3-1 4-1
XDEL x 3-1
XGROUP DESTROY x g
XGROUP DESTROY x g
EXISTS none x
TYPE none
TTL none
STRLEN none
HGET none f
SMEMBERS none
ZSCORE none m
LRANGE none 0 -1
XLEN none
GETRANGE none 0 1
BITCOUNT none
TOUCH none
OBJECT ENCODING none
WATCH none
UNWATCH
DUMP
SET x v
LPUSH x v
SUNIONSTORE d x
FLUSHDB
EVAL 1 0
"""


# 7.2 makes the consumer that they name also if it gets nothing.
MAKE_CONSUMERS = (b"XREADGROUP", b"XCLAIM", b"XAUTOCLAIM")


def comparable_events(commands, replies, events, has_consumers=True):
    """The events without the differences that are meant to be, which each branch names."""
    def without(name):
        return [of for of in events if name not in (of[1], of[0].split(b"__:")[-1])]
    names = [words[0].upper() for words in commands]
    # Redis looks keys up before it has read all arguments, and tells the misses of a command that
    # it refuses then. Inside EXEC and pipelines, which may have some, no misses are compared.
    if len(commands) > 1 or any(reply[:1] == b"-" for reply in replies):
        events = without(b"keymiss")
    if not has_consumers or any(name in MAKE_CONSUMERS for name in names):
        events = without(b"xgroup-createconsumer")
    if not has_consumers:
        events = without(b"xgroup-delconsumer")
    # The members of a set have no order, so what SORT looks up has none.
    if names[0] in (b"SORT", b"SORT_RO"):
        events = sorted(events)
    # Redis looks twice, and tells twice what it misses.
    if names[0] == b"XREAD":
        events = list(dict.fromkeys(events))
    return events


class EventsBesideRedis(BesideRedis):
    def setUp(self):
        super().setUp()
        for connection in (self.ours, self.theirs):
            connection.call("CONFIG", "SET", "notify-keyspace-events", "KEAnm")
        self.listeners = [Listener(of.socket.getpeername()[1], self.connect(of.socket.getpeername()[1]))
                          for of in (self.ours, self.theirs)]
        self.differences, self.has_consumers = [], True

    def tearDown(self):
        for listener in self.listeners:
            listener.connection.close()
            listener.publisher.close()
        super().tearDown()

    def same_events(self, commands, replies):
        ours, theirs = (comparable_events(commands, replies, listener.events(), self.has_consumers) for listener in self.listeners)
        if ours != theirs:
            self.differences.append(f"{commands}:\n    {ours} instead of\n    {theirs}")

    def send(self, commands):
        commands = [[as_bytes(word) for word in words] for words in commands]
        replies = [connection.send(commands) for connection in (self.ours, self.theirs)]
        self.same_events(commands, [*replies[0], *replies[1]])

    def check(self):
        self.assertFalse(self.differences, "\n".join(self.differences[:40]))

    def call(self, *words):
        self.send([words])

    def test_cases_have_the_same_events(self):
        for words in lines(CASES):
            if words[0] in ("APPEND", "SETRANGE") and len(words) < (3, 4)[words[0] == "SETRANGE"]:
                words.append("")
            self.call(*words)
        self.check()

    def test_executions_and_scripts_have_the_same_events(self):
        for line in """SET a 1 | GET none | SET a 2 EX 100 | DEL a
                       INCR a | LPUSH a x | SET b 1
                       RPUSH l a | LPOP l | GET l
                       SELECT 1 | SET a 1 | SELECT 0 | COPY a b DB 1""".splitlines():
            commands = [["MULTI"], *(part.split() for part in line.split("|")), ["EXEC"]]
            self.send(commands)
        for script in ("redis.call('set', 'a', 1) redis.call('expire', 'a', 100) return redis.call('get', 'none')",
                       "redis.call('set', 'a', 1) redis.pcall('lpush', 'a', 1) redis.call('del', 'a')",
                       "for i = 1, 50 do redis.call('rpush', 'l', i) end redis.call('del', 'l')"):
            self.call("EVAL", script, "0")
        self.call("FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function(k, a) return redis.call('incr', k[1]) end)")
        self.call("FCALL", "f", "1", "n")
        for commands in ((["WATCH", "a"], ["SET", "a", "2"], ["MULTI"], ["SET", "b", "1"], ["EXEC"]),
                         (["MULTI"], ["SET", "b", "1"], ["DISCARD"]), (["MULTI"], ["SET", "b"], ["EXEC"])):
            for words in commands:
                self.call(*words)
        self.check()

    def test_settings_have_the_same_effect(self):
        for letters in ("", "K", "E", "A", "Kg", "E$", "Klsh", "KEzx", "Et", "KEn", "Em", "AKE", "AnmE", "g$lshzxetdKE"):
            self.same("CONFIG", "SET", "notify-keyspace-events", letters)
            self.same("CONFIG", "GET", "notify-keyspace-events")
            for line in ("SET a 1", "RPUSH b 1", "HSET c f 1", "SADD d 1", "ZADD e 1 a", "XADD f 1-1 a b", "GET none", "DEL a b c d e f"):
                self.call(*line.split())
        for letters in ("q", "KEA ", "a"):
            self.same("CONFIG", "SET", "notify-keyspace-events", letters)
        self.check()

    def test_expired_keys_have_the_same_events(self):
        for connection in (self.ours, self.theirs):
            connection.call("CONFIG", "SET", "notify-keyspace-events", "KEA")
        # Of the cleaners, each key on its own: their order is not that of the deadlines in Redis.
        for key in ("a", "b", "c"):
            self.call("SET", key, "v", "PX", "20")
            deadline, found = time.monotonic() + 20, [[], []]
            while not all(found) and time.monotonic() < deadline:
                for events, listener in zip(found, self.listeners):
                    events += listener.events()
                time.sleep(0.02)
            self.assertEqual(*found)
        # Of a write that comes first, or of the cleaner: once in front of the events of the write.
        for line in """SET a w|INCR a|RPUSH a x|RENAME b a|SUNIONSTORE a s|COPY b a|GETSET a x|SETRANGE a 0 x|ZADD a 1 m|DEL a
                       XADD a 1-1 f v|APPEND a x|HSET a f v|SETBIT a 1 1|SORT s ALPHA STORE a|PFADD a x|BITOP NOT a b
                       SETNX a v|MSETNX a v|ZUNIONSTORE a 1 s|SET a v NX|GETDEL a|EXPIRE a 100|LPOP a""".replace("\n", "|").split("|"):
            commands = [line.split()]
            if line == "LPOP a":
                commands = [["MULTI"], ["SET", "a", "1"], ["DEL", "a"], ["EXEC"]]
            for connection in (self.ours, self.theirs):
                for setup in ("DEL a b s", "SET b 1", "SADD s m", "SET a v PX 5"):
                    connection.call(*setup.split())
            time.sleep(0.02)
            for connection in (self.ours, self.theirs):
                connection.call("EXISTS", "a")
            deadline = time.monotonic() + 20
            replies = [connection.send([[as_bytes(word) for word in words] for words in commands])
                       for connection in (self.ours, self.theirs)]
            self.assertEqual(*replies, line)
            found = [listener.events() for listener in self.listeners]
            # What the write leaves alone is told by the cleaner, later.
            while found[0] != found[1] and time.monotonic() < deadline:
                time.sleep(0.05)
                found[0] += self.listeners[0].events()
            self.assertEqual(*found, line)
        self.check()

    def compare_events(self, families):
        generator, done = Generator(SEED), 0
        while done < COMMANDS and len(self.differences) < 5:
            commands = [generator.command(families(generator)) for _ in range(BATCH)]
            kind = generator.random.random()
            if kind < 0.5:
                for words in commands:
                    self.call(*words)
            else:
                if kind < 0.7:
                    commands = [[b"MULTI"], *commands, [b"EXEC"]]
                self.send(commands)
            done += BATCH
        self.check()

    def test_random_commands_of_strings_have_the_same_events(self):
        self.compare_events(Generator.strings)

    def test_random_commands_of_collections_have_the_same_events(self):
        self.compare_events(Generator.collections)

    def test_random_commands_of_large_collections_have_the_same_events(self):
        self.ours.call("CONFIG", "SET", "packed-bytes-max", "12")
        self.compare_events(Generator.collections)

    def test_random_commands_of_streams_have_the_same_events(self):
        # Which consumers are there is not the same: see MAKE_CONSUMERS.
        self.has_consumers = False
        self.compare_events(Generator.streams)


def load_tests(loader, tests, pattern):
    """Those of the base class run in its own file."""
    names = [name for name in loader.getTestCaseNames(EventsBesideRedis) if name in vars(EventsBesideRedis)]
    return unittest.TestSuite(map(EventsBesideRedis, names))


if __name__ == "__main__":
    unittest.main()
