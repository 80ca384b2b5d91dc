//! Tests of what bounds a script, and of what is left of one that was ended.

use pando_server::{Durability, ServerOptions};
use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, options};
use crate::scripts::{check_errors, cold, cold_with, eval};

/// Subscribes to the channel `c`.
fn subscribed(server: &Fixture) -> Client {
    let mut client = server.client();
    client.check(&[("SUBSCRIBE c", "[\"subscribe\" \"c\" :1]")]);
    client
}

/// Returns the messages that a subscriber gets until `end`, which it publishes.
fn messages(server: &Fixture, subscriber: &mut Client) -> Vec<String> {
    server.client().run("PUBLISH c end");
    let mut all = Vec::new();
    loop {
        let message = show(&subscriber.answer());
        match message.split('"').collect::<Vec<_>>()[..] {
            [_, "message", _, "c", _, "end", _] => return all,
            [_, "message", _, "c", _, text, _] => all.push(text.to_owned()),
            _ => panic!("{message}"),
        }
    }
}

#[test]
fn a_script_publishes_once_and_only_if_it_is_not_ended() {
    let server = cold();
    let (mut client, mut subscriber) = (server.client(), subscribed(&server));
    // Each key that is not in memory ends a run.
    let waits = "redis.call('PUBLISH', 'c', 'once') \
                 for i = 1, 100 do redis.call('GET', 'key:' .. i * 37) end \
                 redis.call('PUBLISH', 'c', 'last')";
    assert_eq!(eval(&mut client, waits, &[], &[]), "nil");
    assert_eq!(messages(&server, &mut subscriber), ["once", "last"]);
    client.run("CONFIG SET lua-time-limit 100");
    let ended = "redis.call('PUBLISH', 'c', 'never') while true do end";
    assert!(eval(&mut client, ended, &[], &[]).starts_with("-ERR the script was ended"));
    assert_eq!(messages(&server, &mut subscriber), [""; 0]);
    // What fails is not undone.
    let fails = "redis.call('PUBLISH', 'c', 'before') error('x')";
    assert!(eval(&mut client, fails, &[], &[]).starts_with("-ERR user_script"));
    assert_eq!(messages(&server, &mut subscriber), ["before"]);
    // In an EXEC that goes on.
    client.run("CONFIG SET lua-time-limit 5000");
    client.check(&[("MULTI", "+OK"), ("PUBLISH c first", "+QUEUED")]);
    assert_eq!(eval(&mut client, waits, &[], &[]), "+QUEUED");
    client.check(&[("EXEC", "[:1 nil]")]);
    assert_eq!(
        messages(&server, &mut subscriber),
        ["first", "once", "last"]
    );
}

#[test]
fn an_ended_script_has_flushed_nothing() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("CONFIG SET lua-time-limit 100");
    for flush in ["FLUSHALL", "FLUSHDB"] {
        client.check(&[("SET a 1", "+OK"), ("RPUSH l 1 2", ":2")]);
        let script = format!("redis.call('{flush}') while true do end");
        assert!(eval(&mut client, &script, &[], &[]).starts_with("-ERR the script was ended"));
        client.check(&[("EXISTS a l", ":2"), ("DEL a l", ":2")]);
    }
    // An EXEC around it does not commit either.
    client.check(&[("MULTI", "+OK"), ("SET a 1", "+QUEUED")]);
    assert_eq!(eval(&mut client, "while true do end", &[], &[]), "+QUEUED");
    assert!(client.run("EXEC").starts_with("-ERR the script was ended"));
    client.check(&[("EXISTS a", ":0"), ("MULTI", "+OK"), ("EXEC", "[]")]);
}

