"""The same keys are tracked, changed and told by pando and by redis-server.

Needs a redis-server, as test_beside_redis. What a client is told is compared as a set after each
command: one message may have several keys in pando, and Redis sends one for each. SEED=NUMBER and
TRACKED=NUMBER choose others than the usual random commands.
"""

import os
import random
import time
import unittest

from test_beside_redis import BesideRedis, Connection, as_bytes

SEED = int(os.environ.get("SEED", 1))
TRACKED = int(os.environ.get("TRACKED", 400))

KEYS = ["a", "ab", "b", "c", "abc"]


class Client:
    """A connection that tells messages from replies."""

    def __init__(self, port, *hello):
        self.connection = Connection(port)
        self.told = []
        if hello:
            self.call("HELLO", *hello)

    def close(self):
        self.connection.close()

    def is_message(self, reply):
        if isinstance(reply, list) and reply[0] == b">":
            return True
        return isinstance(reply, list) and reply[0] == b"*" and reply[1][:1] == [[b"$", b"message"]]

    def note(self, message):
        kind, value = message[1][0][1], message[1][-1]
        if isinstance(value, list) and value[0] == b"*":
            self.told.extend((message[0], kind, key[1]) for key in value[1])
        else:
            # Redis writes null as the protocol of the client says that has sent it here.
            self.told.append((message[0], kind, None if value in (b"_", b"$-1") else value))

    def call(self, *words):
        words = [as_bytes(word) for word in words]
        reply = self.connection.send([words])[0]
        while self.is_message(reply):
            self.note(reply)
            reply = self.connection.reply()
        return reply

    def news(self):
        """Returns what it was told since the last call, each once."""
        self.call("PING")
        told, self.told = self.told, []
        if any(value is None for _, _, value in told):
            # Who forgets everything need not be told of keys besides.
            told = [item for item in told if item[2] is None]
        return sorted(set(told), key=repr)


class Pair:
    """The same clients of both servers."""

    def __init__(self, ports):
        self.ports = ports
        self.clients = ({}, {})

    def client(self, name, *hello):
        for port, clients in zip(self.ports, self.clients):
            clients[name] = Client(port, *hello)

    def end(self, name):
        for clients in self.clients:
            clients.pop(name).close()

    def call(self, name, *words):
        """Runs a command at both. A word that is a tuple is the id of the client that it names."""
        replies = []
        for clients in self.clients:
            own = [clients[word[0]].call("CLIENT", "ID")[1:].decode() if isinstance(word, tuple) else word for word in words]
            replies.append(clients[name].call(*own))
        return replies

    def close(self):
        for clients in self.clients:
            for client in clients.values():
                client.close()


