"""redis-cli and redis-benchmark."""

import subprocess
import time
import unittest

from server import ServerTest


class RedisTools(ServerTest):
    def setUp(self):
        super().setUp()
        deadline = time.monotonic() + 60
        while self.cli("PING") != "PONG":
            self.assertLess(time.monotonic(), deadline)

    def cli(self, *words, text=None):
        command = ["redis-cli", "-p", str(self.server.port), *words]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_commands(self):
        for flags in ((), ("-3",)):
            self.assertEqual(self.cli(*flags, "SET", "a", "1"), "OK")
            self.assertEqual(self.cli(*flags, "GET", "a"), "1")
            self.assertEqual(self.cli(*flags, "INCRBY", "a", "41"), "42")
            self.assertEqual(self.cli(*flags, "TTL", "a"), "-1")
            self.assertEqual(self.cli(*flags, "TYPE", "a"), "string")
        self.assertIn("redis_version:7.2.", self.cli("INFO", "server"))
        self.assertIn("unknown command", self.cli("NOSUCH"))

    def test_a_session_with_several_lines(self):
        text = "MULTI\nSET a 1\nINCR a\nEXEC\n"
        self.assertEqual(self.cli(text=text).split(), ["OK", "QUEUED", "QUEUED", "OK", "2"])

    def test_mass_insertion_and_scan(self):
        lines = "".join(
            f"*3\r\n$3\r\nSET\r\n${len(f'key:{i}')}\r\nkey:{i}\r\n$1\r\nx\r\n" for i in range(3000))
        self.assertIn("errors: 0, replies: 3000", self.cli("--pipe", text=lines))
        self.assertEqual(len(self.cli("--scan", "--pattern", "key:*").split()), 3000)
        self.assertEqual(self.cli("DBSIZE"), "3000")

    def test_benchmark(self):
        for flags in (("-P", "16"), ("-c", "20"), ("-3", "-P", "4")):
            command = ["redis-benchmark", "-p", str(self.server.port), "-n", "10000", "-r", "1000",
                       "-t", "ping,set,get,incr,mset", "--csv", *flags]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertNotIn("rror", done.stdout + done.stderr)
            for test in ("SET", "GET", "INCR", "MSET"):
                self.assertIn(f'"{test}', done.stdout)

    def test_shutdown_ends_the_process(self):
        self.cli("SET", "a", "1")
        subprocess.run(["redis-cli", "-p", str(self.server.port), "SHUTDOWN"],
                       capture_output=True, timeout=60)
        self.assertEqual(self.server.process.wait(timeout=40), 0)
        self.server.process.stdout.close()


if __name__ == "__main__":
    unittest.main()