#[test]
fn what_the_server_keeps_for_a_script_is_bounded() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("CONFIG SET lua-time-limit 100000");
    for first in (0..1000).step_by(100) {
        let sets = (first..first + 100).map(|n| encode(&["SET", &format!("key:{n}"), "v"]));
        client.send(&sets.collect::<Vec<_>>().concat());
        (0..100).for_each(|_| assert_eq!(show(&client.answer()), "+OK"));
    }
    assert_eq!(client.run("SET one x"), "+OK");
    let long = "x".repeat(100_000);
    assert_eq!(show(&client.call(&["SET", "long", &long])), "+OK");
    for call in [
        "'GET', 'none:' .. i",
        "'GET', 'key:' .. i % 1000",
        "'SET', 'a' .. i, ('x'):rep(1000)",
        "'PUBLISH', 'c', ('x'):rep(1000)",
        "'PUBLISH', 'c', 'x'",
        "'LCS', 'one', 'long', 'LEN'",
    ] {
        let script = format!("for i = 1, 1e9 do redis.call({call}) end");
        let reply = eval(&mut client, &script, &[], &[]);
        let expected = "-ERR the script was ended, and has changed nothing: what it reads, writes \
                        and publishes takes more memory than a request may";
        assert_eq!(reply, expected, "{call}");
        assert_eq!(client.integer("DBSIZE"), 1002, "{call}");
    }
    // The messages of all scripts of an EXEC wait for its end.
    let publish = "for i = 1, 7000 do redis.call('PUBLISH', 'c', ('x'):rep(1000)) end";
    assert_eq!(eval(&mut client, publish, &[], &[]), "nil");
    assert_eq!(client.run("MULTI"), "+OK");
    (0..4).for_each(|_| assert_eq!(eval(&mut client, publish, &[], &[]), "+QUEUED"));
    assert!(client.run("EXEC").starts_with("-ERR the script was ended"));
    // Four hundred megabytes, of which Lua has the text once.
    let words = "local t = {} for i = 1, 4000 do t[i] = ('x'):rep(100000) end ";
    let mset = format!("{words} redis.call('MSET', unpack(t))");
    let too_long = "-ERR the arguments of this call take more than a request may";
    check_errors(&mut client, &[(&mset, too_long)]);
    let log = format!("{words} redis.log(redis.LOG_DEBUG, unpack(t)) return 1");
    assert_eq!(eval(&mut client, &log, &[], &[]), ":1");
}

#[test]
fn replies_that_are_garbage_make_room_for_others() {
    let server = Fixture::new();
    let mut client = server.client();
    let long = "x".repeat(900_000);
    assert_eq!(show(&client.call(&["SET", "long", &long])), "+OK");
    // The state of Lua has four megabytes.
    let script = "local sum = 0 \
                  for i = 1, 12 do sum = sum + #redis.call('GET', 'long') + \
                      #redis.call('GETRANGE', 'long', i, -1) end \
                  return sum";
    let sum: usize = (1..=12).map(|i| 900_000 + 900_000 - i).sum();
    assert_eq!(eval(&mut client, script, &[], &[]), format!(":{sum}"));
}

#[test]
fn a_new_script_has_nothing_of_the_time_of_the_last_one() {
    let server = Fixture::with(ServerOptions {
        threads: 1,
        ..options()
    });
    let mut client = server.client();
    // The clock is looked at after a thousand instructions, of whichever script. It has to happen
    // while a new one is compiled.
    for number in 0..1500 {
        client.run("CONFIG SET lua-time-limit 1");
        let last = eval(&mut client, "return 'x'", &[], &[]);
        let ended = "-ERR the script was ended after 1 ms";
        assert!(last == "\"x\"" || last.starts_with(ended), "{last}");
        client.run("CONFIG SET lua-time-limit 5000");
        thread::sleep(Duration::from_millis(1));
        let reply = eval(&mut client, &format!("return {number}"), &[], &[]);
        assert_eq!(reply, format!(":{number}"));
    }
}

#[test]
fn scripts_that_only_read_publish_nothing() {
    let server = Fixture::new();
    let mut client = server.client();
    let refused = "-ERR Write commands are not allowed from read-only scripts.";
    for call in [
        "'PUBLISH', 'c', 'x'",
        "'SPUBLISH', 'c', 'x'",
        "'PFCOUNT', 'k'",
        "'SET', 'k', 1",
    ] {
        let script = format!("return redis.call({call})");
        let reply = show(&client.call(&["EVAL_RO", &script, "0"]));
        assert!(reply.starts_with(refused), "{call}: {reply}");
        let script = format!("#!lua flags=no-writes\n{script}");
        assert!(
            eval(&mut client, &script, &[], &[]).starts_with(refused),
            "{call}"
        );
    }
}

