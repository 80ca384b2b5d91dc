//! Tests of EVAL, EVALSHA and SCRIPT.

use std::io::Read as _;
use std::path::Path;

use pando_resp::Answer;
use pando_server::{Durability, ServerOptions};
use pando_sync::thread;
use pando_sync::time::{Duration, now};
use pandodb::Db;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, open_small, options};

/// Runs a script with these keys and arguments, and returns the reply as text.
pub(crate) fn eval(client: &mut Client, script: &str, keys: &[&str], arguments: &[&str]) -> String {
    let count = keys.len().to_string();
    let words = [&["EVAL", script, &count], keys, arguments].concat();
    show(&client.call(&words))
}

/// Runs scripts without keys, and compares their replies.
pub(crate) fn check(client: &mut Client, cases: &[(&str, &str)]) {
    for (script, expected) in cases {
        assert_eq!(&eval(client, script, &[], &[]), expected, "{script}");
    }
}

/// As [`check`], for errors that a script ends with: what follows them is the script's name.
pub(crate) fn check_errors(client: &mut Client, cases: &[(&str, &str)]) {
    for (script, expected) in cases {
        let reply = eval(client, script, &[], &[]);
        let (text, place) = reply.split_once(" script: ").unwrap_or((&reply, ""));
        assert_eq!(&text, expected, "{script}");
        let (name, place) = place.split_once(", ").expect("the error has a place");
        assert!(
            name.len() == 40 && place.starts_with("on @user_script:"),
            "{reply}"
        );
    }
}

#[test]
fn values_of_lua_become_replies() {
    let server = Fixture::new();
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("return 1", ":1"),
            ("return -1.9", ":-1"),
            ("return 1e300", ":-9223372036854775808"),
            ("return 0/0", ":-9223372036854775808"),
            ("return 'a'", "\"a\""),
            ("return true", ":1"),
            ("return false", "nil"),
            ("return nil", "nil"),
            ("return", "nil"),
            ("return tostring", "nil"),
            (
                "return {1, 2.9, 'a', true, {ok = 'x'}, {}}",
                "[:1 :2 \"a\" :1 +x []]",
            ),
            ("return {1, nil, 3}", "[:1]"),
            ("return {err = 'My error'}", "-My error"),
            ("return {err = 1}", "[]"),
            ("return {double = 3.25}", "\"3.25\""),
            ("return {map = {a = 1}}", "[\"a\" :1]"),
            ("return {set = {a = true}}", "[\"a\"]"),
            ("return {big_number = '12'}", "\"12\""),
            (
                "return {verbatim_string = {string = 'v', format = 'txt'}}",
                "\"v\"",
            ),
            ("return redis.status_reply('fine')", "+fine"),
            ("return redis.error_reply('My error')", "-My error"),
            ("return redis.error_reply('-My error\\r\\n')", "-My error"),
            ("return redis.error_reply('Oops')", "-ERR Oops"),
            (
                "return redis.error_reply()",
                "-ERR wrong number or type of arguments",
            ),
        ],
    );
    let mut deep = server.client();
    deep.send(&encode(&["EVAL", "local t = {} t[1] = t return t", "0"]));
    let expected = format!("{}-ERR reached lua stack limit\r\n", "*1\r\n".repeat(201));
    let mut bytes = vec![0; expected.len()];
    deep.stream.read_exact(&mut bytes).unwrap();
    assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    // The versions of the client and of the script are two things.
    assert!(client.run("HELLO 3").starts_with('{'));
    check(
        &mut client,
        &[
            ("return true", ":1"),
            ("redis.setresp(3) return true", "#true"),
            ("redis.setresp(3) return false", "#false"),
            ("return {double = 3.25}", ",3.25"),
            ("return {map = {a = 1}}", "{\"a\"=:1}"),
            ("return {set = {a = true}}", "~(\"a\")"),
            ("return {big_number = '12'}", "(12"),
            (
                "return {verbatim_string = {string = 'v', format = 'txt'}}",
                "=v",
            ),
        ],
    );
}

