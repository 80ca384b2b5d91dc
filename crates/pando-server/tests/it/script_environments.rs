//! Tests of what scripts that follow each other in one state of Lua share: nothing but tables that
//! are empty, and that none of them can write to (decision 098).

use crate::client::show;
use crate::fixture::Fixture;
use crate::scripts::{check, check_errors, eval};

/// What the next script sees of the tables that scripts have: nothing.
const SEEN: &str = "return {#_G, #redis, #string, rawget(_G, 1) or 'no', rawget(redis, 1) or 'no', \
                    rawget(string, 1) or 'no', next(_G) == nil, next(redis) == nil}";
const NOTHING: &str = "[:0 :0 :0 \"no\" \"no\" \"no\" :1 :1]";

#[test]
fn what_a_script_finds_is_not_to_be_changed() {
    let server = Fixture::new();
    let mut client = server.client();
    let refused = "-ERR Attempt to modify a readonly table script: ";
    for table in ["_G", "redis", "string", "cjson"] {
        for write in [
            "table.insert(T, 1)",
            "table.insert(T, 1, 1)",
            "rawset(T, 1, 1)",
        ] {
            let reply = eval(&mut client, &write.replace('T', table), &[], &[]);
            assert!(reply.starts_with(refused), "{write} of {table}: {reply}");
        }
    }
    let own = "table.insert(KEYS, 'b') local t = setmetatable({}, {}) table.insert(t, 1) return #KEYS + #t";
    assert_eq!(eval(&mut client, own, &["a"], &[]), ":3");
}

#[test]
fn what_a_script_has_changed_is_gone_for_the_next_one() {
    let server = Fixture::new();
    let mut client = server.client();
    for script in [
        "table.insert(_G, 1)",
        "table.insert(redis, 1)",
        "local t = string table.insert(t, 1) table.insert(redis, 1) return redis.sha1hex('')",
        // In another order, so that not only the first or the last table is looked at.
        "local a, b, c = math, string, redis table.insert(b, 1)",
        "table.insert(_G, 1) table.insert(redis, 1) error('it fails')",
        "table.insert(redis, 1) return redis.call('GET')",
        "coroutine.wrap(function() table.insert(_G, 1) table.insert(string, 1) end)()",
    ] {
        eval(&mut client, script, &["k"], &["a"]);
        assert_eq!(eval(&mut client, SEEN, &[], &[]), NOTHING, "{script}");
        // The script itself, too, which was compiled with what it has changed.
        eval(&mut client, script, &[], &[]);
        eval(&mut client, "return 1", &[], &[]);
        assert_eq!(eval(&mut client, SEEN, &[], &[]), NOTHING, "{script}");
    }
}

#[test]
fn each_script_has_its_own_keys_and_arguments() {
    let server = Fixture::new();
    let mut client = server.client();
    let all = "local all = {#KEYS, #ARGV, KEYS.x or 'no', getmetatable(KEYS) == nil} \
               for _, key in ipairs(KEYS) do table.insert(all, key) end \
               for _, value in ipairs(ARGV) do table.insert(all, value) end \
               KEYS.x = 'mine' setmetatable(KEYS, {}) return all";
    for _ in 0..3 {
        for (keys, values, expected) in [
            (
                &["a"][..],
                &["1", "2"][..],
                "[:1 :2 \"no\" :1 \"a\" \"1\" \"2\"]",
            ),
            (&[], &[], "[:0 :0 \"no\" :1]"),
            (&["b", "c"], &[], "[:2 :0 \"no\" :1 \"b\" \"c\"]"),
            (&[], &["3"], "[:0 :1 \"no\" :1 \"3\"]"),
        ] {
            assert_eq!(eval(&mut client, all, keys, values), expected);
            eval(&mut client, "error('it fails')", &["x"], &["x"]);
            assert_eq!(eval(&mut client, all, keys, values), expected);
        }
    }
}