#[test]
fn the_time_of_a_script_is_that_of_all_its_runs() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.run("CONFIG SET lua-time-limit 0");
    let script = "redis.call('GET', 'x') \
                  for i = 1, ARGV[1] do local n = i % 7 end \
                  redis.call('SET', 'y', 1)";
    let mut rounds = 1_000_000;
    let took = loop {
        let began = now();
        eval(&mut client, script, &[], &[&rounds.to_string()]);
        match began.elapsed() {
            took if took > Duration::from_millis(200) => break took,
            _ => rounds *= 2,
        }
    };
    // One run takes less, and each is for nothing, since another client writes what it has read.
    let limit_ms = (took * 2).as_millis();
    client.run(&format!("CONFIG SET lua-time-limit {limit_ms}"));
    client.send(&encode(&["EVAL", script, "0", &rounds.to_string()]));
    let began = now();
    while !client.has_answer() {
        assert!(began.elapsed() < Duration::from_secs(60));
        other.run("INCR x");
        thread::sleep(Duration::from_millis(5));
    }
    let reply = show(&client.answer());
    let expected = format!("-ERR the script was ended after {limit_ms} ms");
    assert!(reply.starts_with(&expected), "{reply}");
}

#[test]
fn a_script_that_waits_is_killed() {
    // What kills it is on the same loop, so it can only find it while it waits.
    let server = cold_with(ServerOptions {
        threads: 1,
        durability: Durability::None,
        ..options()
    });
    let (mut client, mut other) = (server.client(), server.client());
    client.run("CONFIG SET lua-time-limit 0");
    assert!(other.run("SCRIPT KILL").starts_with("-NOTBUSY"));
    let script = "redis.call('SET', 'a', 1) \
                  while true do for i = 1, 4000 do redis.call('GET', 'key:' .. i) end end";
    client.send(&encode(&["EVAL", script, "0"]));
    let killed = (0..2000).any(|_| {
        thread::sleep(Duration::from_millis(1));
        other.run("SCRIPT KILL") == "+OK"
    });
    assert!(killed);
    let reply = show(&client.answer());
    assert_eq!(reply, "-ERR Script killed by user with SCRIPT KILL.");
    assert_eq!(client.run("EXISTS a"), ":0");
    assert!(
        other.run("SCRIPT KILL").starts_with("-NOTBUSY"),
        "nothing runs any more"
    );
}

#[test]
fn a_script_that_has_returned_is_not_killed() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("MULTI");
    assert_eq!(eval(&mut client, "return 1", &[], &[]), "+QUEUED");
    assert_eq!(client.run("SCRIPT KILL"), "+QUEUED");
    assert_eq!(eval(&mut client, "return 2", &[], &[]), "+QUEUED");
    let replies = "[:1 -NOTBUSY No scripts in execution right now. :2]";
    assert_eq!(client.run("EXEC"), replies);
}

#[test]
fn a_reply_that_is_too_long_is_refused_at_once() {
    let server = Fixture::new();
    let mut client = server.client();
    // Each element is the whole again.
    let script = "local t = {} for i = 1, 100000 do t[i] = t end return t";
    let map = "redis.setresp(3) local t = {} for i = 1, 5000 do t[i] = {map = t} end return t";
    for script in [script, map] {
        let begun = now();
        let reply = eval(&mut client, script, &[], &[]);
        assert!(
            reply.starts_with("-ERR reply exceeds the maximum"),
            "{reply}"
        );
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
    }
}

#[test]
fn table_insert_does_not_move_billions_of_places() {
    let server = Fixture::new();
    let mut client = server.client();
    let far = "-ERR user_script:1: bad argument #2 to 'insert' (position out of bounds)";
    check_errors(
        &mut client,
        &[
            ("table.insert({}, -2147483648, 1)", far),
            ("table.insert({}, '-2147483648', 1)", far),
        ],
    );
    let fine = "local t = {1} table.insert(t, 2) table.insert(t, 1, 0) return t";
    assert_eq!(eval(&mut client, fine, &[], &[]), "[:0 :1 :2]");
}