#[test]
fn replies_become_values_of_lua() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("HSET hash f v");
    client.run("ZADD sorted 1.5 m");
    client.run("SADD set s");
    check(
        &mut client,
        &[
            ("return redis.call('SET', 'n', 5).ok", "\"OK\""),
            ("return redis.call('INCR', 'n') + 1", ":7"),
            ("return redis.call('GET', 'n') .. '!'", "\"6!\""),
            ("return redis.call('GET', 'none') == false", ":1"),
            ("return redis.call('MGET', 'n', 'none')[2] == false", ":1"),
            ("return type(redis.call('TTL', 'n'))", "\"number\""),
            ("return redis.call('HGETALL', 'hash')", "[\"f\" \"v\"]"),
            ("return redis.call('ZSCORE', 'sorted', 'm')", "\"1.5\""),
            (
                "return redis.pcall('INCR', 'hash').err:sub(1, 9)",
                "\"WRONGTYPE\"",
            ),
            (
                "return redis.call('SET', 'x', 0.1) and redis.call('GET', 'x')",
                "\"0.1\"",
            ),
            (
                "return redis.call('SET', 'x', 1e15) and redis.call('GET', 'x')",
                "\"1000000000000000\"",
            ),
            (
                "return redis.call('SET', 'x', 1/3) and redis.call('GET', 'x')",
                "\"0.3333333333333333\"",
            ),
            ("return server.call('PING')", "+PONG"),
            (
                "redis.setresp(3) return redis.call('HGETALL', 'hash').map.f",
                "\"v\"",
            ),
            (
                "redis.setresp(3) return redis.call('GET', 'none') == nil",
                ":1",
            ),
            (
                "redis.setresp(3) return redis.call('SMEMBERS', 'set').set.s",
                ":1",
            ),
            (
                "redis.setresp(3) return tostring(redis.call('ZSCORE', 'sorted', 'm').double)",
                "\"1.5\"",
            ),
        ],
    );
    let both = "return {KEYS[1], ARGV[1], ARGV[2], #KEYS, #ARGV}";
    let reply = eval(&mut client, both, &["k"], &["a", "b\r\n"]);
    assert_eq!(reply, "[\"k\" \"a\" \"b\r\n\" :1 :2]");
}

const READONLY: &str = "-ERR user_script:1: Attempt to modify a readonly table";

/// Scripts, and the beginning of the error that each ends with.
const ERRORS: &[(&str, &str)] = &[
    (
        "local _ = redis.call('foo')",
        "-ERR Unknown Redis command called from script",
    ),
    (
        "local _ = redis.call('get')",
        "-ERR Wrong number of args calling Redis command from script",
    ),
    (
        "local _ = redis.call()",
        "-ERR Please specify at least one argument for this redis lib call",
    ),
    (
        "local _ = redis.call('get', true)",
        "-ERR Lua redis lib command arguments must be strings or integers",
    ),
    (
        "local _ = redis.call('multi')",
        "-ERR This Redis command is not allowed from script",
    ),
    (
        "local _ = redis.call('eval', '', 0)",
        "-ERR This Redis command is not allowed from script",
    ),
    (
        "local _ = redis.call('incr', 'text')",
        "-ERR value is not an integer or out of range",
    ),
    ("error('x')", "-ERR user_script:1: x"),
    ("error({err = 'CODE x'})", "-CODE x"),
    ("error()", "-ERR nil"),
    ("error({})", "-ERR unknown error"),
    (
        "return x",
        "-ERR user_script:1: Script attempted to access nonexistent global variable 'x'",
    ),
    ("x = 1", READONLY),
    ("redis.x = 1", READONLY),
    ("redis.call = 1", READONLY),
    ("string.x = 1", READONLY),
    ("KEYS = 1", READONLY),
    ("_G.x = 1", READONLY),
    (
        "rawset(_G, 'x', 1)",
        "-ERR Attempt to modify a readonly table",
    ),
    (
        "rawset(redis, 'x', 1)",
        "-ERR Attempt to modify a readonly table",
    ),
    (
        "local a = nil; return a.b",
        "-ERR user_script:1: attempt to index local 'a' (a nil value)",
    ),
    (
        "local t = {} ; return t.x.y",
        "-ERR user_script:1: attempt to index field 'x' (a nil value)",
    ),
    (
        "local _ = redis.sha1hex()",
        "-ERR wrong number of arguments",
    ),
    (
        "local _ = redis.setresp(4)",
        "-ERR RESP version must be 2 or 3.",
    ),
    (
        "local _ = redis.setresp()",
        "-ERR redis.setresp() requires one argument.",
    ),
    (
        "local _ = redis.log('a')",
        "-ERR redis.log() requires two arguments or more.",
    ),
    ("local _ = redis.log(9, 'a')", "-ERR Invalid debug level."),
    (
        "local _ = redis.set_repl(9)",
        "-ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
    ),
    (
        "local _ = redis.acl_check_cmd('foo')",
        "-ERR Invalid command passed to redis.acl_check_cmd()",
    ),
    (
        "#!lua flags=no-writes\nlocal _ = redis.call('set', 'a', 'b')",
        "-ERR Write commands are not allowed from read-only scripts.",
    ),
    (
        "local _ = math.random(0)",
        "-ERR user_script:1: bad argument #1 to 'random' (interval is empty)",
    ),
];

