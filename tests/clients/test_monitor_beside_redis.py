"""The same commands to pando and to redis-server, and the same lines of MONITOR, in the same order.

Needs a redis-server, as test_beside_redis; COMMANDS=NUMBER and SEED=NUMBER choose others than the
usual random commands.
"""

import os
import re
import unittest

from test_beside_redis import BATCH, SEED, BesideRedis, Connection, Generator, as_bytes

COMMANDS = int(os.environ.get("COMMANDS", 6000))
LINE = re.compile(rb'\+\d+\.\d{6} \[(\d+) (127\.0\.0\.1:\d+|lua)\] (".*")')
DONE = b'"ping" "done"'

# One line, one client; commands of a line are split by |.
CASES = """
PING|ping x|ECHO|nosuch a|GET|SELECT 3|SELECT 99|DBSIZE|FLUSHDB|TIME
AUTH x|AUTH default x|HELLO 2 AUTH default x|HELLO 3 SETNAME me|HELLO 9|HELLO x
CLIENT ID|CLIENT LIST|CLIENT SETNAME x|CLIENT GETNAME|CLIENT REPLY ON|CLIENT NO-EVICT ON|CLIENT HELP
CONFIG GET port|CONFIG SET port|CONFIG HELP|SLOWLOG LEN|LATENCY RESET|MEMORY DOCTOR|ACL WHOAMI
COMMAND COUNT|COMMAND DOCS get|INFO server|LASTSAVE|LOLWUT|ROLE|OBJECT HELP|DEBUG JMAP|RESET
MULTI|SET a 1|MULTI|LPUSH a 1|EXEC|MULTI|GET a|DISCARD|EXEC|DISCARD|MULTI|nosuch|GET a|EXEC|MULTI|EXEC x|EXEC x
WATCH a b|UNWATCH|WATCH a|SET a 2|MULTI|GET a|EXEC|MULTI|MONITOR|CLIENT ID|SELECT 2|GET a|EXEC
SUBSCRIBE a|UNSUBSCRIBE a|PSUBSCRIBE *|PUNSUBSCRIBE|PUBLISH a x|PUBSUB CHANNELS|SPUBLISH a x
LPUSH l 1|BLPOP l 1|BLPOP l 0.01|XADD s 1-1 a b|XREAD BLOCK 5 STREAMS s $|WAIT 0 0|BLMOVE l m LEFT LEFT 0.01
SET k v EX 100|GETEX k PERSIST|SORT l BY nosort|OBJECT ENCODING k|EXPIRE k 0|SCAN 0|KEYS *|RANDOMKEY
SCRIPT LOAD nonsense(|SCRIPT EXISTS x|SCRIPT FLUSH|EVALSHA 0000 0|EVALSHA|FCALL nothing 0|FUNCTION LIST|FUNCTION FLUSH
"""

SCRIPTS = (
    "return 1",
    "foo(",
    "error('x')",
    "return redis.call('incr', 'n')",
    "redis.call('set', 'a', 'x\\ny\"z\\0'); return redis.call('get', 'a')",
    "redis.call('select', 2); redis.call('set', 'b', 1); return redis.call('time')",
    "redis.pcall('nosuch'); redis.pcall('get'); redis.pcall('config', 'get', 'x'); return redis.pcall('lpush', 'a', 1)",
    "redis.call('set', 'a', 1); redis.call('lpush', 'a', 1); redis.call('set', 'a', 2)",
    "for i = 1, 100 do redis.call('rpush', 'list', i) end return redis.call('llen', 'list')",
    "return redis.call('blpop', 'none', 0)",
    "redis.call('publish', 'a', 'x'); return redis.call('ping')",
    "return redis.call('eval', 'return 1', 0)",
    "return redis.call('command', 'count')",
)


class Monitor:
    """Sees what is executed."""

    def __init__(self, port):
        self.connection, self.other = Connection(port), Connection(port)
        assert self.connection.call("MONITOR") == b"+OK"

    def lines(self):
        """Database, caller and command of each line so far; all clients are one."""
        self.other.call("ping", "done")
        found = []
        while True:
            line = self.connection.line()
            database, caller, command = LINE.fullmatch(line).groups()
            if command == DONE:
                return found
            found.append((database, caller == b"lua", command))

    def close(self):
        self.connection.close()
        self.other.close()


class MonitorBesideRedis(BesideRedis):
    def setUp(self):
        super().setUp()
        self.monitors = [Monitor(of.socket.getpeername()[1]) for of in (self.ours, self.theirs)]

    def tearDown(self):
        for monitor in self.monitors:
            monitor.close()
        super().tearDown()

    def same_lines(self, commands):
        ours, theirs = (monitor.lines() for monitor in self.monitors)
        self.assertEqual(ours, theirs, commands)
        return ours

    def send(self, commands):
        commands = [[as_bytes(word) for word in words] for words in commands]
        for connection in (self.ours, self.theirs):
            connection.send(commands)
        return self.same_lines(commands)

    def test_cases_have_the_same_lines(self):
        for line in CASES.strip().splitlines():
            for command in line.split("|"):
                self.send([command.split()])
            for connection in (self.ours, self.theirs):
                connection.call("RESET")
            self.same_lines("RESET")

    def test_scripts_have_the_same_lines(self):
        count = 0
        for script in SCRIPTS:
            count += len(self.send([["EVAL", script, "0"]]))
            count += len(self.send([["MULTI"], ["GET", "a"], ["EVAL", script, "1", "k"], ["INCR", "n"], ["EXEC"]]))
        self.send([["FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function(k, a) return redis.call('incr', k[1]) end)"]])
        count += len(self.send([["FCALL", "f", "1", "n"]]))
        self.assertGreater(count, 260)

    def test_random_commands_have_the_same_lines(self):
        generator, done = Generator(SEED), 0
        while done < COMMANDS:
            commands = [generator.command(generator.strings() + generator.collections() + generator.streams())
                        for _ in range(BATCH)]
            if generator.random.random() < 0.3:
                commands = [[b"MULTI"], *commands, [b"EXEC"]]
            self.send(commands)
            done += BATCH


def load_tests(loader, _tests, _pattern):
    # The tests of the base run in its own file.
    names = [name for name in loader.getTestCaseNames(MonitorBesideRedis) if name in vars(MonitorBesideRedis)]
    return unittest.TestSuite(map(MonitorBesideRedis, names))


if __name__ == "__main__":
    unittest.main()