#[test]
fn functions_that_call_each_other_without_end_are_errors() {
    let server = Fixture::new();
    let mut client = server.client();
    // All but the first go through C, whose stack belongs to the machine.
    for script in [
        "local function f() return 1 + f() end return f()",
        "local function f(s) return (string.gsub(s, '.', f)) end return f('x')",
        "local function f() return (string.gsub('x', '.', setmetatable({}, {__index = f}))) end f()",
        "local function f() return coroutine.wrap(f)() end return f()",
        "local function f() return coroutine.resume(coroutine.create(f)) end return error(f())",
        "local function f() table.sort({3, 2, 1}, f) return true end f()",
        "local function f() return load(f) end error(f())",
        "local t = setmetatable({}, {}) getmetatable(t).__tostring = function() \
             return tostring(t) .. '' end tostring(t)",
        "local t = setmetatable({}, {}) getmetatable(t).__tostring = function() \
             return string.format('%s', t) .. '' end tostring(t)",
        "local function f() return xpcall(error, f) end error(f())",
        "error((select(2, xpcall(error, function() pcall(error) local a return a + 1 end))))",
        "local function f() xpcall(function() error('x') end, f) end f() error('x')",
        "error(loadstring('return ' .. ('('):rep(100000)))",
        "error(loadstring('return ' .. ('{'):rep(100000)))",
    ] {
        let reply = eval(&mut client, script, &[], &[]);
        assert!(reply.starts_with("-ERR"), "{script}: {reply}");
    }
    assert_eq!(eval(&mut client, "return 1", &[], &[]), ":1");
}

#[test]
fn a_script_without_end_is_ended_and_has_written_nothing() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("CONFIG SET lua-time-limit 100");
    for script in [
        "redis.call('SET', 'a', 1) while true do end",
        "redis.call('SET', 'a', 1) while true do pcall(function() while true do end end) end",
        "redis.call('SET', 'a', 1) while true do pcall(redis.call, 'SET', 'a', 1) end",
        "redis.call('SET', 'a', 1) local f = coroutine.wrap(function() while true do end end) f()",
        "redis.call('SET', 'a', 1) while true do coroutine.resume(coroutine.create(function() \
             while true do end end)) end",
        "redis.call('SET', 'a', 1) while true do xpcall(function() while true do end end, \
             function() while true do end end) end",
        "redis.call('SET', 'a', 1) xpcall(error, function() while true do end end)",
        "redis.call('SET', 'a', 1) while true do load(function() while true do end end) end",
        "redis.call('SET', 'a', 1) table.sort({1, 2, 3}, function() while true do end end)",
        "redis.call('SET', 'a', 1) string.gsub('x', '.', function() while true do end end)",
    ] {
        let began = now();
        let reply = eval(&mut client, script, &[], &[]);
        let expected = "-ERR the script was ended after 100 ms, and has changed nothing: it must \
                        do less, or lua-time-limit must be longer";
        assert_eq!(reply, expected, "{script}");
        assert!(began.elapsed() < Duration::from_secs(10), "{script}");
        assert_eq!(client.run("EXISTS a"), ":0", "{script}");
    }
    assert_eq!(eval(&mut client, "return 1", &[], &[]), ":1");
}