#[test]
fn errors_have_the_words_of_redis() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("SET text abc");
    check_errors(&mut client, ERRORS);
    let line = eval(&mut client, "\nlocal x = 1\nerror('deep')", &[], &[]);
    assert!(line.ends_with(", on @user_script:3."), "{line}");
    // A function that is called by `return` takes the place of the one that calls it.
    let returned = eval(&mut client, "return redis.call('foo')", &[], &[]);
    let name = "cc78c5a793d041f28ab0f6b117a82d1428ccfd13";
    let text = "-ERR Unknown Redis command called from script script:";
    assert_eq!(returned, format!("{text} {name}, on @user_script."));
    let inside = eval(&mut client, "#!lua\nerror('deep')", &[], &[]);
    assert!(inside.ends_with(", on @user_script:2."), "{inside}");
}

#[test]
fn what_is_no_script_is_refused() {
    let server = Fixture::new();
    let mut client = server.client();
    let compiling = "-ERR Error compiling script (new function): user_script:1:";
    let error = eval(&mut client, "syntax error", &[], &[]);
    assert_eq!(error, format!("{compiling} '=' expected near 'error'"));
    let shebang = "-ERR Invalid script shebang";
    check(&mut client, &[("#!lua", shebang)]);
    let writing = "-ERR Can not execute a script with write flag using *_ro command.";
    let nothing = "-NOSCRIPT No matching script. Please use EVAL.";
    let name = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let call = |client: &mut Client, words: &[&str]| show(&client.call(words));
    for (words, expected) in [
        (
            &["EVAL", "return 1", "a"][..],
            "-ERR value is not an integer or out of range",
        ),
        (
            &["EVAL", "return 1", "-1"],
            "-ERR Number of keys can't be negative",
        ),
        (
            &["EVAL", "return 1", "2", "a"],
            "-ERR Number of keys can't be greater than number of args",
        ),
        (&["EVAL_RO", "#!lua\nreturn 1", "0"], writing),
        (&["EVAL_RO", "#!lua flags=no-writes\nreturn 1", "0"], ":1"),
        (&["EVALSHA", "abc", "0"], nothing),
        (&["EVALSHA", name, "0"], nothing),
        (&["SCRIPT", "EXISTS", name, "abc"], "[:0 :0]"),
        (&["SCRIPT", "LOAD", "return 1"], &format!("\"{name}\"")),
        (
            &["SCRIPT", "EXISTS", &name.to_uppercase(), "abc"],
            "[:1 :0]",
        ),
        (&["EVALSHA", &name.to_uppercase(), "0"], ":1"),
        (&["EVALSHA_RO", name, "0"], ":1"),
        (
            &["SCRIPT", "FLUSH", "foo"],
            "-ERR SCRIPT FLUSH only support SYNC|ASYNC option",
        ),
        (&["SCRIPT", "FLUSH", "sync"], "+OK"),
        (&["EVALSHA", name, "0"], nothing),
        (&["EVAL", "return 1", "0"], ":1"),
        (&["EVALSHA", name, "0"], ":1"),
        (
            &["SCRIPT", "KILL"],
            "-NOTBUSY No scripts in execution right now.",
        ),
        (
            &["COMMAND", "GETKEYS", "EVAL", "x", "2", "a", "b", "c"],
            "[\"a\" \"b\"]",
        ),
    ] {
        assert_eq!(call(&mut client, words), expected, "{words:?}");
    }
    let read_only = call(
        &mut client,
        &["EVAL_RO", "return redis.call('set','a','b')", "0"],
    );
    let text = "-ERR Write commands are not allowed from read-only scripts. script: ";
    assert!(read_only.starts_with(text), "{read_only}");
    let load = call(&mut client, &["SCRIPT", "LOAD", "return +"]);
    assert!(load.starts_with(compiling), "{load}");
    assert!(call(&mut client, &["SCRIPT", "DEBUG", "YES"]).starts_with("-ERR SCRIPT DEBUG"));
}