class TrackingBesideRedis(BesideRedis):
    def setUp(self):
        super().setUp()
        self.pair = Pair([connection.socket.getpeername()[1] for connection in (self.ours, self.theirs)])
        self.addCleanup(lambda: self.pair.close())

    def same(self, name, *words, reply=True):
        """Runs a command at both, and compares the replies, and what all clients were told."""
        ours, theirs = self.pair.call(name, *words)
        if reply:
            self.assertEqual(ours, theirs, (name, words))
        self.same_news((name, words))

    def same_news(self, what):
        names = list(self.pair.clients[0])
        for name in names:
            ours, theirs = (clients[name].news() for clients in self.pair.clients)
            self.assertEqual(ours, theirs, (name, "after", what))

    def test_refusals(self):
        self.pair.client("c", 3)
        self.pair.client("d")
        for words in (
                "TRACKING", "TRACKING X", "TRACKING ON FOO", "TRACKING ON PREFIX a", "TRACKING ON PREFIX", "TRACKING ON REDIRECT",
                "TRACKING ON REDIRECT x", "TRACKING ON REDIRECT 0", "TRACKING ON REDIRECT -1", "TRACKING ON REDIRECT 999999",
                "TRACKING ON BCAST OPTIN", "TRACKING ON OPTIN OPTOUT", "TRACKING ON BCAST PREFIX a PREFIX ab",
                "TRACKING ON BCAST PREFIX b PREFIX b", "TRACKING OFF FOO", "TRACKING OFF", "TRACKINGINFO", "GETREDIR", "CACHING YES",
                "CACHING", "CACHING NO", "TRACKING ON", "TRACKINGINFO", "GETREDIR", "CACHING YES", "CACHING NO", "CACHING x",
                "TRACKING ON BCAST", "TRACKING ON OPTIN", "TRACKINGINFO", "CACHING YES", "TRACKINGINFO", "TRACKINGINFO", "PING",
                "TRACKING ON OPTOUT", "TRACKING ON NOLOOP", "TRACKINGINFO", "TRACKING OFF", "TRACKING ON OPTOUT", "CACHING YES",
                "CACHING NO", "TRACKINGINFO", "TRACKING OFF", "TRACKINGINFO", "TRACKING ON BCAST PREFIX b PREFIX a NOLOOP",
                "TRACKINGINFO", "TRACKING ON BCAST PREFIX ab", "TRACKING ON BCAST PREFIX c", "TRACKINGINFO", "TRACKING ON",
                "TRACKING ON BCAST", "TRACKINGINFO", "CACHING YES", "TRACKING OFF", "TRACKINGINFO", "TRACKING off", "tracking on bcast",
                "TRACKINGINFO", "GETREDIR x", "TRACKINGINFO x"):
            words = words.split()
            command = [words[0]] if words == ["PING"] else ["CLIENT", *words]
            for name in ("c", "d"):
                ours, theirs = self.pair.call(name, *command)
                if "PREFIX" in words or words == ["TRACKINGINFO"]:
                    # The order of prefixes is that of a tree in both.
                    self.assertEqual(repr(ours), repr(theirs), (name, words))
                else:
                    self.assertEqual(ours, theirs, (name, words))
        for value in ("-1", "x", "5", "0"):
            self.same("c", "CONFIG", "SET", "tracking-table-max-keys", value)
            self.same("c", "CONFIG", "GET", "tracking-table-max-keys")

    def shown_flags(self, name):
        """Returns the flags of CLIENT LIST, and whether messages go to somebody."""
        found = []
        for reply in self.pair.call(name, "CLIENT", "INFO"):
            text = (reply[1] if isinstance(reply, list) else reply).decode()
            fields = dict(field.split("=", 1) for field in text.split() if "=" in field)
            found.append((fields["flags"], min(int(fields["redir"]), 1)))
        return found

    def test_flags(self):
        self.pair.client("to", 3)
        self.pair.client("c", 2)
        for words in (["TRACKING", "ON"], ["TRACKING", "OFF"], ["TRACKING", "ON", "BCAST"], ["TRACKING", "OFF"]):
            self.same("c", "CLIENT", *words)
            ours, theirs = self.shown_flags("c")
            self.assertEqual(ours, theirs, words)
        self.same("c", "CLIENT", "TRACKING", "ON", "REDIRECT", ("to",))
        ours, theirs = self.shown_flags("c")
        self.assertEqual(ours, theirs)
        self.same("c", "RESET")
        ours, theirs = self.shown_flags("c")
        self.assertEqual(ours, theirs)

    def test_modes(self):
        """Reads and writes of some clients, in random order."""
        # Redis 7.0 tracks the keys that a script has declared, 7.2 those that it reads: here they are the same. With BCAST, it
        # takes what a script writes for the write of somebody else.
        scripts = [("return redis.call('get', KEYS[1])", 1), ("return redis.call('mget', KEYS[1], KEYS[2])", 2)]
        script = lambda: next([text, str(count), *[key() for _ in range(count)]] for text, count in [choose.choice(scripts)])
        modes = [[], ["NOLOOP"], ["OPTIN"], ["OPTOUT"], ["BCAST"], ["BCAST", "NOLOOP", "PREFIX", "ab", "PREFIX", "c"],
                 ["BCAST", "PREFIX", "b"], ["OPTIN", "NOLOOP"]]
        choose = random.Random(SEED)
        key = lambda: choose.choice(KEYS)
        for number, mode in enumerate(modes):
            self.pair.client(str(number), 3)
            self.same(str(number), "CLIENT", "TRACKING", "ON", *mode)
        self.pair.client("plain")
        names = list(self.pair.clients[0])
        reads = [lambda: ["GET", key()], lambda: ["MGET", key(), key()], lambda: ["EXISTS", key(), key(), "none"],
                 lambda: ["TYPE", key()], lambda: ["STRLEN", key()], lambda: ["LRANGE", key(), "0", "-1"], lambda: ["TTL", key()],
                 lambda: ["EVAL", *script()], lambda: ["EVAL_RO", *script()],
                 lambda: ["OBJECT", "ENCODING", key()], lambda: ["SUBSTR", key(), "0", "1"], lambda: ["XREAD", "STREAMS", key(), "0"],
                 lambda: ["SORT_RO", key()], lambda: ["LCS", key(), key()], lambda: ["ZUNION", "2", key(), key()]]
        writes = [lambda: ["SET", key(), choose.choice("xyz")], lambda: ["DEL", key(), key()],
                  lambda: ["MSET", key(), "1", key(), "2"], lambda: ["APPEND", key(), "x"], lambda: ["RENAME", key(), key()],
                  lambda: ["EXPIRE", key(), "1000"], lambda: ["PERSIST", key()], lambda: ["GETDEL", key()],
                  lambda: ["GETEX", key(), "EX", "100"], lambda: ["GETEX", key()], lambda: ["SETNX", key(), "1"],
                  lambda: ["COPY", key(), key(), "REPLACE"], lambda: ["RPUSH", key(), "x"], lambda: ["LPOP", key()],
                  lambda: ["SELECT", choose.choice("001")], lambda: ["FLUSHDB"] if choose.random() < 0.1 else ["FLUSHALL"]
                  if choose.random() < 0.1 else ["PING"], lambda: ["INCR", key()], lambda: ["SETRANGE", key(), "3", "y"]]
        for _ in range(TRACKED):
            name = choose.choice(names)
            mode = modes[int(name)] if name != "plain" else []
            if choose.random() < 0.3 and ("OPTIN" in mode or "OPTOUT" in mode):
                self.pair.call(name, "CLIENT", "CACHING", "YES" if "OPTIN" in mode else "NO")
            kind = reads if choose.random() < 0.7 else writes
            if choose.random() < 0.15:
                # What one transaction reads and writes is told in another order: it reads, or it writes.
                commands = [choose.choice(kind)() for _ in range(choose.randrange(1, 4))]
                if any(command[0] in ("SELECT",) for command in commands):
                    continue
                self.pair.call(name, "MULTI")
                for command in commands:
                    self.pair.call(name, *command)
                ours, theirs = self.pair.call(name, "EXEC")
                self.assertEqual(len(ours), len(theirs), commands)
                words = ("EXEC", commands)
            else:
                words = choose.choice(kind)()
                ours, theirs = self.pair.call(name, *words)
                if words[0] not in ("OBJECT", "TTL", "LCS", "EVAL", "EVAL_RO"):
                    self.assertEqual(ours, theirs, (name, words))
            self.same_news((name, words))

    def test_redirection(self):
        self.pair.client("new", 3)
        self.pair.client("old", 2)
        self.pair.client("other")
        self.same("old", "SUBSCRIBE", "__redis__:invalidate")
        for name, to, hello in (("r1", "new", 2), ("r2", "old", 2), ("r3", "new", 3), ("r4", "old", 3)):
            self.pair.client(name, hello)
            self.same(name, "CLIENT", "TRACKING", "ON", "REDIRECT", (to,)) if to == "new" else self.redirect_to_old(name)
            self.same(name, "GET", "a")
        self.same("other", "SET", "a", "1")
        self.same("other", "FLUSHALL")
        for name in ("r1", "r2", "r3", "r4"):
            self.same(name, "GET", "a")
        self.same("old", "UNSUBSCRIBE", reply=False)
        self.same("other", "SET", "a", "1")
        self.same("old", "PSUBSCRIBE", "x*", reply=False)
        for name in ("r1", "r2", "r3", "r4"):
            self.same(name, "GET", "a")
        self.same("other", "SET", "a", "1")
        for name in ("r1", "r3"):
            self.same(name, "MGET", "a", "b")
        self.pair.end("new")
        time.sleep(0.5)
        ours, theirs = self.pair.call("other", "DEL", "a")
        self.assertEqual(ours, theirs)
        news = [clients["r3"].news() for clients in self.pair.clients]
        self.assertEqual(*[[item[:2] for item in told] for told in news])
        self.assertEqual(len(news[0]), 1)
        ours, theirs = self.pair.call("r3", "CLIENT", "TRACKINGINFO")
        self.assertEqual(*[reply[1][1] for reply in (ours, theirs)])

    def redirect_to_old(self, name):
        # A subscriber with RESP2 cannot be asked for its id.
        for clients in self.pair.clients:
            reply = clients["other"].call("CLIENT", "LIST")
            text = (reply[1] if isinstance(reply, list) else reply).decode()
            line = next(line for line in text.splitlines() if " sub=1 " in line)
            reply = clients[name].call("CLIENT", "TRACKING", "ON", "REDIRECT", line.split()[0].removeprefix("id="))
            self.assertEqual(reply, b"+OK")

    def test_expiry(self):
        self.pair.client("c", 3)
        self.pair.client("w")
        self.pair.call("c", "CLIENT", "TRACKING", "ON")
        self.pair.call("w", "SET", "a", "1", "PX", "200")
        self.same("c", "GET", "a")
        time.sleep(1)
        self.same("c", "GET", "a")
        self.pair.call("w", "SET", "a", "1", "PX", "100")
        self.same("c", "TTL", "none")
        time.sleep(1)
        self.same("w", "SET", "a", "1")

    def test_functions(self):
        self.pair.client("c", 3)
        self.pair.client("w")
        self.pair.call("c", "CLIENT", "TRACKING", "ON")
        library = "#!lua name=l\nredis.register_function{function_name='f', flags={'no-writes'}, callback=function(keys) return redis.call('get', keys[1]) end}"
        self.same("w", "FUNCTION", "LOAD", library)
        for name in ("FCALL", "FCALL_RO"):
            self.same("c", name, "f", "1", "a")
            self.same("w", "MSET", "a", "1", "b", "1")


def load_tests(loader, _tests, _pattern):
    # The tests of the base run in its own file.
    names = [name for name in loader.getTestCaseNames(TrackingBesideRedis) if name in vars(TrackingBesideRedis)]
    return unittest.TestSuite(map(TrackingBesideRedis, names))


if __name__ == "__main__":
    unittest.main()