#[test]
fn a_script_that_takes_all_memory_is_ended_and_has_written_nothing() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run(&format!("SET long {}", "x".repeat(5000)));
    client.run(&format!("RPUSH list {}", "one two three ".repeat(100)));
    for script in [
        "redis.call('SET', 'a', 1) local t = {} for i = 1, 1e9 do t[i] = i .. 'x' end",
        "redis.call('SET', 'a', 1) return ('x'):rep(1e9)",
        "redis.call('SET', 'a', 1) local s = 'x' while true do s = s .. s end",
        "redis.call('SET', 'a', 1) local t = {} while true do t = {t} end",
        // Errors of functions that Rust has take memory, too.
        "redis.call('SET', 'a', 1) local t = {} while true do \
             t[#t + 1] = cmsgpack.pack(#t, ('x'):rep(100)) end",
        "redis.call('SET', 'a', 1) local t = {} while true do \
             t[#t + 1] = cjson.decode(cjson.encode({#t, {#t}})) end",
        // So do replies that a script keeps.
        "redis.call('SET', 'a', 1) local t = {} for i = 1, 1e9 do \
             t[i] = redis.call('INCRBY', 'b', 1e10) .. '' end",
        "redis.call('SET', 'a', 1) local t = {} for i = 1, 1e9 do \
             t[i] = redis.call('GETRANGE', 'long', i % 1000, -1) end",
        "redis.call('SET', 'a', 1) local t = {} for i = 1, 1e9 do \
             t[i] = redis.call('LRANGE', 'list', 0, -1) end",
    ] {
        let reply = eval(&mut client, script, &[], &[]);
        assert!(
            reply.starts_with("-ERR not enough memory: the script"),
            "{script}: {reply}"
        );
        assert_eq!(client.run("EXISTS a"), ":0", "{script}");
        assert_eq!(eval(&mut client, "return 1", &[], &[]), ":1");
    }
}

/// A command that has had its effect, and whose reply finds no memory: a script that catches the
/// error does not go on as if nothing had happened.
#[test]
fn a_reply_without_memory_ends_the_script_though_it_catches_errors() {
    let server = Fixture::new();
    let mut client = server.client();
    let text = "y".repeat(50_000);
    for number in 0..30 {
        // Lua has equal strings once.
        client.call(&["RPUSH", "list", &format!("{text}{number}")]);
    }
    for catches in [
        "pcall(redis.call, 'LPOP', 'list', 30)",
        "pcall(redis.pcall, 'LPOP', 'list', 30)",
    ] {
        // Of 4 MiB.
        let takes = "local t = {} for i = 1, 60 do t[i] = ('x'):rep(50000) .. i end";
        let script = format!("{takes} {catches} t = nil redis.call('SET', 'a', 1) return 1");
        let reply = eval(&mut client, &script, &[], &[]);
        let begin = "-ERR not enough memory: the script";
        assert!(reply.starts_with(begin), "{catches}: {reply}");
        client.check(&[("LLEN list", ":30"), ("EXISTS a", ":0")]);
    }
}

/// The clock is looked at behind calls, too: few instructions may be many of them.
#[test]
fn a_script_of_long_calls_is_ended_in_time() {
    let server = Fixture::new();
    let mut client = server.client();
    client.call(&["SET", "one", &"xy".repeat(1000)]);
    client.call(&["SET", "other", &"yx".repeat(1000)]);
    client.run("CONFIG SET lua-time-limit 100");
    let began = now();
    let script = "local c = redis.call for i = 1, 1e9 do c('LCS', 'one', 'other', 'LEN') end";
    let reply = eval(&mut client, script, &[], &[]);
    let time = began.elapsed();
    assert!(
        reply.starts_with("-ERR the script was ended after 100 ms"),
        "{reply}"
    );
    assert!(time < Duration::from_millis(400), "it took {time:?}");
}

#[test]
fn a_script_is_killed_from_another_loop() {
    let server = Fixture::new();
    let mut client = server.client();
    // No limit at all.
    client.run("CONFIG SET lua-time-limit 0");
    // Connections are spread over both loops: some client is on the loop that has no script.
    let mut others: Vec<Client> = (0..4).map(|_| server.client()).collect();
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            let script = "redis.call('SET', 'a', 1) while true do pcall(error) end";
            eval(&mut client, script, &[], &[])
        });
        let limit = now() + Duration::from_secs(20);
        for other in &mut others {
            other.send(&encode(&["SCRIPT", "KILL"]));
        }
        let mut killed = false;
        while !killed {
            assert!(now() < limit, "no client has killed it");
            for other in &mut others {
                other
                    .stream
                    .set_read_timeout(Some(Duration::from_millis(50)))
                    .unwrap();
            }
            let mut probe = server.client();
            probe.send(&encode(&["SCRIPT", "KILL"]));
            probe
                .stream
                .set_read_timeout(Some(Duration::from_millis(200)))
                .unwrap();
            let mut reply = [0; 4];
            let is_ok = std::io::Read::read(&mut probe.stream, &mut reply);
            killed = is_ok.is_ok() && &reply[..3] == b"+OK" || running.is_finished();
        }
        assert_eq!(
            running.join().unwrap(),
            "-ERR Script killed by user with SCRIPT KILL."
        );
    });
    assert_eq!(server.client().run("EXISTS a"), ":0");
}

