"""The same scripts to pando and to redis-server, and the same replies, byte for byte.

Needs a redis-server, as test_beside_redis; SCRIPTS=NUMBER and SEED=NUMBER choose others than the
usual random scripts.
"""

import os
import random
import re
import unittest

from test_beside_redis import BesideRedis

SCRIPTS = int(os.environ.get("SCRIPTS", 2000))
SEED = int(os.environ.get("SEED", 1))

JSON = r"""1 -1 1.5 -0 1e5 1E+2 0x10 +1 .5 1. - 01 inf -inf nan "a" "\u00e9" "\ud83d\ude00" "\ud83d" "\udc00"
"\x" "\" "a [] {} [1,2,3] [1,] [,] {"a":1} {"a":1,} {a:1} {"a"} {"a":} {"a":[]} [[[]]] null true false nul tru
[null,1] {"a":null} [1 ] [1}  {"a":1] "\/\b\f\n\r\t\"\\" [1]x {}{} : , 1e 12345678901234567890 0.1 1e400""".split()

ENCODED = r"""1 -1 0 1.5 1/3 1e14 1e13 123456789012345 1e-5 1e100 -0.5 0/0 1/0 nil true false 'a' 'a/b' '\0\1\31\127\128\255'
'"\\' '\n\r\t\b\f' {} {1,2,3} {1,nil,3} {a=1} {[2]=2} {[0]=1} {[1.5]=1} {[-1]=1} {[true]=1} {{}} {{{1}}}
{cjson.null} cjson.null print tostring {tostring} {a={b={c={}}}} {1,a=2}""".split()