#[test]
fn nothing_of_a_script_is_there_for_the_next_one() {
    let server = Fixture::new();
    let mut client = server.client();
    // Each tries to leave something, by a way around what forbids it, and whether that works is
    // not the question.
    for script in [
        "rawset(string, 'x', 1)",
        "table.insert(string, 1)",
        "table.insert(_G, 1)",
        "getmetatable('').__index = {}",
        "getmetatable(redis).__index.x = 1",
        "getmetatable(_G).__index.x = 1",
        "setmetatable(_G, {})",
        "KEYS[1] = 1 ARGV.x = 1",
        "math.random() math.randomseed(99)",
        "redis.setresp(3)",
        "local t = loadstring('x = 1') t()",
        "string.format = 1",
        "function string.rep() return 'mine' end",
        "coroutine.wrap(function() redis.x = 1 end)()",
    ] {
        eval(&mut client, script, &[], &[]);
    }
    check(
        &mut client,
        &[
            (
                "return {string.x or 'no', redis.x or 'no', #string, #redis, #_G}",
                "[\"no\" \"no\" :0 :0 :0]",
            ),
            ("return ('a'):rep(2)", "\"aa\""),
            ("return {#KEYS, #ARGV, ARGV.x or 'no'}", "[:0 :0 \"no\"]"),
            ("return pcall(function() return x end)", "nil"),
            // As in Redis, but for the seed of a script that gives none.
            (
                "math.randomseed(0) return tostring(math.random())",
                "\"0.17082803611217\"",
            ),
            (
                "math.randomseed(0) return {math.random(10), math.random(10), math.random(5, 9)}",
                "[:2 :8 :5]",
            ),
            (
                "math.randomseed(7) return tostring(math.random())",
                "\"0.26644419658298\"",
            ),
            ("return redis.call('GET', 'none') == false", ":1"),
        ],
    );
}

#[test]
fn a_script_changes_no_type() {
    let server = Fixture::new();
    let mut client = server.client();
    check_errors(
        &mut client,
        &[
            ("string.rep = 1", READONLY),
            (
                "setmetatable('', {})",
                "-ERR user_script:1: bad argument #1 to 'setmetatable' (table expected, got string)",
            ),
            (
                "setmetatable(1, {})",
                "-ERR user_script:1: bad argument #1 to 'setmetatable' (table expected, got number)",
            ),
            (
                "local s = '' s.x = 1",
                "-ERR user_script:1: attempt to index local 's' (a string value)",
            ),
        ],
    );
    check(
        &mut client,
        &[
            ("return ('').x == nil", ":1"),
            ("return ('x'):rep(2)", "\"xx\""),
        ],
    );
}

/// LuaJIT's `floor` and `ceil` do not look whether they have an argument.
#[test]
fn rounding_nothing_takes_no_number_from_the_stack() {
    let server = Fixture::new();
    let mut client = server.client();
    for name in ["floor", "ceil"] {
        let script = format!(
            "local function leave(...) local a, b, c, d, e, f = ... return 0 end \
             leave(1.5, 1.5, 1.5, 1.5, 1.5, 1.5) local v = math.{name}() return v"
        );
        let error = format!(
            "-ERR user_script:1: bad argument #1 to '{name}' (number expected, got no value)"
        );
        check_errors(&mut client, &[(&script, &error)]);
    }
}

#[test]
fn a_script_has_no_way_out() {
    let server = Fixture::new();
    let mut client = server.client();
    for name in [
        "collectgarbage",
        "debug",
        "dofile",
        "ffi",
        "gcinfo",
        "getfenv",
        "io",
        "jit",
        "loadfile",
        "module",
        "newproxy",
        "package",
        "print",
        "require",
        "setfenv",
    ] {
        let reply = eval(&mut client, &format!("return {name}"), &[], &[]);
        assert!(
            reply.contains("nonexistent global variable"),
            "{name}: {reply}"
        );
    }
    check(
        &mut client,
        &[
            ("return string.dump == nil", ":1"),
            (
                "local n = 0 for _ in pairs(os) do n = n + 1 end return n",
                ":0",
            ),
            (
                "return {type(os.clock()), os.exit == nil, os.getenv == nil}",
                "[\"number\" :1 :1]",
            ),
            ("return getmetatable('') == false", ":1"),
            ("return getmetatable(_G) == false", ":1"),
            ("return getmetatable(redis) == false", ":1"),
            ("return (pcall(setmetatable, redis, {})) == false", ":1"),
            // Bytecode begins with an escape, and is never loaded.
            ("return loadstring('\\27LJ\\2\\0') == nil", ":1"),
            (
                "return load(function() return '\\27LJ\\2\\0' end) == nil",
                ":1",
            ),
        ],
    );
    let bytecode = eval(&mut client, "\u{1b}LJ\u{2}", &[], &[]);
    assert!(
        bytecode.starts_with("-ERR Error compiling script"),
        "{bytecode}"
    );
    assert_eq!(client.run("PING"), "+PONG");
}