#[test]
fn a_search_that_takes_long_is_ended() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("CONFIG SET lua-time-limit 50");
    // Of each, LuaJIT's own would take from minutes to longer than there is a world.
    for search in [
        "s:find(('a?'):rep(30) .. s)",
        "s:match(('a?'):rep(30) .. s)",
        "s:gsub(('a?'):rep(30) .. s, '')",
        "s:gmatch(('a?'):rep(30) .. s)()",
        "('a'):rep(1000):find('.-.-.-.-b')",
        "('a'):rep(1000):match('^(a*)(a*)(a*)(a*)b')",
        "('a'):rep(1000):gsub('(a*)(a+)%1%2b', {})",
        "('a'):rep(1000):gsub('%w*%w-%w+_', s.rep)",
        "('a'):rep(1000):gmatch('[ab]-[^c]*.-d')()",
        "('a'):rep(300000):find('.-b')",
        "('('):rep(300000):find('%b()')",
        "table.concat({('a'):rep(1000)}):find('[%w_]*[%w_]*[%w_]*[%w_]*[^%w_]')",
    ] {
        let script = format!("local s = ('a'):rep(30) return {search}");
        let reply = eval(&mut client, &script, &[], &[]);
        let ended = "-ERR the script was ended after 50 ms";
        assert!(reply.starts_with(ended), "{search}: {reply}");
        let caught =
            format!("local s = ('a'):rep(30) return {{pcall(function() return {search} end)}}");
        let reply = eval(&mut client, &caught, &[], &[]);
        assert!(reply.starts_with(ended), "{search}: {reply}");
    }
    assert_eq!(eval(&mut client, "return 1", &[], &[]), ":1");
}

#[test]
fn long_texts_are_searched_as_short_ones() {
    let server = Fixture::new();
    let mut client = server.client();
    for (script, expected) in [
        ("return {t:find('c', 1, true)}", "[:200001 :200001]"),
        (
            "return {t:find('b(c)()$')}",
            "[:200000 :200001 \"c\" :200002]",
        ),
        ("return {t:match('b*(.)(.)$')}", "[\"b\" \"c\"]"),
        ("return t:match('bc')", "\"bc\""),
        ("return {t:find('d')}", "[]"),
        ("return {t:find('c', -1)}", "[:200001 :200001]"),
        (
            "local u, n = t:gsub('(a)b', '%1') return {#u, n}",
            "[:100001 :100000]",
        ),
        (
            "local u, n = t:gsub('%w', {a = 'xy'}) return {#u, n}",
            "[:300001 :200001]",
        ),
        (
            "local u, n = t:gsub('', '-', 3) return {u:sub(1, 7), n}",
            "[\"-a-b-ab\" :3]",
        ),
        (
            "local n = 0 for a in t:gmatch('a(b)') do n = n + #a end return n",
            ":100000",
        ),
        // A long text and a long part of it, which LuaJIT compares at each place.
        (
            "return {t:rep(2):find(('ab'):rep(90000) .. 'd', 1, true)}",
            "[]",
        ),
    ] {
        let script = format!("local t = ('ab'):rep(100000) .. 'c' {script}");
        assert_eq!(eval(&mut client, &script, &[], &[]), expected, "{script}");
    }
    check_errors(
        &mut client,
        &[
            (
                "local t = ('a'):rep(200000) local _ = t:find('a(a')",
                "-ERR user_script:1: unfinished capture",
            ),
            (
                "local t = ('a'):rep(200000) local _ = t:gsub('a', '%2')",
                "-ERR user_script:1: invalid capture index",
            ),
            (
                "local t = ('a'):rep(200000) for _ in t:gmatch('a[') do end",
                "-ERR user_script:1: malformed pattern (missing ']')",
            ),
        ],
    );
}

