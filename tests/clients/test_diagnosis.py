"""SLOWLOG, LATENCY, MEMORY and INFO as redis-py and redis-cli read them."""

import subprocess
import time
import unittest

import redis

from server import ServerTest


class Diagnosis(ServerTest):
    protocol = 2

    def setUp(self):
        super().setUp()
        self.redis = redis.Redis(port=self.server.port, protocol=self.protocol)
        # Who is told that the store is still opening connects anew, which is commands, too.
        self.redis.ping()

    def tearDown(self):
        self.redis.close()
        super().tearDown()

    def test_slowlog(self):
        r = self.redis
        r.config_set("slowlog-log-slower-than", 0)
        r.set("a", "1")
        r.config_set("slowlog-log-slower-than", -1)
        self.assertEqual(r.slowlog_len(), 2)
        newest = r.slowlog_get(1)[0]
        self.assertEqual(newest["command"], b"SET a 1")
        self.assertGreaterEqual(newest["duration"], 0)
        self.assertLess(abs(newest["start_time"] - time.time()), 60)
        self.assertTrue(newest["client_address"].startswith(b"127.0.0.1:"))
        self.assertTrue(r.slowlog_reset())
        self.assertEqual(r.slowlog_get(), [])

    def test_latency(self):
        r = self.redis
        r.config_set("latency-monitor-threshold", 1)
        with r.pipeline(transaction=False) as pipe:
            for i in range(20000):
                pipe.set(f"key:{i}", i)
            pipe.execute()
        deadline = time.monotonic() + 60
        while not any(event[0] == b"command" for event in r.latency_latest()):
            self.assertLess(time.monotonic(), deadline)
            r.keys("*")
        when, took = r.latency_history("command")[-1]
        self.assertLess(abs(when - time.time()), 120)
        self.assertGreaterEqual(took, 1)
        self.assertGreaterEqual(r.latency_reset(), 1)
        cli = ["redis-cli", "-p", str(self.server.port)]
        for command in (["LATENCY", "HISTOGRAM"], ["LATENCY", "DOCTOR"],
                        ["MEMORY", "DOCTOR"], ["SLOWLOG", "HELP"]):
            done = subprocess.run(cli + command, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(done.stdout.strip())

    def test_memory(self):
        r = self.redis
        r.set("a", "x" * 1000)
        self.assertGreater(r.memory_usage("a"), 1000)
        self.assertIsNone(r.memory_usage("none"))
        stats = {k.decode() if isinstance(k, bytes) else k: v for k, v in r.memory_stats().items()}
        self.assertEqual(stats["keys.count"], 1)
        self.assertEqual(stats["pando.max-memory"], 64 << 20)
        info = r.info("memory")
        self.assertEqual(info["maxmemory"], 64 << 20)
        self.assertEqual(info["used_memory"], sum(info[f"memory_{part}"] for part in (
            "frames", "page_table", "log_buffers", "images", "chunk_buffers", "tables", "old_versions",
            "watches", "cursors", "connections", "statistics")))

    def test_info_by_command(self):
        r = self.redis
        r.get("a")
        everything = r.info("everything")
        self.assertEqual(everything["cmdstat_get"]["calls"], 1)
        self.assertIn("p99", everything["latency_percentiles_usec_get"])
        self.assertEqual(everything["keyspace_misses"], 1)
        self.assertTrue(r.config_resetstat())
        self.assertNotIn("cmdstat_get", r.info("commandstats"))


class DiagnosisInVersion3(Diagnosis):
    protocol = 3


if __name__ == "__main__":
    unittest.main()