#[test]
fn a_script_loads_texts_into_its_own_environment() {
    let server = Fixture::new();
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("return loadstring('return ...')(5)", ":5"),
            (
                "return loadstring('return redis.sha1hex(\"a\")')():len()",
                ":40",
            ),
            ("return (pcall(loadstring('y = 1'))) == false", ":1"),
            (
                "return select(2, pcall(unpack, {}, 0, 2147483647))",
                "\"too many results to unpack\"",
            ),
            (
                "return select(2, pcall(unpack, {}, -2147483648, 2147483647))",
                "\"too many results to unpack\"",
            ),
        ],
    );
}

#[test]
fn others_see_all_of_a_script_or_nothing() {
    const ROUNDS: usize = 400;
    let server = Fixture::new();
    let mut clients = [server.client(), server.client()];
    clients[0].run("MSET a 0 b 0");
    let [mut writer, mut reader] = clients;
    thread::scope(|scope| {
        scope.spawn(|| {
            let script = "redis.call('INCR', 'a') redis.call('INCR', 'b')";
            (0..ROUNDS).for_each(|_| drop(eval(&mut writer, script, &[], &[])));
        });
        for _ in 0..ROUNDS {
            let script = "return redis.call('GET', 'a') == redis.call('GET', 'b')";
            assert_eq!(eval(&mut reader, script, &[], &[]), ":1");
            let Answer::Array(both) = reader.run_raw("MGET a b") else {
                panic!("MGET replies with an array");
            };
            assert_eq!(both[0], both[1]);
        }
    });
    assert_eq!(
        server.client().integer("INCR a"),
        i64::try_from(ROUNDS).unwrap() + 1
    );
}

#[test]
fn scripts_of_two_loops_lose_no_change_of_one_key() {
    const CLIENTS: usize = 6;
    const ROUNDS: usize = 300;
    let server = Fixture::new();
    server.client().run("SET sum 0");
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = server.client();
                let script = "local n = redis.call('GET', KEYS[1]) \
                              redis.call('SET', KEYS[1], n + ARGV[1]) return n";
                for _ in 0..ROUNDS {
                    let reply = eval(&mut client, script, &["sum"], &["2"]);
                    assert!(reply.starts_with('"'), "{reply}");
                }
            });
        }
    });
    let sum = server.client().run("GET sum");
    assert_eq!(sum, format!("\"{}\"", CLIENTS * ROUNDS * 2));
}

#[test]
fn a_script_that_fails_keeps_what_it_has_written() {
    let server = Fixture::new();
    let mut client = server.client();
    let reply = eval(
        &mut client,
        "redis.call('SET', 'a', 1) error('x')",
        &[],
        &[],
    );
    assert!(
        reply.starts_with("-ERR user_script:1: x script: "),
        "{reply}"
    );
    client.check(&[("GET a", "\"1\"")]);
    let script = "redis.call('SELECT', 3) redis.call('SET', 'in3', 1) return redis.call('DBSIZE')";
    assert_eq!(eval(&mut client, script, &[], &[]), ":1");
    client.check(&[
        ("EXISTS in3", ":0"),
        ("SELECT 3", "+OK"),
        ("EXISTS in3", ":1"),
    ]);
}