# What ends in an error, mostly: but not error({}), which ends redis-server 7.0.15. Lines of errors differ behind `return`, so there is none before calls.
STATEMENTS = r"""x = 1
return y
_G.x = 1
redis.call = 1
redis.x = 1
string.x = 1
KEYS = 1
rawset(_G, 'x', 1)
setmetatable(_G, {})
local v = setmetatable('', {}) return v
local v = ('').x return v
local s = '' s.x = 1
local v = redis.call('nosuch') return v
local v = redis.call('get') return v
local v = redis.call('set', 'a') return v
local v = redis.call() return v
local v = redis.call({}) return v
local v = redis.call('get', {}) return v
local v = redis.call('get', nil) return v
local v = redis.call('multi') return v
local v = redis.call('subscribe', 'a') return v
local v = redis.call('eval', 'return 1', 0) return v
local v = redis.call('config', 'nosuch') return v
local v = redis.call('blpop', 'none', 0) return v
local v = redis.pcall('nosuch') return v.err
local v = redis.pcall('get') return v.err
local v = redis.pcall() return v.err
local v = redis.sha1hex() return v
local v = redis.sha1hex('a', 'b') return v
local v = redis.error_reply() return v
local v = redis.status_reply({}) return v
local v = redis.setresp() return v
local v = redis.setresp(4) return v
local v = redis.setresp('3') return v
local v = redis.log() return v
local v = redis.log('a', 'b') return v
local v = redis.log(10, 'b') return v
local v = redis.set_repl() return v
local v = redis.set_repl(8) return v
local v = redis.replicate_commands() return v
local v = redis.breakpoint() return v
local v = redis.acl_check_cmd('nosuch') return v
local v = redis.acl_check_cmd('get', 'a') return v
local v = type(redis.acl_check_cmd) return v
local v = redis.REDIS_VERSION_NUM > 1 return v
local v = {pcall(error)} return v
local v = {pcall(error, nil)} return v
local v = {pcall(error, {err = 'E x'})} return v
local v = {pcall(error, {1})} return {v[1], type(v[2])}
error()
error(5)
error(true)
error('a', 0)
error('a', 2)
local v = string.dump return v
local v = load('return 5')() return v
local v = loadstring('return 5')() return v
local v = {loadstring('+')} return v
local v = {load('+')} return v
local v = loadstring('return ARGV[1]')() return v
local v = loadstring(1) return v
local v = unpack({}, 1, 1e8) return v
local v = ('x'):rep(-1) return v
local v = string.format('%d %5.2f %s %q %x', 3, 1.5, 'a', 'b', 255) return v
local v = string.format('%d', '3') return v
local v = string.format('%d', 'x') return v
local v = tostring(nil) .. tostring(1e15) .. tostring(2^53) .. tostring(0.1) .. tostring(-0) return v
local v = tonumber('0x10') + tonumber('1e2') + tonumber('z', 36) return v
local v = {tonumber(''), tonumber('a') or 'none', tonumber('10', 2)} return v
local v = table.concat({1, 2, 'a'}, '-') return v
local v = table.concat({1, {}, 'a'}, '-') return v
local v = #table.concat({}) return v
local t = {3, 1, 2} table.sort(t) return t
local t = {3, 'a', 2} table.sort(t) return t
local v = {string.find('hello', 'l+')} return v
local v = {string.find('hello', '[')} return v
local v = {string.gsub('hello', 'l', {l = 'L'})} return v
local v = {string.gsub('hello', '(l)(l)', '%2%1%3')} return v
local v = {('a,b,c'):match('(%a),(%a)')} return v
local v = {bit.band(255, 15), bit.bor(1, 2), bit.bxor(3, 1), bit.lshift(1, 31), bit.rshift(-1, 28), bit.tobit(2^32 + 5)} return v
local v = bit.tohex(-1) .. bit.tohex(255, 4) .. bit.tohex(255, -2) return v
local v = bit.band('a') return v
local v = bit.band() return v
local v = {math.floor(1.5), math.max(1, 3), math.fmod(7, 3), math.huge > 1, math.pow(2, 3)} return v
local v = math.random(0) return v
local v = math.random('a') return v
local v = math.floor() return v
local v = math.floor('x') return v
math.randomseed(5) local v = {math.random(100), math.random(5, 10), tostring(math.random())} return v
local v = print return v
local v = require('os') return v
local v = next({}, 'x') return v
local v = select('#', 1, nil, nil) return v
local v = select(0) return v
local v = {select(-1, 1, 2)} return v
local v = nil + 1 return v
local v = 'a' + 1 return v
local v = '3' * '4' return v
local v = {} .. 'a' return v
local v = 1 < 'a' return v
local v = {} < {} return v
local v = #5 return v
local v = nil[1] return v
local a = nil a.b = 1
local a = {} a.b.c = 1
local a = {} a[nil] = 1
local a = {} a[0/0] = 1
local a = {} a()
undefined_function()
local f = 5 f()
return {1, {2, {3, {}}}, 'a', true, false, nil, 5}
return {1, nil, 2}
return 3.99, 4
return -3.99
return 2^53
return -2^63
return 1e100
return '' , 1
return {ok = 1}
return {ok = 'a', err = 'b'}
return {err = 1, 2}
return {double = 'x', 1}
return {map = 1, 2}
return {map = {}}
return {set = {}}
return {big_number = 5, 6}
return {verbatim_string = {string = 'a'}, 7}
return {verbatim_string = {string = 'a', format = 'md'}}
return {verbatim_string = {string = 'a', format = 'text'}}
return function() end
return tostring
return redis
return KEYS
return ARGV
return coroutine.wrap(function() return 5 end)()
local c = coroutine.create(function(a) local b = coroutine.yield(a + 1) return b end) local _, x = coroutine.resume(c, 1) local _, y = coroutine.resume(c, 7) return {x, y}
local v = cjson.encode() return v
local v = cjson.encode(1, 2) return v
local v = cjson.decode() return v
local v = cjson.decode({}) return v
local v = cjson.decode('') return v
local v = cjson.decode(5) return v
local v = cmsgpack.pack() return v
local v = cmsgpack.unpack() return v
local v = cmsgpack.unpack({}) return v
local v = {cmsgpack.unpack('')} return v
local v = cmsgpack.unpack_one() return v
local v = {cmsgpack.unpack_one('')} return v
local v = cmsgpack.unpack_limit('') return v
local v = {cmsgpack.unpack_limit('\1\2\3', 2, 9)} return v
return #cjson.encode({1, 2})
#!lua
#!lua flags=no-writes
#!js
syntax error
return 'unfinished
return )
while true do""".split("\n")


