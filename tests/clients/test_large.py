"""Values of many times the server's memory: checked byte for byte, with what the server holds.

PANDO_LARGE_MIB sets the size of each value (64; by hand 256).
"""

import hashlib
import os
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import redis

from server import ServerTest

MIB = 1 << 20
SIZE = int(os.environ.get("PANDO_LARGE_MIB", "64")) * MIB
CLIENTS = 10
# Of about 1 KiB each: more than fit into memory.
SMALL_KEYS = 100_000
# The server's budget is 64 MiB; the rest is its code, stacks and what the allocator keeps.
RESIDENT_MAX = 90 * MIB


class Stream:
    """The bytes of one value, which repeat nowhere."""

    def __init__(self, seed, size=SIZE):
        self.size = size
        self.block = hashlib.shake_128(str(seed).encode()).digest(MIB)

    def piece(self, number):
        return number.to_bytes(8, "big") + self.block[8:]

    def digest(self):
        digest = hashlib.sha256()
        for number in range(self.size // MIB):
            digest.update(self.piece(number))
        return digest.hexdigest()


class Raw:
    """A connection without a client library, so that nothing hides what is sent."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb")

    def set(self, key, stream):
        head = f"*3\r\n$3\r\nSET\r\n${len(key)}\r\n{key}\r\n${stream.size}\r\n"
        self.socket.sendall(head.encode())
        for number in range(stream.size // MIB):
            self.socket.sendall(stream.piece(number))
        self.socket.sendall(b"\r\n")
        return self.file.readline()

    def get(self, key, pause=0.0):
        self.socket.sendall(f"*2\r\n$3\r\nGET\r\n${len(key)}\r\n{key}\r\n".encode())
        line = self.file.readline()
        assert line[:1] == b"$", line
        left = int(line[1:])
        digest = hashlib.sha256()
        while left > 0:
            piece = self.file.read(min(left, 256 * 1024))
            assert piece, "the connection has ended"
            digest.update(piece)
            left -= len(piece)
            time.sleep(pause)
        assert self.file.read(2) == b"\r\n"
        return digest.hexdigest()

    def close(self):
        self.file.close()
        self.socket.close()


class Resident:
    """The most that a process holds while the block runs."""

    def __init__(self, process):
        self.path = f"/proc/{process.pid}/status"
        self.most = 0
        self.ended = threading.Event()

    def look(self):
        with open(self.path) as status:
            for line in status:
                if line.startswith("VmRSS"):
                    self.most = max(self.most, int(line.split()[1]) * 1024)

    def watch(self):
        while not self.ended.wait(0.01):
            self.look()

    def __enter__(self):
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def at_once(work):
    """Runs `work(0)` to `work(CLIENTS - 1)` in threads; their results."""
    results = [None] * CLIENTS
    def run(number):
        try:
            results[number] = work(number)
        except Exception as error:  # The test compares it.
            results[number] = error
    threads = [threading.Thread(target=run, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class LargeValues(ServerTest):
    def setUp(self):
        super().setUp()
        self.client = redis.Redis(port=self.server.port, socket_timeout=120)
        deadline = time.monotonic() + 60
        while True:
            try:
                self.client.ping()
                break
            except redis.exceptions.RedisError:
                self.assertLess(time.monotonic(), deadline)

    def tearDown(self):
        self.client.close()
        super().tearDown()

    def test_ten_writers_and_ten_slow_readers_stay_within_the_budget(self):
        # Frames are full of pages before.
        for start in range(0, SMALL_KEYS, 1000):
            keys = range(start, start + 1000)
            self.client.mset({f"small:{key}": str(key).encode() * 200 for key in keys})
        streams = [Stream(number) for number in range(CLIENTS)]
        clients = [Raw(self.server.port) for _ in streams]
        with Resident(self.server.process) as resident:
            answers = at_once(lambda number: clients[number].set(f"k{number}", streams[number]))
            self.assertEqual(answers, [b"+OK\r\n"] * CLIENTS)
        written = resident.most
        self.assertLess(written, RESIDENT_MAX)
        self.assertEqual(self.client.dbsize(), SMALL_KEYS + CLIENTS)
        # Each reader pauses; meanwhile every value is replaced.
        with Resident(self.server.process) as resident:
            def replace():
                for number in range(CLIENTS):
                    self.client.set(f"k{number}", b"small")
            replacing = threading.Timer(0.5, replace)
            replacing.start()
            pause = 2.0 / (SIZE / (256 * 1024))
            digests = at_once(lambda number: clients[number].get(f"k{number}", pause))
            replacing.join()
        self.assertEqual(digests, [stream.digest() for stream in streams])
        self.assertLess(resident.most, RESIDENT_MAX)
        self.assertEqual(self.client.mget([f"k{number}" for number in range(CLIENTS)]),
                         [b"small"] * CLIENTS)
        for client in clients:
            client.close()
        print(f"resident at most {written / MIB:.1f} MiB while written, "
              f"{resident.most / MIB:.1f} MiB while read", end=" ")

    def test_the_client_library_takes_and_gives_large_values(self):
        value = Stream("library", 24 * MIB)
        value = b"".join(value.piece(number) for number in range(24))
        self.assertTrue(self.client.set("k", value))
        self.assertEqual(self.client.get("k"), value)
        self.assertEqual(self.client.strlen("k"), len(value))
        self.assertEqual(self.client.getrange("k", 1 << 20, (1 << 20) + 99),
                         value[1 << 20:(1 << 20) + 100])
        self.assertEqual(self.client.append("k", b"more"), len(value) + 4)
        self.assertEqual(self.client.setrange("k", 3, b"changed"), len(value) + 4)
        value = value[:3] + b"changed" + value[10:] + b"more"
        pipe = self.client.pipeline(transaction=True)
        pipe.get("k").set("other", value).strlen("other").delete("k")
        got, done, length, deleted = pipe.execute()
        self.assertEqual((got == value, done, length, deleted), (True, True, len(value), 1))
        self.assertEqual(self.client.get("other"), value)
        # What is acknowledged is there after a crash.
        self.server.kill()
        self.server.start()
        self.client.close()
        self.assertEqual(self.client.get("other"), value)
        self.assertEqual(self.client.dbsize(), 1)

    def test_redis_cli_sets_from_a_file_and_gets_into_one(self):
        cli = ["redis-cli", "-p", str(self.server.port)]
        stream = Stream("file", 48 * MIB)
        with tempfile.TemporaryFile() as file, tempfile.TemporaryFile() as got:
            for number in range(48):
                file.write(stream.piece(number))
            file.seek(0)
            done = subprocess.run([*cli, "-x", "SET", "k"], stdin=file, capture_output=True,
                                  timeout=120)
            self.assertEqual(done.stdout, b"OK\n")
            subprocess.run([*cli, "GET", "k"], stdout=got, check=True, timeout=120)
            got.seek(0)
            digest = hashlib.sha256(got.read(stream.size))
            self.assertEqual(digest.hexdigest(), stream.digest())
            self.assertEqual(got.read(), b"\n")


if __name__ == "__main__":
    unittest.main()