#[test]
fn scripts_are_commands_of_exec_and_of_transactions() {
    let server = Fixture::new();
    let mut client = server.client();
    let script = "redis.call('INCR', KEYS[1]) return redis.call('KEYS', '*')";
    client.check(&[("MULTI", "+OK"), ("SET a 5", "+QUEUED")]);
    assert_eq!(eval(&mut client, script, &["a"], &[]), "+QUEUED");
    assert_eq!(eval(&mut client, "error('x')", &[], &[]), "+QUEUED");
    client.check(&[("KEYS *", "+QUEUED"), ("GET a", "+QUEUED")]);
    let reply = client.run("EXEC");
    assert!(
        reply.starts_with("[+OK [\"a\"] -ERR user_script:1: x script: "),
        "{reply}"
    );
    assert!(reply.ends_with(" [\"a\"] \"6\"]"), "{reply}");
    client.check(&[("PANDO BEGIN", "+OK")]);
    let script = "redis.call('INCR', KEYS[1]) return redis.call('GET', KEYS[1])";
    assert_eq!(eval(&mut client, script, &["a"], &[]), "\"7\"");
    assert_eq!(server.client().run("GET a"), "\"6\"");
    let flush = eval(&mut client, "redis.call('FLUSHALL')", &[], &[]);
    assert!(
        flush.starts_with("-ERR Command not allowed inside a transaction script:"),
        "{flush}"
    );
    client.check(&[("PANDO COMMIT", "+OK"), ("GET a", "\"7\"")]);
    // In a pipeline each comes after the one before it.
    let name = "return redis.call('APPEND', KEYS[1], ARGV[1])";
    let Answer::Bulk(name) = client.call(&["SCRIPT", "LOAD", name]) else {
        panic!("SCRIPT LOAD replies with the name");
    };
    let mut bytes = Vec::new();
    for n in 0..20 {
        let letter = char::from(b'a' + n).to_string();
        bytes.extend(encode(&[
            b"EVALSHA",
            &name[..],
            b"1",
            b"order",
            letter.as_bytes(),
        ]));
        bytes.extend(encode(&["APPEND", "order", "."]));
    }
    client.send(&bytes);
    for n in 1..=40 {
        assert_eq!(show(&client.answer()), format!(":{n}"));
    }
    client.check(&[("GET order", "\"a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t.\"")]);
}

#[test]
fn commands_that_wait_do_not_wait_in_scripts() {
    let server = Fixture::new();
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("return redis.call('BLMPOP', 0, 1, 'none', 'LEFT')", "nil"),
            ("return redis.call('BZMPOP', 0, 1, 'none', 'MIN')", "nil"),
            ("return redis.call('WAIT', 1, 0)", ":0"),
        ],
    );
    let mut waiting = server.client();
    waiting.send(&encode(&["BLPOP", "list", "20"]));
    check(
        &mut client,
        &[("return redis.call('RPUSH', 'list', 'x')", ":1")],
    );
    assert_eq!(show(&waiting.answer()), "[\"list\" \"x\"]");
}

/// Number of keys of [`cold`].
const KEYS: usize = 4000;

pub(crate) fn filling(n: usize) -> String {
    format!("{n:x}-").repeat(120)
}

/// Returns a server whose database is several times larger than its pool.
pub(crate) fn cold() -> Fixture {
    cold_with(ServerOptions {
        durability: Durability::None,
        ..options()
    })
}

/// As [`cold`], with these options.
pub(crate) fn cold_with(options: ServerOptions) -> Fixture {
    let server = Fixture::opened_by(options, open_small);
    let mut client = server.client();
    for first in (0..KEYS).step_by(100) {
        let sets = (first..first + 100).map(|n| encode(&["SET", &format!("key:{n}"), &filling(n)]));
        client.send(&sets.collect::<Vec<_>>().concat());
        (0..100).for_each(|_| assert_eq!(show(&client.answer()), "+OK"));
    }
    server
}