# What changes how cjson works. In Redis it stays changed for the scripts that follow.
JSON_DEFAULTS = ("cjson.encode_sparse_array(false, 2, 10) cjson.encode_max_depth(1000) cjson.decode_max_depth(1000) "
                 "cjson.encode_number_precision(14) cjson.encode_keep_buffer(true) cjson.encode_invalid_numbers(false) "
                 "cjson.decode_invalid_numbers(true) ")
JSON_CHOICES = r"""local v = cjson.encode_max_depth() return v
local v = cjson.encode_max_depth(5) return v
local v = cjson.encode_max_depth('7') return v
local v = cjson.encode_max_depth(7.9) return v
local v = cjson.encode_max_depth(0) return v
local v = cjson.encode_max_depth('x') return v
local v = cjson.encode_max_depth({}) return v
local v = cjson.encode_max_depth(1,2) return v
local v = cjson.encode_max_depth(nil) return v
local a = cjson.encode_max_depth(0) return a
local a = cjson.encode_max_depth(2^31) return a
local a = cjson.encode_max_depth(0/0) return a
local a,b,c = cjson.encode_sparse_array(true, 3, 4) return {tostring(a),b,c}
local a,b,c = cjson.encode_sparse_array('on') return {tostring(a),b,c}
local a,b,c = cjson.encode_sparse_array('off', 0, 0) return {tostring(a),b,c}
local a = cjson.encode_sparse_array('x') return {tostring(a),b,c}
local a = cjson.encode_sparse_array(1) return {tostring(a),b,c}
local a = cjson.encode_sparse_array({}) return {tostring(a),b,c}
local a = cjson.encode_sparse_array(true, -1) return {tostring(a),b,c}
local a = cjson.encode_sparse_array(true, 1, 2, 3) return {tostring(a),b,c}
cjson.encode_sparse_array(true, 2, 10) return cjson.encode({[100]=2})
cjson.encode_sparse_array(false, 0, 10) return #cjson.encode({[1]=1,[100]=2})
cjson.encode_sparse_array(false, 1, 2) local x = cjson.encode({[1]=1,[3]=2}) return x
cjson.encode_sparse_array(false, 1, 3) local x = cjson.encode({[1]=1,[3]=2}) return x
cjson.encode_sparse_array(true, 2, 10) return cjson.encode({a={[50]=1}})
local v = tostring(cjson.encode_invalid_numbers()) return v
local v = tostring(cjson.encode_invalid_numbers(true)) return v
local v = tostring(cjson.encode_invalid_numbers('null')) return v
local v = tostring(cjson.encode_invalid_numbers('on')) return v
local v = tostring(cjson.encode_invalid_numbers('NULL')) return v
cjson.encode_invalid_numbers(true) return cjson.encode({1/0,-1/0,0/0,-(0/0),1})
cjson.encode_invalid_numbers(true) return cjson.encode({[1/0]=1})
cjson.encode_invalid_numbers('null') return cjson.encode({1/0,-1/0,0/0,1})
cjson.encode_invalid_numbers('null') return cjson.encode({[1/0]=1})
cjson.encode_invalid_numbers(false) local x = cjson.encode({1/0}) return x
local v = tostring(cjson.decode_invalid_numbers()) return v
local v = tostring(cjson.decode_invalid_numbers(false)) return v
local x = cjson.decode_invalid_numbers('null') return x
cjson.decode_invalid_numbers(false) local x = cjson.decode('[inf]') return x
cjson.decode_invalid_numbers(false) local x = cjson.decode('[-inf]') return x
cjson.decode_invalid_numbers(false) local x = cjson.decode('[nan]') return x
cjson.decode_invalid_numbers(false) local x = cjson.decode('[-NaN]') return x
cjson.decode_invalid_numbers(false) local x = cjson.decode('[+1]') return x
cjson.decode_invalid_numbers(false) local x = cjson.decode('[01]') return x
cjson.decode_invalid_numbers(false) local x = cjson.decode('[-01]') return x
cjson.decode_invalid_numbers(false) local x = cjson.decode('[0x1]') return x
cjson.decode_invalid_numbers(false) local x = cjson.decode('[0,-0,1.5e3,null,-1,0.5]') return cjson.encode(x)
cjson.decode_invalid_numbers(false) local x = cjson.decode('[--1]') return x
cjson.decode_invalid_numbers(false) local x = cjson.decode('[-]') return x
cjson.decode_invalid_numbers(false) local x = cjson.decode('[.5]') return x
cjson.decode_invalid_numbers(false) local x = cjson.decode('[-x]') return x
cjson.decode_invalid_numbers(false) local x = cjson.decode('[1x]') return x
cjson.encode_number_precision(3) return cjson.encode({1/3, 12345, 1e20})
cjson.encode_number_precision(1) return cjson.encode({1/3, 12345, 1e20, 0.05})
local x = cjson.encode_number_precision(15) return x
local x = cjson.encode_number_precision(0) return x
local v = cjson.encode_number_precision() return v
local v = tostring(cjson.encode_keep_buffer()) return v
local v = tostring(cjson.encode_keep_buffer(false)) return v
local v = tostring(cjson.encode_keep_buffer('on')) return v
local x = cjson.encode_keep_buffer(3) return x
cjson.encode_max_depth(2) local x = cjson.encode({{{}}}) return x
cjson.encode_max_depth(3) local x = cjson.encode({{{}}}) return x
cjson.decode_max_depth(2) local x = cjson.decode('[[[]]]') return x
cjson.decode_max_depth(3) local x = cjson.decode('[[{}]]') return cjson.encode(x)
local v = cjson.decode_max_depth() return v""".split("\n")