#[test]
fn scripts_and_functions_take_turns() {
    let server = Fixture::new();
    let mut client = server.client();
    let library = "#!lua name=l\n\
                   local count = 0 \
                   redis.register_function('f', function(keys, values) \
                   count = count + 1 \
                   pcall(table.insert, _G, 7) pcall(table.insert, redis, 7) \
                   return {count, #keys, values[1] or 'no', #_G, redis.call('INCR', keys[1])} end) \
                   redis.register_function('fails', function() pcall(table.insert, _G, 7) error('x') end)";
    assert_eq!(show(&client.call(&["FUNCTION", "LOAD", library])), "\"l\"");
    let own = "return {#_G, _G == _G._G, KEYS[1], redis.call('INCR', KEYS[1])}";
    for number in 0..4 {
        let (first, second) = (2 * number + 1, 2 * number + 2);
        let expected = format!("[:1 :1 \"v\" :0 :{first}]");
        assert_eq!(show(&client.call(&["FCALL", "f", "1", "k", "v"])), expected);
        let expected = format!("[:0 :1 \"k\" :{second}]");
        assert_eq!(eval(&mut client, own, &["k"], &[]), expected);
        assert!(show(&client.call(&["FCALL", "fails", "0"])).contains("x script: fails"));
        assert_eq!(eval(&mut client, SEEN, &[], &[]), NOTHING);
    }
}

/// Calls come from whatever coroutine, with as many arguments as `unpack` returns, and errors of
/// theirs are caught or not.
#[test]
fn calls_come_from_everywhere() {
    let server = Fixture::new();
    let mut client = server.client();
    check(
        &mut client,
        &[
            (
                "local go = coroutine.wrap(function() \
                 for i = 1, 3 do coroutine.yield(redis.call('INCRBY', 'n', i)) end end) \
                 return {go(), go(), go()}",
                "[:1 :3 :6]",
            ),
            (
                "local list = {} for i = 1, 7000 do list[i] = i end \
                 return {redis.call('RPUSH', 'list', unpack(list)), \
                 redis.call('LINDEX', 'list', -1), #redis.call('LRANGE', 'list', 0, -1)}",
                "[:7000 \"7000\" :7000]",
            ),
            (
                "local ok, text = pcall(redis.call, 'INCR', 'list') \
                 local reply = redis.pcall('INCR', 'list') \
                 return {ok == false, text, reply.err, reply.ignore_error_stats_update}",
                "[:1 \"WRONGTYPE Operation against a key holding the wrong kind of value\" \
                 \"WRONGTYPE Operation against a key holding the wrong kind of value\" :1]",
            ),
            (
                "return {redis.call('SET', 'k', 1.5), redis.call('GET', 'k'), \
                 redis.call('SET', 'k', 2^53), redis.call('GET', 'k'), redis.pcall('SET', 'k', -0), \
                 redis.call('GET', 'none'), redis.call('SET', 'k', ''), redis.call('GET', 'k')}",
                "[+OK \"1.5\" +OK \"9007199254740992\" +OK nil +OK \"\"]",
            ),
            (
                // As Redis 7.2 writes them.
                "local zero = 0 local echo = function(number) return redis.call('ECHO', number) end \
                 return {echo(-zero), echo(2^62), echo(-2^62), echo(2^62 + 1024), echo(2^63), \
                 echo(1e17), echo(-1e19), echo(2^63 * 3), echo(1 / zero)}",
                "[\"0\" \"4611686018427387904\" \"-4611686018427387904\" \
                 \"4611686018427389000\" \"9223372036854776000\" \"100000000000000000\" \
                 \"-1e+19\" \"27670116110564327000\" \"inf\"]",
            ),
            (
                "redis.setresp(3) redis.call('HSET', 'h', 'f', 'v') redis.call('SADD', 's', 'm') \
                 local h, s = redis.call('HGETALL', 'h'), redis.call('SMEMBERS', 's') \
                 return {h.map.f, s.set.m, redis.call('GET', 'none') == nil}",
                "[\"v\" :1 :1]",
            ),
        ],
    );
    check_errors(
        &mut client,
        &[
            ("local x = redis.call() return x", CALL_WITHOUT),
            ("local x = redis.call({}) return x", NO_STRINGS),
            ("local x = redis.call('GET', print) return x", MISSING),
        ],
    );
}

const CALL_WITHOUT: &str = "-ERR Please specify at least one argument for this redis lib call";
const NO_STRINGS: &str = "-ERR Lua redis lib command arguments must be strings or integers";
const MISSING: &str =
    "-ERR user_script:1: Script attempted to access nonexistent global variable 'print'";
