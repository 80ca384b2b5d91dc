"""The same libraries of functions to pando and to redis-server, and the same replies, byte for byte.

Needs a redis-server, as test_beside_redis; CALLS=NUMBER and SEED=NUMBER choose others than the usual
random commands.
"""

import os
import random
import re
import unittest

from test_beside_redis import BesideRedis

CALLS = int(os.environ.get("CALLS", 1500))
SEED = int(os.environ.get("SEED", 1))

HEADS = ["", "x", "#!lua", "#!lua\n", "#!lua name=\n", "#!lua name=a-b\n", "#!lua foo\n", "#!lua name=a name=b\n", "#!js name=a\n",
         "#!lua name=a\n", "#!lua name=a\n)", "#! \n", "#!\n", "#!lua name=a\0\n", "#!lua name='a\n", "#!lua name='a'b\n", "#! lua name=a\n",
         "#!lua name=\"a\\\"\n", "#!lua name=\"\\x\"\n", "#!lua\tname=\n", "#!lua na\n", "#!lua name\n", "#!lua NAME=-\n", "\n#!lua name=a\n"]

# What a library does while it is loaded; f is a function.
BODIES = r"""redis.call("get", "x")
x = 1
return y
redis.register_function()
redis.register_function(1)
redis.register_function({})
redis.register_function{[1]=2}
redis.register_function{[{}]=1}
redis.register_function{function_name={}}
redis.register_function{function_name="x"}
redis.register_function{callback=f}
redis.register_function{function_name="x", callback=1}
redis.register_function{function_name="x", callback=f, flags=1}
redis.register_function{function_name="x", callback=f, flags={"z"}}
redis.register_function{function_name="x", callback=f, flags={1}}
redis.register_function{function_name="x", callback=f, flags={{}}}
redis.register_function{function_name="x", callback=f, flags={"no-writes", "x"}}
redis.register_function{function_name="x", callback=f, description={}}
redis.register_function{function_name="x", callback=f, descr={}}
redis.register_function{function_name="x-y", callback=f}
redis.register_function("x-y", f)
redis.register_function("", f)
redis.register_function({}, f)
redis.register_function(1.5, f)
redis.register_function("a", 1)
redis.register_function("a", f, 3)
redis.register_function("a", f) redis.register_function("a", f)
redis.register_function("a", f) redis.register_function("A", f) local v = nosuch
redis.log("a")
redis.log("a", "b")
redis.log(9, "b")
redis.x = 1
local v = redis.setresp
local v = redis.sha1hex
local v = redis.error_reply
local v = redis[1]
local v = server
local v = _G
local v = string
local v = KEYS
local v = nil + 1
local v = {} .. 'a'
local v = ("x").nosuch()
f.x = 1
local v = redis.REDIS_VERSION .. redis.REDIS_VERSION_NUM .. redis.LOG_WARNING .. redis.LOG_DEBUG
local x = ("x"):rep(3)
f()
redis.register_function{FUNCTION_NAME="x", callback=f, DESCRIPTION=5, flags={"ALLOW-oom", "no-writes", "no-writes"}} local v = a.b""".split("\n")

# Functions, in the order in which they are called. Lines of errors differ behind `return`.
FUNCTIONS = r"""function(k, a) return {k[1] or 'none', a[1] or 'none', #k, #a} end
function(...) return select('#', ...) end
function() end
function() x = 1 end
function() local v = x return v end
function() local v = KEYS return v end
function() local v = ARGV return v end
function() local v = redis.register_function('z', f) return v end
function() local v = register('z', f) return v end
function() local v = own.call('get', 'x') return v end
function() own.log(own.LOG_DEBUG, 'x') return type(own) end
function() own.x = 1 end
function(k, a) local v = redis.call('set', 'k', a[1] or 'v') return v end
function() local v = redis.call('get', 'k') return v end
function() local v = redis.call('nosuch') return v end
function() local v = redis.pcall('nosuch') return v.err end
function() local v = redis.call('fcall', 'f0', 0) return v end
function() local v = redis.call('function', 'list') return v end
function() local v = redis.call('eval', 'return 1', 0) return v end
function() error('x') end
function() error({err = 'E x'}) end
function() local v = f() return v end
function() local v = {pcall(f, 1)} return v end
function() redis.x = 1 end
function() rawset(_G, 'x', 1) end
function() setmetatable(_G, {}) end
function() local v = type(_G.redis.call) return v end
function() local v = loadstring('return redis.REDIS_VERSION_NUM > 1')() return v end
function() return redis.error_reply('My error') end
function() return redis.status_reply('fine') end
function() return {double = 1.5} end
function() redis.setresp(3) return {map = {a = 1}} end
function(k) local v = cjson.encode(k) return v end
function() return redis.sha1hex('') end
function(k, a) a[1] = 'changed' return a end
function() local v = math.floor(1.5) + #string.rep('x', 3) return v end""".split("\n")