class Scripts:
    """Random small scripts."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def literal(self, depth=0):
        r, kind = self.random, self.random.randrange(9 if depth < 3 else 6)
        if kind == 0:
            return str(r.choice([0, 1, -1, 127, 128, 255, 256, -32, -33, -129, 65535, 65536, 2**31, 2**32, -2**31 - 1,
                                 2**53, 10**15, 10**16, r.randint(-10**6, 10**6)]))
        if kind == 1:
            return repr(round(r.uniform(-1000, 1000), r.randint(0, 6)))
        if kind == 2:
            return r.choice(["true", "false", "1e300", "-1e-7", "1e15", "0.1"])
        if kind in (3, 4):
            return "'" + "".join(f"\\{b}" for b in r.randbytes(r.choice([0, 1, 3, 31, 32, 40]))) + "'"
        if kind == 5:
            return r.choice(["KEYS[1]", "ARGV[1]", "#ARGV", "'12'", "'1.5'", "tonumber(ARGV[1])"])
        if kind == 6:
            # One key: tables have no order that both servers would share.
            return "{%s=%s}" % (r.choice("abc"), self.literal(depth + 1))
        return "{" + ",".join(self.literal(depth + 1) for _ in range(r.randint(0, 4))) + "}"

    def expression(self):
        r = self.random
        value = self.literal()
        return r.choice([
            value, f"tostring({self.literal(9)})", f"cjson.encode({value})", f"cjson.decode(cjson.encode({value}))",
            f"cmsgpack.pack({value})", f"cmsgpack.unpack(cmsgpack.pack({value}))",
            f"{{cmsgpack.unpack_one(cmsgpack.pack({value}, 2), 0)}}",
            f"redis.call('SET', KEYS[1], {self.literal(9)})", "redis.call('GET', KEYS[1])",
            f"redis.call('RPUSH', 'l', {self.literal(9)})", "redis.call('LRANGE', 'l', 0, 4)",
            f"redis.call('HSET', 'h', 'f', {self.literal(9)})", "redis.call('HGETALL', 'h')",
            f"redis.pcall('INCRBY', KEYS[1], {self.literal(9)})", "redis.call('DEL', KEYS[1])",
            f"redis.pcall('LPUSH', 'h', {self.literal(9)})", "redis.call('MGET', KEYS[1], 'none')",
            f"{{pcall(redis.call, 'LPUSH', 'h', {self.literal(9)})}}", "type(redis.call('GET', 'none'))",
            f"redis.error_reply({self.literal(9)})", f"redis.status_reply({self.literal(9)})",
            f"redis.sha1hex({self.literal(9)})", f"#tostring({self.literal(9)})",
            f"{{map={{a={value}}}}}", "{double=1.5}", f"{{ok='x', {value}}}",
        ])

    def script(self):
        lines = [f"local v{at} = {self.expression()}" for at in range(self.random.randint(1, 3))]
        if self.random.random() < 0.2:
            lines.insert(0, "redis.setresp(3)")
        return "\n".join([*lines, f"return v{len(lines) - 1 - (lines[0][0] == 'r')}"])


LIBRARY_FUNCTIONS = """
    math.abs math.acos math.asin math.atan math.atan2 math.ceil math.cos math.cosh math.deg math.exp math.floor
    math.fmod math.frexp math.ldexp math.log math.log10 math.max math.min math.modf math.pow math.rad math.sin
    math.sinh math.sqrt math.tan math.tanh string.byte string.char string.find string.format string.gmatch
    string.gsub string.len string.lower string.match string.rep string.reverse string.sub string.upper table.concat
    table.foreach table.foreachi table.getn table.insert table.maxn table.remove table.sort bit.arshift bit.band
    bit.bnot bit.bor bit.bswap bit.bxor bit.lshift bit.rol bit.ror bit.rshift bit.tobit bit.tohex assert error
    getmetatable ipairs next pairs pcall rawequal rawget rawset select setmetatable tonumber type unpack
    xpcall loadstring load"""


NUMBER = re.compile(rb"-?\d+(\.\d+)?(e[+-]?\d+)?")


def bare(reply):
    """Without what is after a script's name: places in errors, which differ as is documented. Numbers that
    were arguments of commands have more digits before Redis 7.2."""
    if isinstance(reply, list):
        return [bare(part) for part in reply]
    if isinstance(reply, bytes):
        reply = re.sub(rb" script: [0-9a-f]{40}, on .*", b"", reply)
        if NUMBER.fullmatch(reply):
            return float(reply)
    return reply


class ScriptsBesideRedis(BesideRedis):
    def same_script(self, script, *words):
        script = script.encode()
        ours, theirs = (bare(side.call("EVAL", script, 1, *words)) for side in (self.ours, self.theirs))
        if ours != theirs:
            self.differences.append(f"{script!r} {words}:\n    {ours} instead of\n    {theirs}")

    def setUp(self):
        super().setUp()
        self.differences = []

    def check(self):
        self.assertFalse(self.differences, "\n".join(self.differences[:60]))

    def test_json_is_the_same(self):
        for text in JSON:
            for word in (text, " " + text, "[" + text + "]"):
                self.same_script("local v = cjson.decode(ARGV[1]) return {type(v), tostring(v == cjson.null), v}"
                                 if word[:1] not in "[{" else "local v = cjson.encode(cjson.decode(ARGV[1])) return v",
                                 "k", word)
        for value in ENCODED:
            self.same_script(f"local v = cjson.encode({value}) return v", "k")
            self.same_script(f"local v = cmsgpack.pack({value}) return v", "k")
        for depth in (999, 1000, 1001):
            self.same_script("local t = {} for _ = 2, tonumber(ARGV[1]) do t = {t} end local v = cjson.encode(t) return v",
                             "k", depth)
            self.same_script("local v = cjson.decode(('['):rep(ARGV[1]) .. (']'):rep(ARGV[1])) return 1", "k", depth)
        self.check()

    def test_choices_of_json_are_the_same(self):
        for script in JSON_CHOICES:
            self.same_script(JSON_DEFAULTS + script, "k")
        self.check()

    def test_packed_messages_are_the_same(self):
        r = random.Random(SEED)
        for number in range(SCRIPTS):
            data = bytes([r.randrange(256), *r.randbytes(r.randrange(12))])
            self.same_script("local n = select('#', cmsgpack.unpack(ARGV[1])) return n", "k", data)
            self.same_script("local v = {cmsgpack.unpack_limit(ARGV[1], 2, ARGV[2])} return v", "k", data,
                             r.choice([0, 1, 5, -1, 20]))
        for count in (0, 1, 15, 16, 17, 65535, 65536):
            self.same_script("local t = {} for i = 1, tonumber(ARGV[1]) do t[i] = i end return redis.sha1hex(cmsgpack.pack(t))",
                             "k", count)
            self.same_script("return redis.sha1hex(cmsgpack.pack(('x'):rep(ARGV[1])))", "k", count)
        self.check()

    def test_errors_are_the_same(self):
        for text in ("-\\r\\nX y", "\\r\\n-E x", "--E x", "E x\\n", "-E\\n", "-", "", "\\n", " a", "- a", "E", "-E x", "x\\ry z", "E \\0x",
                     "-\\n", "\\n\\n", "- ", "E ", "\\rx", "\\r\\nx\\n", "-\\rx"):
            for script in (f"return redis.error_reply('{text}')", f"return redis.error_reply('{text}').err",
                           f"return redis.status_reply('{text}')", f"return {{err='{text}'}}", f"return {{ok='{text}'}}",
                           f"error('{text}')", f"error({{err='{text}'}})", f"local _ = {{pcall(error, '{text}')}} return _"):
                self.same_script(script, "k")
        for script in STATEMENTS:
            self.same_script(script, "k", "12", "a")
        self.check()

    def test_arguments_that_are_missing_are_not_found_on_the_stack(self):
        """A function without its arguments does not take what an earlier call has left. How its error names what
        is missing differs (`nil` or `no value`)."""
        for name in LIBRARY_FUNCTIONS.split():
            for left in ("1.5", "'ab'", "{}", "type"):
                for given in ("", "1", "'x'", "{}", "1, 2", "'x', 1"):
                    # A string has a metatable that only Redis shows.
                    if (name, given[:3]) != ("getmetatable", "'x'"):
                        self.same_script(
                            "local function leave(...) local a, b, c, d, e, f, g, h = ... return 0 end "
                            f"leave({', '.join([left] * 8)}) "
                            f"local ok, v = pcall(function() local v = {name}({given}) return v end) "
                            "if type(v) ~= 'string' then v = type(v) end return {tostring(ok), ok and v or ''}", "k")
        self.check()

    def test_structures_are_the_same(self):
        r = random.Random(SEED)
        letters = ["b", "B", "h", "H", "l", "L", "T", "f", "d", "s", "x", " ", "<", ">", "!", "c", "i", "I", "z", "5"]
        for _ in range(SCRIPTS):
            kinds = [r.choice(letters) for _ in range(r.randint(1, 5))]
            form = "".join(k + (str(r.choice([0, 1, 2, 3, 4, 8, 9, 16, 32, 33, 99999999999])) if k in "!ciI" and r.random() < 0.7 else "")
                           for k in kinds)
            values = ",".join(r.choice(["1", "-1", "0", "255", "-129", "65536", "2^31", "-2^31", "2^53", "2^63", "2^64", "-2^63",
                                        "1e300", "0.5", "1/0", "'12'", "'abc'", "'x'", "''", "'a\\0b'", "nil", "{}", "true"])
                              for _ in range(r.randint(0, 5)))
            self.same_script(f"local v = struct.pack({', '.join(filter(None, ['ARGV[1]', values]))}) return v", "k", form)
            self.same_script("local v = struct.size(ARGV[1]) return v", "k", form)
            self.same_script("local v = {struct.unpack(ARGV[1], ARGV[2], ARGV[3])} for k, x in ipairs(v) do v[k] = tostring(x) end return v",
                             "k", form, r.randbytes(r.randrange(40)), r.choice([1, 1, 1, 2, 0, -1, 50, "x"]))
        self.same_script("local v = {struct.unpack('Tc0', ('\\255'):rep(8))} return v", "k")
        for call in ("pack()", "unpack()", "unpack('i')", "size()", "size({})", "pack({})", "unpack('i', 5)", "pack('i', '0x10')"):
            self.same_script(f"local v = struct.{call} return v", "k")
        self.check()

    def random_scripts(self):
        scripts = Scripts(SEED)
        for _ in range(SCRIPTS):
            self.same_script(scripts.script(), scripts.random.choice("kl"),
                             scripts.random.choice(["1", "x", "", "1.5", "-7", b"\xff\0"]))
        self.check()

    def test_random_scripts_have_the_same_replies(self):
        self.random_scripts()

    def test_random_scripts_have_the_same_replies_in_resp3(self):
        for connection in (self.ours, self.theirs):
            connection.call("HELLO", "3")
        self.random_scripts()


def load_tests(loader, _tests, _pattern):
    # The tests of the base run in its own file.
    names = [name for name in loader.getTestCaseNames(ScriptsBesideRedis) if name in vars(ScriptsBesideRedis)]
    return unittest.TestSuite(map(ScriptsBesideRedis, names))


if __name__ == "__main__":
    unittest.main()