#[test]
fn a_script_that_waits_for_pages_has_its_effect_once() {
    let server = cold();
    let mut client = server.client();
    // The keys are not named to the server: each that is not in memory ends a run.
    let script = "local sum = 0 \
                  for i = 1, 200 do \
                      local ok, value = pcall(redis.call, 'GET', 'key:' .. (i * 19 + ARGV[1])) \
                      if not ok then error('an error where there is none: ' .. tostring(value)) end \
                      sum = sum + #value \
                      redis.call('INCR', 'runs') \
                  end \
                  redis.call('RPUSH', 'results', sum) \
                  return {sum, redis.call('GET', 'runs')}";
    for round in 0..3_usize {
        let sum: usize = (1..=200).map(|i| filling(i * 19 + round).len()).sum();
        let expected = format!("[:{sum} \"{}\"]", (round + 1) * 200);
        let began = now();
        assert_eq!(
            eval(&mut client, script, &[], &[&round.to_string()]),
            expected
        );
        assert!(
            began.elapsed() < Duration::from_secs(15),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(
            client.integer("LLEN results"),
            i64::try_from(round + 1).unwrap()
        );
    }
    let waits = client.text("INFO stats");
    let at = waits.find("suspended_commands:").unwrap() + 19;
    let waits: u64 = waits[at..].lines().next().unwrap().parse().unwrap();
    assert!(waits > 100, "{waits} waits: the keys were in memory");
}

#[test]
fn no_script_catches_the_end_of_its_run() {
    let server = cold();
    let mut client = server.client();
    // Whatever catches an error could go on with a value that the store has not. It must not get
    // that far: what it writes then would be wrong.
    for (round, catch) in [
        "pcall(redis.call, 'GET', key)",
        "xpcall(function() return redis.call('GET', key) end, function() return 'caught' end)",
        "coroutine.resume(coroutine.create(function() return redis.call('GET', key) end))",
        "pcall(coroutine.wrap(function() return redis.call('GET', key) end))",
        "pcall(pcall, redis.call, 'GET', key)",
        "true, redis.pcall('GET', key)",
    ]
    .into_iter()
    .enumerate()
    {
        let script = format!(
            "for i = 1, 100 do \
                 local key = 'key:' .. (i * 37 + ARGV[1]) \
                 local ok, value, inner = {catch} \
                 value = inner or value \
                 if type(value) ~= 'string' or #value < 120 then \
                     redis.call('RPUSH', 'wrong', tostring(value)) \
                 end \
             end \
             return redis.call('LRANGE', 'wrong', 0, -1)"
        );
        let reply = eval(&mut client, &script, &[], &[&(round * 6).to_string()]);
        assert_eq!(reply, "[]", "{catch}");
    }
}

#[test]
fn the_clock_of_a_script_stands_still() {
    let server = cold();
    let mut client = server.client();
    let script = "local t = redis.call('TIME') \
                  local same = true \
                  for i = 1, 100 do \
                      redis.call('GET', 'key:' .. i * 31) \
                      local u = redis.call('TIME') \
                      same = same and u[1] == t[1] and u[2] == t[2] \
                  end \
                  return {tostring(same), t[1]}";
    let reply = eval(&mut client, script, &[], &[]);
    assert!(reply.starts_with("[\"true\" \""), "{reply}");
    let script = "redis.call('SET', 'p', 1, 'PX', 40) local n = 0 \
                  for i = 1, 3000000 do n = n + 1 end return redis.call('EXISTS', 'p')";
    assert_eq!(eval(&mut client, script, &[], &[]), ":1");
}

#[test]
fn all_runs_of_a_script_choose_the_same_at_random() {
    let server = cold();
    let mut client = server.client();
    // If each run chose other keys, each would have to wait for pages.
    let script = "local n = 0 \
                  for _ = 1, 60 do n = n + #redis.call('GET', 'key:' .. math.random(0, 3999)) end \
                  return tostring(n > 60 * 120)";
    for _ in 0..3 {
        client.send(&encode(&["EVAL", script, "0"]));
        let limit = Some(Duration::from_secs(15));
        client.stream.set_read_timeout(limit).unwrap();
        assert_eq!(show(&client.answer()), "\"true\"");
    }
}

#[test]
fn a_rate_limiter_and_a_lock_work() {
    let server = Fixture::new();
    let mut client = server.client();
    let limiter = "local n = redis.call('INCR', KEYS[1]) \
                   if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end \
                   if n > tonumber(ARGV[2]) then return {0, redis.call('PTTL', KEYS[1])} end \
                   return {1, n}";
    for n in 1..=3 {
        let reply = eval(&mut client, limiter, &["limit"], &["60000", "3"]);
        assert_eq!(reply, format!("[:1 :{n}]"));
    }
    let refused = eval(&mut client, limiter, &["limit"], &["60000", "3"]);
    assert!(
        refused.starts_with("[:0 :5") || refused == "[:0 :60000]",
        "{refused}"
    );
    let unlock = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                  return redis.call('del', KEYS[1]) else return 0 end";
    client.check(&[("SET lock mine NX PX 60000", "+OK")]);
    assert_eq!(eval(&mut client, unlock, &["lock"], &["other"]), ":0");
    assert_eq!(eval(&mut client, unlock, &["lock"], &["mine"]), ":1");
    assert_eq!(eval(&mut client, unlock, &["lock"], &["mine"]), ":0");
}

/// Returns a server whose scripts have room for some strings that are too long for pages.
pub(crate) fn spacious() -> Fixture {
    let open = |_: &Path| Db::builder().max_memory(2 << 30).open_in_memory();
    Fixture::opened_by(options(), open)
}

#[test]
fn a_script_reads_strings_in_chunks() {
    let server = spacious();
    let mut client = server.client();
    let long: String = (0..700_000_u32).map(|n| format!("{n:08}")).collect();
    client.send(&encode(&["SET", "long", &long]));
    assert_eq!(show(&client.answer()), "+OK");
    let sum = "local s = redis.call('GET', KEYS[1]) \
               return {#s, s:sub(1, 8), s:sub(-8), redis.sha1hex(s)}";
    let expected = eval(&mut client, "return redis.sha1hex(ARGV[1])", &[], &["x"]);
    assert_eq!(expected, "\"11f6ad8ec52a2984abaafd7c3b516503785c2072\"");
    for _ in 0..2 {
        let reply = eval(&mut client, sum, &["long"], &[]);
        assert!(
            reply.starts_with("[:5600000 \"00000000\" \"00699999\" \""),
            "{}",
            &reply[..80.min(reply.len())]
        );
    }
    check(
        &mut client,
        &[
            (
                "return redis.call('GETRANGE', 'long', 8, -5599985)",
                "\"00000001\"",
            ),
            (
                "local a = redis.call('MGET', 'long', 'none', 'long') \
                 return {#a[1], tostring(a[2]), tostring(a[1] == a[3])}",
                "[:5600000 \"false\" \"true\"]",
            ),
            // What it has read is followed by replies of its own, and by writes.
            (
                "redis.call('SET', 'copy', redis.call('GET', 'long')) \
                 return {redis.call('STRLEN', 'copy'), 'end'}",
                "[:5600000 \"end\"]",
            ),
        ],
    );
    assert_eq!(client.run("GET copy"), format!("\"{long}\""));
    // As a whole it is the reply of the script, too.
    let reply = eval(&mut client, "return redis.call('GET', 'long')", &[], &[]);
    assert!(reply == format!("\"{long}\""), "the bytes are others");
    client.run("CONFIG SET lua-time-limit 0");
    // One that is too long for memory is an error, and the connection goes on.
    let too_much = "local t = {} for i = 1, 1000 do t[i] = redis.call('GET', 'long') end return #t";
    let reply = eval(&mut client, too_much, &[], &[]);
    assert!(
        reply.starts_with("-ERR the command reads long strings")
            || reply.starts_with("-ERR not enough memory"),
        "{reply}"
    );
    assert_eq!(client.run("PING"), "+PONG");
}

#[test]
fn scripts_that_may_write_wait_for_the_end_of_a_pause() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    let Answer::Bulk(name) = client.call(&["SCRIPT", "LOAD", "return 1"]) else {
        panic!("SCRIPT LOAD replies with the name");
    };
    for words in [
        &[&b"EVAL"[..], b"return 1", b"0"][..],
        &[b"EVALSHA", &name, b"0"],
    ] {
        assert_eq!(other.run("CLIENT PAUSE 100000 WRITE"), "+OK");
        assert_eq!(show(&other.call(&["EVAL_RO", "return 1", "0"])), ":1");
        client.send(&encode(words));
        client
            .stream
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let early = std::io::Read::read(&mut client.stream, &mut [0]);
        assert!(early.is_err(), "it has not waited");
        assert_eq!(other.run("CLIENT UNPAUSE"), "+OK");
        let limit = Some(Duration::from_secs(20));
        client.stream.set_read_timeout(limit).unwrap();
        assert_eq!(show(&client.answer()), ":1");
    }
}