def library(name, body, functions=("f",)):
    register = "".join(f"\nredis.register_function('{one}', {one})" for one in functions)
    return f"#!lua name={name}\nlocal f = function() return 1 end\n{body}{register}"


def in_order(reply):
    """The libraries and functions of LIST have no order in Redis. Its version is another one."""
    if isinstance(reply, bytes):
        # Which one is found first, too.
        return re.sub(rb"^(-ERR Function|-ERR Library) . already exists$", rb"\1 already exists", reply)
    if isinstance(reply, list):
        return sorted((in_order(part) for part in reply), key=repr) if reply and isinstance(reply[0], (list, dict)) else list(map(in_order, reply))
    return reply


class FunctionsBesideRedis(BesideRedis):
    def setUp(self):
        super().setUp()
        self.differences = []
        self.same("FUNCTION", "FLUSH")

    def same(self, *words):
        ours, theirs = (in_order(side.call(*words)) for side in (self.ours, self.theirs))
        if ours != theirs:
            self.differences.append(f"{words}:\n    {ours} instead of\n    {theirs}")
        return ours

    def check(self):
        self.assertFalse(self.differences, "\n".join(self.differences[:60]))

    def test_libraries_are_refused_with_the_same_words(self):
        for head in HEADS:
            self.same("FUNCTION", "LOAD", head)
        for body in BODIES:
            self.same("FUNCTION", "LOAD", "REPLACE", library("l", body))
            self.same("FUNCTION", "LIST", "WITHCODE")
        self.same("FUNCTION", "LOAD", "#!LUA  NAME=\"quo\\x74ed\" \nredis.register_function('q', function() end)")
        self.same("FUNCTION", "LIST")
        self.check()

    def functions(self):
        head = "local f = function() return 1 end local own, register = redis, redis.register_function"
        names = [f"redis.register_function('f{at}', {text})" for at, text in enumerate(FUNCTIONS)]
        self.same("FUNCTION", "LOAD", "REPLACE", "#!lua name=all\n" + "\n".join([head, *names]))
        for at in range(len(FUNCTIONS)):
            for words in (["0"], ["1", "key"], ["1", "key", "argument"], ["0", b"\xff\0"]):
                self.same("FCALL", f"f{at}", *words)
        self.same("FCALL_RO", "f0", "0")
        self.same("FUNCTION", "LOAD", "REPLACE", "#!lua name=ro\n" + "\n".join(
            "redis.register_function{function_name='%s', flags={'no-writes'}, callback=function(k) local v = redis.call('%s', 'k', %s) return v end}" % of
            for of in (("reads", "getrange", "0, -1"), ("writes", "set", "1"), ("publishes", "publish", "1"))))
        for name in ("reads", "writes", "publishes"):
            for command in ("FCALL", "FCALL_RO"):
                self.same(command, name, "0")
        self.check()

    def test_functions_have_the_same_replies(self):
        self.functions()

    def test_functions_have_the_same_replies_in_resp3(self):
        for connection in (self.ours, self.theirs):
            connection.call("HELLO", "3")
        self.functions()

    def test_commands_have_the_same_replies(self):
        self.same("FUNCTION", "LOAD", library("lib", "redis.register_function{function_name='g', callback=f, description='', flags={'no-cluster'}}"))
        for line in """FCALL nosuch 0|FCALL nosuch x|FCALL f x|FCALL f 3 a|FCALL f -1|FCALL f|FUNCTION|FUNCTION nosuch|FUNCTION LOAD|FUNCTION LOAD a b
            FUNCTION LOAD REPLACE|FUNCTION DELETE nosuch|FUNCTION DELETE|FUNCTION LIST x|FUNCTION LIST LIBRARYNAME|FUNCTION LIST LIBRARYNAME LI*
            FUNCTION LIST LIBRARYNAME l?b WITHCODE|FUNCTION LIST WITHCODE WITHCODE|FUNCTION LIST LIBRARYNAME none|FUNCTION STATS|FUNCTION STATS x
            FUNCTION FLUSH x|FUNCTION FLUSH SYNC x|FUNCTION KILL|FUNCTION KILL x|FUNCTION RESTORE|FUNCTION RESTORE x|FUNCTION RESTORE x y
            FUNCTION RESTORE x y z|FUNCTION RESTORE x FLUSH|FUNCTION DUMP x|FUNCTION HELP|COMMAND GETKEYS FCALL f 2 a b c
            MULTI|FUNCTION LOAD x|FUNCTION STATS|FCALL f 0|FUNCTION DELETE lib|FCALL f 0|FUNCTION LIST|EXEC|FUNCTION FLUSH ASYNC|FUNCTION STATS
            """.replace("\n", "|").split("|"):
            if line.split():
                self.same(*line.split())
        self.check()

    def test_payloads_go_from_one_to_the_other(self):
        connections = (self.ours, self.theirs)
        for compressed in ("no", "yes"):
            self.theirs.call("CONFIG", "SET", "rdbcompression", compressed)
            for size in (1, 30, 300, 20000, 300000):
                self.same("FUNCTION", "FLUSH")
                self.same("FUNCTION", "LOAD", library("a", "--" + "some words " * (size // 11 + 1)))
                ours, theirs = (connection.call("FUNCTION", "DUMP") for connection in connections)
                if compressed == "no":
                    self.assertEqual(ours, theirs)
                for payload in (ours[1], theirs[1]):
                    for policy in ("APPEND", "REPLACE", "FLUSH"):
                        self.same("FUNCTION", "RESTORE", payload, policy)
                        self.same("FUNCTION", "LIST", "WITHCODE")
        self.check()

    def test_names_that_differ_in_case_only_have_the_same_replies(self):
        # In Redis chance says which of both is called: they do the same.
        both = "redis.register_function('X', function() return 1 end) redis.register_function('x', function() return 1 end)"
        self.same("FUNCTION", "LOAD", "#!lua name=both\n" + both)
        for name in "xX":
            self.same("FCALL", name, "0")
        self.same("FUNCTION", "LIST", "WITHCODE")
        self.same("FUNCTION", "STATS")
        self.same("FUNCTION", "LOAD", "#!lua name=other\nredis.register_function('X', function() return 2 end)")
        self.same("FUNCTION", "LOAD", "#!lua name=twice\nredis.register_function('y', function() end) " * 2)
        payloads = [connection.call("FUNCTION", "DUMP")[1] for connection in (self.ours, self.theirs)]
        for payload in payloads:
            self.same("FUNCTION", "RESTORE", payload, "FLUSH")
            self.same("FUNCTION", "LIST", "WITHCODE")
            self.same("FCALL", "x", "0")
        # Redis 7.0.15 would end here, with an assertion.
        self.assertEqual(self.ours.call("FUNCTION", "DELETE", "both"), b"+OK")
        self.check()

    def test_random_changes_have_the_same_replies(self):
        r = random.Random(SEED)
        payloads = []
        for _ in range(CALLS):
            name, functions = r.choice("abc"), tuple(r.sample("pqrs", r.randint(0, 2)))
            code = library(name, r.choice(["", "local p, q, r, s = f, f, f, f", "local p, q, r, s = f, f, f, f"]), functions or ("f",))
            kind = r.randrange(9)
            kind = 7 if not payloads else kind
            if kind < 2:
                self.same("FUNCTION", "LOAD", code)
            elif kind < 4:
                self.same("FUNCTION", "LOAD", "REPLACE", code)
            elif kind == 4:
                self.same("FUNCTION", "DELETE", name)
            elif kind == 5:
                self.same("FCALL", r.choice("fpqrs"), "0")
            elif kind == 6:
                self.same("FUNCTION", "STATS")
                self.same("FUNCTION", "LIST", "WITHCODE")
            elif kind == 7:
                payloads.append(self.theirs.call("FUNCTION", "DUMP")[1])
                if r.random() < 0.2:
                    self.same("FUNCTION", "FLUSH")
            else:
                payload = bytearray(r.choice(payloads))
                if r.random() < 0.3:
                    payload[r.randrange(len(payload))] ^= 1 << r.randrange(8)
                self.same("FUNCTION", "RESTORE", bytes(payload), r.choice(["APPEND", "REPLACE", "FLUSH", "nosuch"]))
        self.check()


def load_tests(loader, _tests, _pattern):
    # The tests of the base run in its own file.
    names = [name for name in loader.getTestCaseNames(FunctionsBesideRedis) if name in vars(FunctionsBesideRedis)]
    return unittest.TestSuite(map(FunctionsBesideRedis, names))


if __name__ == "__main__":
    unittest.main()
