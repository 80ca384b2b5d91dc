"""DUMP of one server and RESTORE in the other: the same values, with all they have.

Needs a redis-server, as test_beside_redis; COMMANDS=NUMBER and SEED=NUMBER choose others than the
usual random commands that make the values.
"""

import os
import random
import socket
import struct
import subprocess
import time
import unittest

import test_beside_redis
from server import PANDO
from streams_of_redis import without_times
from test_beside_redis import Generator, comparable

COMMANDS = int(os.environ.get("COMMANDS", 4000))
SEED = int(os.environ.get("SEED", 1))
BATCH = 40

SHOWN = {
    b"string": [[b"GET"]],
    b"list": [[b"LRANGE", b"0", b"-1"]],
    b"set": [[b"SMEMBERS"]],
    b"hash": [[b"HGETALL"]],
    b"zset": [[b"ZRANGE", b"0", b"-1", b"WITHSCORES"]],
    b"stream": [[b"XRANGE", b"-", b"+"], [b"XINFO", b"STREAM", b"FULL", b"COUNT", b"0"]],
}


class DumpsBesideRedis(test_beside_redis.ServersBesideEachOther):
    def shown(self, connection, key):
        """All that a key has."""
        kind = connection.call("TYPE", key)[1:]
        replies = []
        for name, *rest in SHOWN[kind]:
            words = [name, key, *rest] if name != b"XINFO" else [name, rest[0], key, *rest[1:]]
            reply = connection.send([words])[0]
            replies.append(without_times(words, comparable(words, reply)))
        return [kind, *replies]

    def carried(self, key, source, target):
        """Carries a key from one server to another name in the other one, and compares them."""
        payload = source.call("DUMP", key)
        if payload == b"$-1":
            self.assertEqual(source.call("EXISTS", key), b":0")
            return False
        target.call("DEL", b"copy")
        self.assertEqual(target.call("RESTORE", b"copy", 0, payload[1]), b"+OK", (key, payload))
        self.assertEqual(self.shown(target, b"copy"), self.shown(source, key), (key, payload))
        again = target.call("DUMP", b"copy")
        source.call("DEL", b"back")
        self.assertEqual(source.call("RESTORE", b"back", 0, again[1]), b"+OK", (key, again))
        self.assertEqual(self.shown(source, b"back"), self.shown(source, key), (key, again))
        for connection, name in (source, b"back"), (target, b"copy"):
            connection.call("DEL", name)
        return True

    def carry_all(self, families):
        generator, done, kinds = Generator(SEED), 0, set()
        while done < COMMANDS:
            commands = [generator.command(families(generator)) for _ in range(BATCH)]
            # All keys are in one database.
            commands = [words for words in commands if words[0].upper() not in (b"SELECT", b"SWAPDB", b"MOVE")]
            self.both(commands)
            for source, target in (self.ours, self.theirs), (self.theirs, self.ours):
                for key in sorted(word[1] for word in source.call("KEYS", "*")[1]):
                    if self.carried(key, source, target):
                        kinds.add(source.call("TYPE", key))
            done += BATCH
        return kinds

    def test_random_values_come_over(self):
        kinds = self.carry_all(Generator.strings)
        self.assertIn(b"+string", kinds)

    def test_random_collections_come_over(self):
        kinds = self.carry_all(Generator.collections)
        self.assertGreaterEqual(kinds, {b"+list", b"+set", b"+hash", b"+zset"})

    def test_random_collections_come_over_that_are_large_here(self):
        self.ours.call("CONFIG", "SET", "packed-bytes-max", "12")
        self.carry_all(Generator.collections)

    def test_random_streams_come_over(self):
        kinds = self.carry_all(Generator.streams)
        self.assertIn(b"+stream", kinds)

    def test_values_of_all_sizes_come_over(self):
        random_bytes = random.Random(SEED)
        values = {b"empty": b"", b"number": b"-12345", b"long": b"0123456789" * 9999}
        for number, length in enumerate((21, 63, 64, 16383, 16384, 1 << 20, 5 << 20)):
            values[b"random%d" % number] = random_bytes.randbytes(length)
            values[b"same%d" % number] = b"ab" * min(length, 2 << 20)
        for key, value in values.items():
            self.both([[b"SET", key, value]])
        for name, count in (b"few", 5), (b"some", 200), (b"many", 30000):
            words = [b"%s%d" % (b"x" * (number % 90), number) for number in range(count)]
            numbers = [b"%d" % (number * 1000003 - 9) for number in range(count)]
            for first in range(0, count, 500):
                some = words[first:first + 500]
                pairs = [word for pair in zip(some, numbers[first:first + 500]) for word in pair]
                self.both([
                    [b"RPUSH", name + b"-list", *some], [b"SADD", name + b"-set", *some],
                    [b"SADD", name + b"-numbers", *numbers[first:first + 500]],
                    [b"HSET", name + b"-hash", *pairs],
                    [b"ZADD", name + b"-zset", *pairs[::-1]],
                ])
        self.both([[b"ZADD", b"scores", b"inf", b"a", b"-inf", b"b", b"1e-300", b"c", b"0.5", b"d", b"-0", b"e"]])
        # Entries with the fields of the first one of their listpack, and with others.
        for number in range(1000):
            fields = [b"f", b"x" * (number % 300)] if number % 3 else [b"g", b"%d" % number, b"h", b"-7"]
            self.both([[b"XADD", b"stream", b"%d-%d" % (number // 7 + 5, number), *fields]])
        self.both([[b"XDEL", b"stream", b"5-3"], [b"XGROUP", b"CREATE", b"stream", b"g", b"0"],
                   [b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"90", b"STREAMS", b"stream", b">"],
                   [b"XACK", b"stream", b"g", b"6-8"]])
        # An XSETID that 7.2 refuses.
        self.theirs.send([[b"XADD", b"set-back", b"10-1", b"f", b"v"], [b"XDEL", b"set-back", b"10-1"], [b"XSETID", b"set-back", b"5-1"]])
        # Lengths of which those in listpacks begin to have one byte more.
        self.theirs.call("CONFIG", "SET", "list-max-listpack-size", "-5")
        for length in *range(120, 130), *range(16370, 16390), *range(2097140, 2097155):
            name, value = b"%d" % length, b"v" * length
            self.both([[b"XADD", b"stream" + name, b"5-1", b"f", value], [b"XADD", b"stream" + name, b"5-2", b"f", b"w"],
                       [b"RPUSH", b"list" + name, value, b"w"]])
        for source, target in (self.ours, self.theirs), (self.theirs, self.ours):
            for key in sorted(word[1] for word in source.call("KEYS", "*")[1]):
                self.assertTrue(self.carried(key, source, target))

    def test_what_old_versions_wrote_is_read(self):
        """Ziplists, zipmaps and scores as texts: redis-server still reads them, and so checks them here."""
        def ziplist(*entries):
            body, before, last = b"", 0, 10
            for entry in entries:
                last = 10 + len(body)
                head = bytes([len(entry)]) if len(entry) < 64 else struct.pack(">H", 0x4000 | len(entry))
                whole = (bytes([before]) if before < 254 else b"\xfe" + struct.pack("<I", before)) + head + entry
                body, before = body + whole, len(whole)
            return struct.pack("<IIH", 11 + len(body), last, len(entries)) + body + b"\xff"

        def string(text):
            return struct.pack(">H", 0x4000 | len(text)) + text

        words = [b"a", b"bc" * 40, b"-7", b"100", b"", b"x" * 300]
        values = {
            b"ziplist of a list": b"\x0a" + string(ziplist(*words)),
            b"ziplists of a list": b"\x0e\x02" + string(ziplist(*words)) + string(ziplist(b"z")),
            b"ziplist of a hash": b"\x0d" + string(ziplist(*words)),
            b"ziplist of a sorted set": b"\x0c" + string(ziplist(b"m", b"1.5", b"n", b"inf")),
            b"zipmap": b"\x09" + string(b"\x02\x01f\x02\x01v1\0\x03fff\x02\x03v2...\xff"),
            b"scores as texts": b"\x03\x03\x01a\x031.5\x01b\xff\x01c\xfe",
            b"elements of a list": b"\x01\x02\x01a\xc1\x2c\x01",
        }
        for name, value in values.items():
            key = name.replace(b" ", b"-")
            payload = value + b"\x06\0"
            payload += struct.pack("<Q", crc64(payload))
            self.assertEqual(self.theirs.call("RESTORE", key, 0, payload), b"+OK", name)
            self.assertEqual(self.ours.call("RESTORE", key, 0, payload), b"+OK", name)
            self.assertEqual(self.shown(self.ours, key), self.shown(self.theirs, key), name)

    def fill_with_long_values(self, connection):
        """Values that an import sends element by element."""
        words = [b"%030d" % (number * 7919 % 10007) + b"x" * (number % 60) for number in range(15000)]
        for start in range(0, len(words), 500):
            some = words[start:start + 500]
            pairs = [word for number, text in enumerate(some) for word in (b"%d" % (start + number), text)]
            scored = [word for number, text in enumerate(some) for word in (b"%.3f" % ((start + number) / 8), text)]
            connection.send([
                [b"RPUSH", b"longer", *some], [b"SADD", b"wide", *some], [b"HSET", b"deep", *pairs], [b"ZADD", b"high", *scored],
                *[[b"XADD", b"flow", b"%d-%d" % (1 + start, number), b"f", text, b"g", b"1"] for number, text in enumerate(some)],
            ])
        connection.send([
            [b"PEXPIREAT", b"deep", b"9999999999999"], [b"ZADD", b"high", b"inf", b"i", b"-inf", b"j", b"-0", b"k"],
            [b"XDEL", b"flow", b"1-3", b"501-0"], [b"XGROUP", b"CREATE", b"flow", b"g", b"0"], [b"XGROUP", b"CREATE", b"flow", b"h", b"$"],
            [b"XREADGROUP", b"GROUP", b"g", b"a", b"COUNT", b"300", b"STREAMS", b"flow", b">"],
            [b"XREADGROUP", b"GROUP", b"g", b"b", b"COUNT", b"300", b"STREAMS", b"flow", b">"],
            [b"XACK", b"flow", b"g", b"1-5"], [b"XGROUP", b"CREATECONSUMER", b"flow", b"h", b"idle"],
            [b"SET", b"packed", b"abcd" * 500000],
        ])

    def test_a_file_of_redis_is_imported(self):
        """What random commands have made, SAVE and pando import; files that old versions may have written, too."""
        generator = Generator(SEED)
        for families in Generator.strings, Generator.collections, Generator.streams:
            for _ in range(COMMANDS // BATCH):
                commands = [generator.command(families(generator)) for _ in range(BATCH)]
                self.theirs.send([words for words in commands if words[0].upper() not in (b"SELECT", b"SWAPDB", b"MOVE")])
        for number in range(30):
            self.theirs.send([[b"SELECT", b"%d" % (number % 16)], [b"SETEX", b"timed%d" % number, b"%d" % (1000 + number), b"v" * number * 99]])
        self.theirs.send([[b"RPUSH", b"long", *[b"%d" % (number ** 5) for number in range(9000)]]])
        self.fill_with_long_values(self.theirs)
        for packed in b"yes", b"no":
            self.theirs.call("CONFIG", "SET", "rdbcompression", packed)
            self.assertEqual(self.theirs.call("SAVE"), b"+OK")
            file = os.path.join(self.place.name, "dump.rdb")
            self.ours.call("FLUSHALL")
            done = subprocess.run([PANDO, "import", file, "--port", str(self.server.port)], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            for number in range(16):
                for connection in self.ours, self.theirs:
                    self.assertEqual(connection.call("SELECT", number), b"+OK")
                keys = [sorted(word[1] for word in of.call("KEYS", "*")[1]) for of in (self.ours, self.theirs)]
                self.assertEqual(*keys)
                for key in keys[0]:
                    self.assertEqual(self.shown(self.ours, key), self.shown(self.theirs, key), key)
                    self.assertEqual(self.ours.call("PEXPIRETIME", key), self.theirs.call("PEXPIRETIME", key), key)

    def test_redis_reads_an_exported_file(self):
        """What random commands have made here, in all databases, and functions."""
        generator = Generator(SEED)
        for families in Generator.strings, Generator.collections, Generator.streams:
            for number in range(COMMANDS // BATCH):
                commands = [generator.command(families(generator)) for _ in range(BATCH)]
                self.ours.send([[b"SELECT", b"%d" % (number % 4)], *(
                    words for words in commands if words[0].upper() not in (b"SELECT", b"SWAPDB", b"MOVE"))])
        for number in range(30):
            self.ours.send([[b"SELECT", b"%d" % (number % 16)], [b"SETEX", b"timed%d" % number, b"%d" % (1000 + number), b"v" * number * 99]])
        self.fill_with_long_values(self.ours)
        library = b"#!lua name=lib\nredis.register_function('answer', function() return 42 end)"
        self.assertEqual(self.ours.call("FUNCTION", "LOAD", library)[1], b"lib")
        place = os.path.join(self.place.name, "exported")
        os.mkdir(place)
        file = os.path.join(place, "dump.rdb")
        done = subprocess.run([PANDO, "export", file, "--port", str(self.server.port)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        reader = subprocess.Popen(
            [test_beside_redis.REDIS, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", place],
            stdout=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"})
        try:
            theirs = self.connect(port)
            shown = 0
            for number in range(16):
                for connection in self.ours, theirs:
                    self.assertEqual(connection.call("SELECT", number), b"+OK")
                keys = [sorted(word[1] for word in of.call("KEYS", "*")[1]) for of in (self.ours, theirs)]
                self.assertEqual(*keys)
                for key in keys[0]:
                    self.assertEqual(self.shown(self.ours, key), self.shown(theirs, key), key)
                    self.assertEqual(self.ours.call("PEXPIRETIME", key), theirs.call("PEXPIRETIME", key), key)
                shown += len(keys[0])
            self.assertGreater(shown, 50)
            self.assertEqual(theirs.call("FCALL", "answer", 0), b":42")
            theirs.close()
        finally:
            reader.terminate()
            reader.wait(timeout=20)

    def test_migrate_of_redis_moves_keys_here(self):
        """With a password, into another database, with their deadlines, and with what is there already."""
        generator = Generator(SEED)
        for families in Generator.strings, Generator.collections, Generator.streams:
            for _ in range(COMMANDS // BATCH):
                commands = [generator.command(families(generator)) for _ in range(BATCH)]
                self.theirs.send([words for words in commands if words[0].upper() not in (b"SELECT", b"SWAPDB", b"MOVE")])
        self.theirs.send([[b"SETEX", b"timed", b"1000", b"v"], [b"DEL", b"there"], [b"SET", b"there", b"old"]])
        keys = [word[1] for word in self.theirs.call("KEYS", "*")[1]]
        self.assertGreater(len(keys), 9)
        self.assertEqual(self.ours.call("CONFIG", "SET", "requirepass", "secret"), b"+OK")
        try:
            to, rest = ("MIGRATE", "127.0.0.1", self.server.port), ("", 3, 20000, "COPY")
            self.assertIn(b"NOAUTH", self.theirs.call(*to, *rest, "KEYS", *keys))
            self.assertEqual(self.theirs.call(*to, *rest, "AUTH", "secret", "KEYS", *keys), b"+OK")
            self.ours.call("SELECT", 3)
            self.assertEqual(sorted(word[1] for word in self.ours.call("KEYS", "*")[1]), sorted(keys))
            for key in keys:
                self.assertEqual(self.shown(self.ours, key), self.shown(self.theirs, key), key)
            self.assertIn(self.ours.call("TTL", "timed"), (b":1000", b":999", b":998", b":997"))
            self.theirs.call("SET", "there", "new")
            one = (*to, "there", 3, 20000)
            self.assertIn(b"BUSYKEY", self.theirs.call(*one, "AUTH2", "default", "secret"))
            self.assertEqual(self.theirs.call(*one, "REPLACE", "AUTH2", "default", "secret"), b"+OK")
            self.assertEqual(self.ours.call("GET", "there")[1], b"new")
            self.assertEqual(self.theirs.call("EXISTS", "there"), b":0")
        finally:
            self.ours.call("CONFIG", "SET", "requirepass", "")

    def test_small_print(self):
        self.both([[b"SET", b"a", b"b"], [b"RPUSH", b"l", b"1"]])
        payload = self.theirs.call("DUMP", "a")[1]
        wrong = payload[:-1] + bytes([payload[-1] ^ 1])
        for rest in (
                (b"k", b"0", payload), (b"k", b"0", payload), (b"k", b"0", payload, b"REPLACE"), (b"l", b"0", payload),
                (b"l", b"0", wrong), (b"l", b"0", wrong, b"replace"), (b"l", b"x", payload, b"replace"), (b"n", b"-1", payload),
                (b"n", b"1", payload, b"absttl"), (b"l", b"1", payload, b"absttl", b"replace"), (b"n", b"0", b""), (b"n", b"0", b"x"),
                (b"n", b"0", payload, b"idletime"), (b"n", b"0", payload, b"idletime", b"-1"), (b"n", b"0", payload, b"idletime", b"x"),
                (b"n", b"0", payload, b"idletime", b"7"), (b"n2", b"0", payload, b"freq", b"256"), (b"n2", b"0", payload, b"freq", b"-1"),
                (b"n2", b"0", payload, b"freq", b"5"), (b"n3", b"0", payload, b"freq", b"5", b"idletime", b"5"),
                (b"n3", b"0", payload, b"idletime", b"5", b"freq", b"5"), (b"n3", b"0", payload, b"x"), (b"n3", b"0"),
                (b"n3", b"100000", payload, b"replace", b"replace"), (b"n4", b"9999999999999", payload, b"ABSTTL")):
            self.both([[b"RESTORE", *rest], [b"EXISTS", rest[0]]])
        self.both([[b"TTL", b"n3"], [b"PEXPIRETIME", b"n4"], [b"DUMP", b"none"], [b"DUMP"], [b"GET", b"k"]])
        # In a transaction and in a script.
        self.both([[b"MULTI"], [b"RESTORE", b"t", b"0", payload], [b"GET", b"t"], [b"EXEC"],
                   [b"EVAL", b"return redis.call('RESTORE', KEYS[1], 0, ARGV[1])", b"1", b"s", payload], [b"GET", b"s"]])

    def test_damaged_payloads_are_refused_and_leave_the_server_whole(self):
        self.both([[b"RPUSH", b"l", b"1", b"two", b"3" * 70], [b"SADD", b"s", b"1", b"2"], [b"ZADD", b"z", b"1.5", b"a"],
                   [b"HSET", b"h", b"f", b"v"], [b"XADD", b"x", b"1-1", b"f", b"v"], [b"XGROUP", b"CREATE", b"x", b"g", b"0"],
                   [b"XREADGROUP", b"GROUP", b"g", b"c", b"STREAMS", b"x", b">"]])
        chosen, until = random.Random(SEED), time.monotonic() + 5
        while time.monotonic() < until:
            source = chosen.choice((self.ours, self.theirs))
            content = bytearray(source.call("DUMP", chosen.choice(b"lszhx".decode()))[1][:-8])
            for _ in range(chosen.randint(1, 3)):
                at = chosen.randrange(len(content) - 2)
                content[at] = chosen.choice((0, 1, 255, content[at] ^ 1 << chosen.randrange(8), chosen.randrange(256)))
            payload = bytes(content) + struct.pack("<Q", crc64(content))
            reply = self.ours.call("RESTORE", "damaged", 0, payload, "REPLACE")
            if reply == b"+OK":
                # What is taken can be read, dumped, and taken by redis-server.
                if self.ours.call("EXISTS", "damaged") == b":1":
                    self.shown(self.ours, b"damaged")
                    again = self.ours.call("DUMP", "damaged")[1]
                    self.assertEqual(self.theirs.call("RESTORE", "damaged", 0, again, "REPLACE"), b"+OK", payload)
            else:
                self.assertEqual(reply, b"-ERR Bad data format", payload)


def crc64(data):
    """The CRC64 of Redis."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x95AC9329AC4BC9B5 if crc & 1 else 0)
    return crc


if __name__ == "__main__":
    unittest.main()
