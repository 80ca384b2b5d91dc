"""redis-py: what an application does, in both protocols."""

import threading
import time
import unittest

import redis

from server import ServerTest


class RedisPy(ServerTest):
    protocol = 2

    def client(self, **options):
        return redis.Redis(port=self.server.port, protocol=self.protocol, **options)

    def setUp(self):
        super().setUp()
        self.redis = self.client()

    def tearDown(self):
        self.redis.close()
        super().tearDown()

    def test_strings(self):
        r = self.redis
        self.assertTrue(r.set("a", "1"))
        self.assertEqual(r.get("a"), b"1")
        self.assertIsNone(r.get("none"))
        self.assertIsNone(r.set("a", "2", nx=True))
        self.assertEqual(r.set("a", "2", get=True), b"1")
        self.assertEqual(r.incrby("a", 40), 42)
        self.assertEqual(float(r.incrbyfloat("a", 0.5)), 42.5)
        self.assertEqual(r.append("s", "hello"), 5)
        self.assertEqual(r.setrange("s", 5, " world"), 11)
        self.assertEqual(r.getrange("s", -5, -1), b"world")
        self.assertEqual(r.strlen("s"), 11)
        self.assertTrue(r.mset({"x": 1, "y": 2}))
        self.assertEqual(r.mget("x", "none", "y"), [b"1", None, b"2"])
        self.assertEqual(r.getdel("x"), b"1")
        self.assertEqual(r.exists("x", "y", "y"), 2)
        self.assertEqual(r.delete("x", "y"), 1)
        binary = bytes(range(256)) * 100
        r.set(binary, binary)
        self.assertEqual(r.get(binary), binary)

    def test_expiry(self):
        r = self.redis
        r.set("a", "1", px=60)
        r.set("b", "1", ex=100)
        self.assertTrue(90 < r.ttl("b") <= 100)
        self.assertTrue(r.persist("b"))
        self.assertEqual(r.ttl("b"), -1)
        self.assertEqual(r.ttl("none"), -2)
        time.sleep(0.1)
        self.assertIsNone(r.get("a"))
        self.assertTrue(r.pexpire("b", 30))
        deadline = time.monotonic() + 20
        # Keys go without being read.
        while r.dbsize() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(r.dbsize(), 0)

    def test_scan_finds_every_key(self):
        r = self.redis
        with r.pipeline(transaction=False) as pipe:
            for i in range(5000):
                pipe.set(f"key:{i}", i)
            pipe.execute()
        self.assertEqual(r.dbsize(), 5000)
        found = set(r.scan_iter(match="key:*", count=100))
        self.assertEqual(found, {b"key:%d" % i for i in range(5000)})
        self.assertEqual(len(r.keys("key:1?")), 10)

    def test_databases(self):
        other = self.client(db=3)
        self.redis.set("a", "0")
        other.set("a", "3")
        self.assertEqual(self.redis.get("a"), b"0")
        other.flushdb()
        self.assertEqual(other.dbsize(), 0)
        self.assertEqual(self.redis.dbsize(), 1)
        self.redis.flushall()
        self.assertEqual(self.redis.dbsize(), 0)
        other.close()

    def test_transactions(self):
        r = self.redis
        with r.pipeline() as pipe:
            pipe.set("a", 1).incr("a").get("a")
            self.assertEqual(pipe.execute(), [True, 2, b"2"])
        with r.pipeline() as pipe:
            pipe.watch("a")
            pipe.multi()
            pipe.set("a", 10)
            self.client().set("a", 5)
            with self.assertRaises(redis.WatchError):
                pipe.execute()
        self.assertEqual(r.get("a"), b"5")

    def test_errors(self):
        r = self.redis
        r.set("a", "text")
        with self.assertRaisesRegex(redis.ResponseError, "not an integer"):
            r.incr("a")
        with self.assertRaisesRegex(redis.ResponseError, "unknown command"):
            r.execute_command("NOSUCH")
        with self.assertRaisesRegex(redis.ResponseError, "wrong number of arguments"):
            r.execute_command("GET")

    def test_increments_of_many_threads_all_count(self):
        def work():
            mine = self.client()
            for _ in range(200):
                mine.incr("counter")
            mine.close()

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.redis.get("counter"), b"1600")

    def test_introspection(self):
        r = self.redis
        info = r.info()
        self.assertTrue(info["redis_version"].startswith("7.2."))
        self.assertIn("pando_version", info)
        self.assertIn("maxclients", r.config_get("max*"))
        self.assertTrue(r.client_id() > 0)
        r.client_setname("me")
        self.assertIn(r.client_getname(), ("me", b"me"))
        self.assertTrue(any(client["name"] == "me" for client in r.client_list()))
        self.assertIn("get", r.command())

    def test_acknowledged_writes_outlive_a_kill(self):
        with self.redis.pipeline(transaction=False) as pipe:
            for i in range(500):
                pipe.set(f"key:{i}", i)
            pipe.execute()
        for name in ("kept", "deleted"):
            self.redis.function_load(f"#!lua name={name}\nredis.register_function('{name}', function(keys) return keys end)")
        self.redis.function_delete("deleted")
        self.server.kill()
        self.server.start()
        self.assertEqual(self.redis.dbsize(), 500)
        self.assertEqual(self.redis.fcall("kept", 1, "a"), [b"a"])
        with self.assertRaisesRegex(redis.ResponseError, "Function not found"):
            self.redis.fcall("deleted", 0)
        self.assertEqual(self.redis.get("key:499"), b"499")


class RedisPy3(RedisPy):
    protocol = 3


class Password(ServerTest):
    flags = ("--requirepass", "secret")

    def test_password(self):
        with self.assertRaises(redis.AuthenticationError):
            redis.Redis(port=self.server.port).get("a")
        for protocol in (2, 3):
            r = redis.Redis(port=self.server.port, password="secret", protocol=protocol)
            self.assertIsNone(r.get("a"))
            r.close()


if __name__ == "__main__":
    unittest.main()