#[test]
fn functions_that_take_long_are_ended() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("CONFIG SET lua-time-limit 50");
    let numbers = "local t = {} for i = 1, 50000 do t[i] = i end ";
    let text = "local t = ('x'):rep(500000) ";
    for (made, call) in [
        (numbers, "table.sort(t)"),
        (numbers, "table.concat(t)"),
        (numbers, "cjson.encode(t)"),
        (numbers, "cmsgpack.pack(t)"),
        (text, "t:rep(2)"),
        (text, "t:reverse()"),
        (text, "struct.pack(t)"),
        (
            "local t = '[' .. ('1,'):rep(50000) .. '1]' ",
            "cjson.decode(t)",
        ),
        (
            "local t = '\\220\\255\\255' .. ('x'):rep(65535) ",
            "cmsgpack.unpack(t)",
        ),
    ] {
        let script = format!("{made} while true do {call} end");
        let began = now();
        let reply = eval(&mut client, &script, &[], &[]);
        // A thousand instructions are two hundred and more of these calls: seconds.
        let took = began.elapsed();
        let ended = "-ERR the script was ended after 50 ms";
        assert!(reply.starts_with(ended), "{call}: {reply}");
        assert!(took < Duration::from_secs(10), "{call}: {took:?}");
    }
}

#[test]
fn what_has_no_memory_ends_the_script_alone() {
    let server = Fixture::new();
    let mut client = server.client();
    for made in [
        "function() return i end",
        "function() return i, t end",
        "coroutine.create(function() return i end)",
        "coroutine.wrap(tostring)",
        "{}",
        "{i}",
        "{a = i}",
        "('x'):rep(100) .. i",
        "setmetatable({}, {__index = function() return i end})",
        "('x' .. i):gmatch('.')",
        "cjson.decode('[{}]')",
        "loadstring('return ' .. i)",
    ] {
        let script = format!("local t = {{}} for i = 1, 1e7 do t[i] = {made} end");
        let reply = eval(&mut client, &script, &[], &[]);
        assert!(
            reply.starts_with("-ERR not enough memory"),
            "{made}: {reply}"
        );
        let script = format!("{script} return 1");
        let caught = format!("local ok, problem = pcall(function() {script} end) return 1");
        let reply = eval(&mut client, &caught, &[], &[]);
        let is_fine = reply == ":1" || reply.starts_with("-ERR not enough memory");
        assert!(is_fine, "{made}: {reply}");
        assert_eq!(eval(&mut client, "return 2", &[], &[]), ":2");
    }
}

#[test]
fn an_error_that_speaks_of_memory_is_one_of_the_script() {
    let server = Fixture::new();
    let mut client = server.client();
    for problem in [
        "error('not enough memory', 0)",
        "local ok, text = pcall(string.rep, 'x', 1e9) assert(not ok) error(text, 0)",
        "error({err = 'not enough memory'})",
    ] {
        let script = format!("redis.call('INCR', 'kept') {problem}");
        let reply = eval(&mut client, &script, &[], &[]);
        assert!(reply.starts_with("-"), "{reply}");
        assert!(!reply.contains("was ended"), "{reply}");
    }
    client.check(&[("GET kept", "\"3\"")]);
    // What Lua itself has found is none.
    for lack in [
        "local x = ('x'):rep(1e9)",
        "local x = ('x'):rep(1e10)",
        "local x = ('x'):rep(math.huge)",
        "local t = {} for i = 1, 1e9 do t[i] = {i} end",
    ] {
        let script = format!("redis.call('INCR', 'kept') {lack}");
        let reply = eval(&mut client, &script, &[], &[]);
        assert!(
            reply.starts_with("-ERR not enough memory: the script was ended"),
            "{reply}"
        );
    }
    client.check(&[("GET kept", "\"3\"")]);
}