#[test]
fn scripts_read_and_write_streams() {
    let server = Fixture::new();
    let (mut client, mut reader) = (server.client(), server.client());
    let command = "XREAD BLOCK 0 STREAMS s $";
    reader.send(&encode(&command.split(' ').collect::<Vec<_>>()));
    while !client
        .text("INFO clients")
        .contains("blocked_clients:1\r\n")
    {
        thread::yield_now();
    }
    let entries = "[[\"s\" [[\"1-0\" [\"a\" \"b\"]]]]]";
    check(
        &mut client,
        &[
            (
                "return redis.call('XGROUP', 'CREATE', 's', 'g', '0', 'MKSTREAM')",
                "+OK",
            ),
            ("return redis.call('XADD', 's', '1', 'a', 'b')", "\"1-0\""),
            ("return redis.call('XREAD', 'STREAMS', 's', '0')", entries),
            (
                "return {redis.call('XREADGROUP', 'GROUP', 'g', 'c', 'STREAMS', 's', '>'), \
                 redis.call('XPENDING', 's', 'g')[1], redis.call('XACK', 's', 'g', '1')}",
                &format!("[{entries} :1 :1]"),
            ),
            ("return redis.call('XREAD', 'STREAMS', 's', '$')", "nil"),
            (
                "return redis.pcall('xread', 'BLOCK', '0', 'STREAMS', 's', '$')",
                "-ERR xread command is not allowed with BLOCK option from scripts",
            ),
        ],
    );
    assert_eq!(show(&reader.answer()), entries);
}
