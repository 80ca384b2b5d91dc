"""The same bytes to pando and to redis-server, well formed or not, and the same bytes back.

Needs a redis-server, as test_beside_redis; REQUESTS=NUMBER and SEED=NUMBER choose others than the
usual random ones.
"""

import os
import random
import re
import socket
import unittest

from test_beside_redis import BesideRedis

REQUESTS = int(os.environ.get("REQUESTS", 1500))
SEED = int(os.environ.get("SEED", 1))


def array(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def split(text):
    return [array(*line.split(b" ")) for line in text.strip().splitlines()]


# Commands whose replies are the same in both, whatever came before.
COMMANDS = split(b"""
PING
PING x
PING a b
ECHO hi
SET k v
GET k
GET none
GET
MULTI
EXEC
DISCARD
NOSUCH a b
HELLO 4
HELLO x
HELLO 3 AUTH a
SUBSCRIBE c
UNSUBSCRIBE
PSUBSCRIBE p*
PUNSUBSCRIBE
SSUBSCRIBE c
PUBLISH d m
RESET
CLIENT GETNAME
CLIENT CACHING YES
CLIENT TRACKINGINFO
CLIENT ID x
SELECT abc
SELECT 99
QUIT
LPUSH k x
HGETALL none
AUTH x
AUTH default y
ECHO
WATCH
XADD x
PUBSUB CHANNELS
""") + [array(*words) for words in (
    (b"\xff\xfe\x80", b"\xff"), (b"\xf4\x8f\xbf\xbf", b"\xc3\xa4\xc3"), (b"OBJECT", b"\xff"), (b"CONFIG", b"\xff\xfe", b"x"),
    (b"OBJECT", b"nosuch\xc3", b"x"), (b"x" * 300, b"y" * 300), (b"NOSUCH",) + (b"arg",) * 40, (b"a\r\nb", b"\r\n"),
    (b"NOSUCH", b"y" * 120, b"z" * 9, b"z"), (b"CLIENT", b"SETNAME", b"a b"), (b"CLIENT", b"SETNAME", b"\xff"), (b"COMMAND", b"nosuch\xff"),
    (b"HELLO", b"3", b"\xfffoo"), (b"SCRIPT", b"\xfe"), (b"FUNCTION", b"\xfe"), (b"PUBSUB", b"\xfe"), (b"XGROUP", b"\xfe"),
    (b"EVAL", b"error('\\255', 0)", b"0"), (b"EVAL", b"#!lua flags=no-writes,,\xff\nreturn 1", b"0"), (b"XREAD", b"x"),
    (b"EVAL", b"return redis.error_reply('\\254\\255')", b"0"), (b"FUNCTION", b"LOAD", b"#!\xfe name=x\n"), (b"FUNCTION", b"LIST", b"\xff"),
)]
# Not inside MULTI, where it is refused.
MODES = split(b"CLIENT REPLY SKIP\nCLIENT REPLY OFF\nCLIENT REPLY ON")
# Beginnings of what is no command, or no good one.
HEADS = rb"""*0\r\n *-1\r\n *-10\r\n \r\n \n *+1\r\n *01\r\n *\r\n *x\r\n *1\n *99999999999999999999\r\n *1\r\n$-1\r\n *1\r\n$0\r\n\r\n
*1\r\n$+4\r\nPING\r\n *1\r\n$04\r\nPING\r\n *1\r\n$4\nPING\r\n *1\r\n$4\r\nPINGxx *1\r\nxPING\r\n *1\r\n\r\n *1\r\n$\r\n
*1\r\n$536870913\r\n *1\r\n$99999999999999\r\n *1\rx$4\rxPING\r\n *2\r\n$4\r\nECHO\r\n*1\r\n *1\r\n\xff4\r\n *1\r\n\n4\r\n
*-0\r\n $4\r\nPING\r\n +PING\r\n :1\r\n *-9223372036854775808\r\n *1\r\n$9223372036854775808\r\n""".decode("ascii").split()
HEADS = [head.encode("ascii").decode("unicode_escape").encode("latin-1") for head in HEADS]
WORDS = [b"PING", b"ping", b"ECHO", b"GET", b"SET", b"k", b"v", b"hello world", b"", b"\xff\xfe", b'a"b', b"a'b", b"\\x41", b"MULTI", b"NOSUCH",
         b"x" * 200, b"0", b"-1", b"a\r\nb", b"return {1,2}"]
BLANKS = [b" ", b"  ", b"\t", b" \r ", b"\x0b", b"\x0c", b"\x85"]


class Requests:
    """Random bytes that look like requests."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def word(self):
        r, word = self.random, self.random.choice(WORDS)
        kind = r.randrange(6)
        if kind == 0:
            return b'"' + word + b'"'
        if kind == 1:
            return b"'" + word + b"'"
        if kind == 2:
            return b'"' + word + bytes(r.choices(b"\\xnrtab0fFgG\"' ", k=r.randrange(6))) + b'"'
        if kind == 3:
            return word + r.choice([b'"', b"'", b'""', b"''", b"\\"])
        return word

    def inline(self):
        r = self.random
        words = [self.word() for _ in range(r.randrange(5))]
        return r.choice([b"", b"", b" ", b"\x0b"]) + r.choice(BLANKS).join(words) + r.choice([b"\r\n", b"\n", b"\r\r\n", b" \r\n"])

    def broken(self, data):
        data, r = bytearray(data), self.random
        for _ in range(r.randint(1, 2)):
            at = r.randrange(len(data))
            kind = r.randrange(3)
            if kind == 0:
                data[at] = r.choice(b"\r\n*$0123456789-+ xPG\"'\\\xff")
            elif kind == 1 and len(data) > 1:
                del data[at]
            else:
                data.insert(at, r.choice(b"\r\n*$0129- x\"'\\"))
        return bytes(data)

    def request(self):
        r = self.random
        out = r.choice(MODES) if r.random() < 0.2 else b""
        for _ in range(r.randint(1, 5)):
            kind = r.random()
            if kind < 0.55:
                out += r.choice(COMMANDS)
            elif kind < 0.75:
                out += self.inline()
            elif kind < 0.9:
                out += r.choice(HEADS)
            else:
                out += array(*(r.choice(WORDS) for _ in range(r.randint(1, 4))))
        # Broken ones could be other scripts, or show all commands.
        if r.random() < 0.25 and b"EVAL" not in out and b"COMMAND" not in out:
            out = self.broken(out)
        # Redis looks at a line only once it has its end.
        return out + 3 * b"\r\n"


def comparable(replies):
    # The place of errors behind `return` is documented otherwise; versions and numbers of clients differ.
    replies = re.sub(rb"@user_script(:\d+)?\.", b"@user_script.", replies)
    replies = re.sub(rb"\$6\r\nserver\r\n.*?\$7\r\nmodules\r\n\*0\r\n", b"HELLO", replies, flags=re.DOTALL)
    return re.sub(rb"got '[\0-\t\x0b\x0c\x0e-\x1f\x7f]?'", b"got '?'", replies)


class ProtocolBesideRedis(BesideRedis):
    compared = 0

    def answered(self, side, data, pieces):
        with socket.create_connection(side.socket.getpeername()) as connection:
            connection.settimeout(60)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            out = b""
            try:
                for piece in pieces(data):
                    connection.sendall(piece)
                connection.shutdown(socket.SHUT_WR)
                while piece := connection.recv(1 << 16):
                    out += piece
            except OSError:
                # Closed with input that nobody has read: then the kernel drops what was on its way.
                return None
            return comparable(out)

    def same_bytes(self, data, pieces=lambda data: [data]):
        for side in (self.ours, self.theirs):
            side.call("DEL", "k")
        ours, theirs = (self.answered(side, data, pieces) for side in (self.ours, self.theirs))
        if ours is not None and theirs is not None:
            self.compared += 1
            self.assertEqual(ours, theirs, data)

    def test_each_command_and_head_has_the_same_bytes(self):
        for data in (*COMMANDS, *HEADS):
            self.same_bytes(data)
            self.same_bytes(array(b"CLIENT", b"REPLY", b"OFF") + data)

    def test_random_requests_have_the_same_bytes(self):
        requests = Requests(SEED)
        for _ in range(REQUESTS):
            self.same_bytes(requests.request())
        self.assertGreater(self.compared, REQUESTS * 9 // 10)

    def test_requests_in_single_bytes_have_the_same_bytes(self):
        requests = Requests(SEED + 1)
        for _ in range(REQUESTS // 30):
            self.same_bytes(requests.request(), lambda data: [data[at:at + 1] for at in range(len(data))])
        self.assertGreater(self.compared, REQUESTS // 150)

    def test_sets_and_nulls_of_descriptions_are_the_same(self):
        for version in (2, 3):
            for side in (self.ours, self.theirs):
                side.call("HELLO", version)
            self.same("COMMAND", "INFO", "get", "nosuch", "echo", "lmove")


def load_tests(loader, _tests, _pattern):
    # The tests of the base run in its own file.
    names = [name for name in loader.getTestCaseNames(ProtocolBesideRedis) if name in vars(ProtocolBesideRedis)]
    return unittest.TestSuite(map(ProtocolBesideRedis, names))


if __name__ == "__main__":
    unittest.main()
