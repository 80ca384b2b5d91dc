//! Tests of FUNCTION and FCALL.

use std::path::Path;

use pando_resp::Answer;
use pando_server::{Durability, ServerOptions};
use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, open_on_disk, options};
use crate::scripts::{cold, cold_with};
use crate::statistics::fields;

/// Loads a library and returns the reply as text.
fn load(client: &mut Client, name: &str, body: &str) -> String {
    let code = format!("#!lua name={name}\n{body}");
    show(&client.call(&["FUNCTION", "LOAD", "REPLACE", &code]))
}

/// Loads a library of one function, which is called as the library is.
fn load_one(client: &mut Client, name: &str, function: &str) {
    let body = format!("redis.register_function('{name}', {function})");
    assert_eq!(load(client, name, &body), format!("\"{name}\""));
}

fn on_disk(directory: &Path) -> Fixture {
    let directory = directory.to_owned();
    Fixture::opened_by(options(), move |_| open_on_disk(&directory))
}

const NOT_FOUND: &str = "-ERR Function not found";

#[test]
fn functions_are_called_and_libraries_are_listed() {
    let server = Fixture::new();
    let mut client = server.client();
    let body = "local function set(keys, args) return redis.call('SET', keys[1], args[1]) end\n\
                redis.register_function('set', set)\n\
                redis.register_function{function_name = 'get', description = 'reads', \
                callback = function(keys) return redis.call('GET', keys[1]) end, \
                flags = {'no-writes', 'allow-stale'}}";
    assert_eq!(load(&mut client, "lib", body), "\"lib\"");
    client.check(&[
        ("FCALL set 1 a x", "+OK"),
        ("FCALL get 1 a", "\"x\""),
        ("FCALL_RO get 1 a", "\"x\""),
        (
            "FCALL_RO set 1 a y",
            "-ERR Can not execute a script with write flag using *_ro command.",
        ),
        ("FCALL nosuch 0", NOT_FOUND),
        (
            "FUNCTION LIST",
            "[[\"library_name\" \"lib\" \"engine\" \"LUA\" \"functions\" \
             [[\"name\" \"get\" \"description\" \"reads\" \"flags\" [+no-writes +allow-stale]] \
             [\"name\" \"set\" \"description\" nil \"flags\" []]]]]",
        ),
        (
            "FUNCTION STATS",
            "[\"running_script\" nil \"engines\" [\"LUA\" [\"libraries_count\" :1 \
             \"functions_count\" :2]]]",
        ),
        ("FUNCTION LIST LIBRARYNAME x*", "[]"),
        // As in Redis, libraries are no keys.
        ("FLUSHALL", "+OK"),
        ("FCALL get 1 a", "nil"),
        ("FUNCTION DELETE lib", "+OK"),
        ("FCALL get 1 a", NOT_FOUND),
        ("FUNCTION LIST", "[]"),
    ]);
    // What has replaced a library has none of its functions.
    load_one(&mut client, "one", "function() return 1 end");
    let other = "redis.register_function('two', function() return 2 end)";
    assert_eq!(load(&mut client, "one", other), "\"one\"");
    client.check(&[("FCALL one 0", NOT_FOUND), ("FCALL two 0", ":2")]);
    load_one(&mut client, "three", "function() return 3 end");
    client.check(&[
        ("FUNCTION FLUSH", "+OK"),
        ("FCALL two 0", NOT_FOUND),
        ("FCALL three 0", NOT_FOUND),
    ]);
}

#[test]
fn libraries_survive_restarts() {
    let directory = tempfile::tempdir().unwrap();
    for start in 0..3 {
        let server = on_disk(directory.path());
        let mut client = server.client();
        if start > 0 {
            let expected = format!(":{}", start - 1);
            assert_eq!(client.run("FCALL kept 0"), expected);
            assert_eq!(client.run("FCALL deleted 0"), NOT_FOUND);
        }
        load_one(
            &mut client,
            "kept",
            &format!("function() return {start} end"),
        );
        load_one(&mut client, "deleted", "function() return 1 end");
        client.check(&[
            ("FCALL deleted 0", ":1"),
            ("FUNCTION DELETE deleted", "+OK"),
        ]);
    }
}

#[test]
fn all_loops_see_a_change_at_once() {
    let server = Fixture::new();
    let (mut one, mut other) = (server.client(), server.client());
    for round in 0..100 {
        load_one(&mut one, "f", &format!("function() return {round} end"));
        for client in [&mut other, &mut one] {
            assert_eq!(client.run("FCALL f 0"), format!(":{round}"));
        }
        if round % 3 == 0 {
            assert_eq!(other.run("FUNCTION DELETE f"), "+OK");
            assert_eq!(one.run("FCALL f 0"), NOT_FOUND);
            assert_eq!(other.run("FCALL f 0"), NOT_FOUND);
        }
    }
}

#[test]
fn a_change_and_other_writes_are_one_transaction() {
    let server = Fixture::new();
    let mut writer = server.client();
    load_one(
        &mut writer,
        "f",
        "function() return {0, redis.call('GET', 'x')} end",
    );
    assert_eq!(writer.run("SET x 0"), "+OK");
    let address = server.address;
    let readers: Vec<_> = (0..3)
        .map(|_| {
            thread::spawn(move || {
                let mut client = Client::connect(address);
                let begun = now();
                let mut seen = 0;
                while begun.elapsed() < Duration::from_secs(3) {
                    let reply = client.run("FCALL f 0");
                    let values: Vec<_> = reply.split(['[', ':', ' ', '"', ']']).collect();
                    let values: Vec<_> = values.iter().filter(|word| !word.is_empty()).collect();
                    assert!(values.len() == 2 && values[0] == values[1], "{reply}");
                    seen += 1;
                }
                seen
            })
        })
        .collect();
    let begun = now();
    let (mut round, mut changes) = (0, 0);
    while begun.elapsed() < Duration::from_secs(3) {
        // The same texts come again: what loops have compiled of them is used again.
        round = (round + 1) % 50;
        changes += 1;
        let code = format!(
            "#!lua name=f\nredis.register_function('f', function() \
             return {{{round}, redis.call('GET', 'x')}} end)"
        );
        assert_eq!(writer.run("MULTI"), "+OK");
        // FCALL between them sees the one that was just loaded.
        writer.call(&["FUNCTION", "LOAD", "REPLACE", &code]);
        assert_eq!(writer.run(&format!("SET x {round}")), "+QUEUED");
        assert_eq!(writer.run("FCALL f 0"), "+QUEUED");
        assert_eq!(
            writer.run("EXEC"),
            format!("[\"f\" +OK [:{round} \"{round}\"]]")
        );
    }
    let seen: u32 = readers
        .into_iter()
        .map(|reader| reader.join().unwrap())
        .sum();
    assert!(seen > 10 && changes > 10, "{seen} calls, {changes} changes");
}

#[test]
fn a_transaction_that_is_dropped_has_changed_no_library() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    load_one(&mut client, "f", "function() return 1 end");
    client.check(&[
        ("MULTI", "+OK"),
        ("FUNCTION DELETE f", "+QUEUED"),
        ("FCALL f 0", "+QUEUED"),
        ("DISCARD", "+OK"),
        ("FCALL f 0", ":1"),
        ("WATCH k", "+OK"),
    ]);
    assert_eq!(other.run("SET k 1"), "+OK");
    client.check(&[
        ("MULTI", "+OK"),
        ("FUNCTION FLUSH", "+QUEUED"),
        ("EXEC", "nil"),
        ("FCALL f 0", ":1"),
        ("PANDO BEGIN", "+OK"),
        (
            "FUNCTION FLUSH",
            "-ERR Command not allowed inside a transaction",
        ),
        ("FCALL f 0", ":1"),
        ("PANDO ROLLBACK", "+OK"),
    ]);
}

#[test]
fn a_call_changes_nothing_of_its_library() {
    let server = Fixture::new();
    let (mut one, mut other) = (server.client(), server.client());
    let body = "local count, list = 0, {} \
                redis.register_function('count', function() \
                    count = count + 1 list[#list + 1] = 1 pcall(table.insert, redis, 1) \
                    return {count, #list, #redis} \
                end)";
    assert_eq!(load(&mut one, "lib", body), "\"lib\"");
    for _ in 0..3 {
        for client in [&mut one, &mut other] {
            assert_eq!(client.run("FCALL count 0"), "[:1 :1 :0]");
        }
    }
}

#[test]
fn a_function_that_waits_for_pages_has_its_effect_once() {
    let server = cold();
    let mut client = server.client();
    let body = "local runs = 0 \
                redis.register_function('f', function(keys, args) \
                    for i = 1, 100 do \
                        runs = runs + 1 \
                        redis.call('GET', 'key:' .. (i * 37 + args[1])) \
                        redis.call('INCR', 'runs') \
                    end \
                    return runs \
                end)";
    assert_eq!(load(&mut client, "lib", body), "\"lib\"");
    for round in 1..4 {
        assert_eq!(client.run(&format!("FCALL f 0 {round}")), ":100");
        assert_eq!(client.run("GET runs"), format!("\"{}\"", round * 100));
    }
    // The library itself may have left memory.
    let long = format!("--{}\n{body}", "x".repeat(100_000));
    assert_eq!(load(&mut client, "lib", &long), "\"lib\"");
    for name in 0..20 {
        load_one(
            &mut client,
            &format!("g{name}"),
            &format!("function() return {name} end --[[{}]]", "y".repeat(9000)),
        );
    }
    (1..3000).step_by(7).for_each(|n| {
        client.run(&format!("GET key:{n}"));
    });
    // Another loop compiles them now.
    let mut other = server.client();
    for name in 0..20 {
        assert_eq!(client.run(&format!("FCALL g{name} 0")), format!(":{name}"));
        assert_eq!(other.run(&format!("FCALL g{name} 0")), format!(":{name}"));
    }
    assert_eq!(other.run("FCALL f 0 1"), ":100");
    assert_eq!(client.run("FUNCTION DELETE lib"), "+OK");
    assert_eq!(client.run("FCALL f 0 1"), NOT_FOUND);
}

#[test]
fn a_function_is_killed_and_shown_while_it_runs() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.run("CONFIG SET lua-time-limit 0");
    other.check(&[(
        "FUNCTION KILL",
        "-NOTBUSY No scripts in execution right now.",
    )]);
    load_one(
        &mut client,
        "f",
        "function() redis.call('SET', 'a', 1) while true do end end",
    );
    client.send(&encode(&["FCALL", "f", "1", "key"]));
    let shown = (0..2000).find_map(|_| {
        thread::sleep(Duration::from_millis(1));
        let reply = other.run("FUNCTION STATS");
        (!reply.contains("running_script\" nil")).then_some(reply)
    });
    let shown = shown.expect("it runs");
    let expected = "[\"running_script\" [\"name\" \"f\" \"command\" [\"FCALL\" \"f\" \"1\" \"key\"] \
                    \"duration_ms\" :";
    assert!(shown.starts_with(expected), "{shown}");
    assert_eq!(
        other.run("SCRIPT KILL"),
        "-BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."
    );
    assert_eq!(other.run("FUNCTION KILL"), "+OK");
    let killed = "-ERR Script killed by user with FUNCTION KILL.";
    assert_eq!(show(&client.answer()), killed);
    client.check(&[
        ("EXISTS a", ":0"),
        (
            "FUNCTION KILL",
            "-NOTBUSY No scripts in execution right now.",
        ),
    ]);
    // A script is not ended by it.
    client.send(&encode(&["EVAL", "while true do end", "0"]));
    let busy = "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN \
                NOSAVE.";
    let found = (0..2000).any(|_| {
        thread::sleep(Duration::from_millis(1));
        other.run("FUNCTION KILL") == busy
    });
    assert!(found);
    assert_eq!(other.run("SCRIPT KILL"), "+OK");
    assert!(show(&client.answer()).contains("SCRIPT KILL"));
}

#[test]
fn a_function_that_waits_is_killed() {
    let server = cold_with(ServerOptions {
        threads: 1,
        durability: Durability::None,
        ..options()
    });
    let (mut client, mut other) = (server.client(), server.client());
    client.run("CONFIG SET lua-time-limit 0");
    let function = "function() \
                        while true do for i = 1, 4000 do redis.call('GET', 'key:' .. i) end end \
                    end";
    load_one(&mut client, "f", function);
    client.send(&encode(&["FCALL", "f", "0"]));
    let killed = (0..2000).any(|_| {
        thread::sleep(Duration::from_millis(1));
        other.run("FUNCTION KILL") == "+OK"
    });
    assert!(killed);
    let reply = "-ERR Script killed by user with FUNCTION KILL.";
    assert_eq!(show(&client.answer()), reply);
}

#[test]
fn what_a_library_may_take_is_bounded() {
    let server = Fixture::new();
    let mut client = server.client();
    let prefix = "-ERR Error registering functions: ERR ";
    for (body, problem) in [
        ("while true do end", "FUNCTION LOAD timeout"),
        (
            "local s = 'x' while true do s = s .. s end",
            "not enough memory",
        ),
        (
            "local f = function() end for i = 1, 1001 do redis.register_function('f' .. i, f) end",
            "a library has 1000 functions at most",
        ),
        (
            "redis.register_function(('x'):rep(257), function() end)",
            "the name of a function has 256 characters at most",
        ),
        (
            "redis.register_function{function_name = 'f', description = ('x'):rep(65537), \
             callback = function() end}",
            "the description of a function has 65536 bytes at most",
        ),
        (
            "local function f() return 1 + f() end f()",
            "stack overflow",
        ),
        // In Lua all descriptions are one.
        (
            "local d, f = ('x'):rep(65536), function() end for i = 1, 1000 do \
             redis.register_function{function_name = 'f' .. i, description = d, callback = f} end",
            "all descriptions have",
        ),
    ] {
        let reply = load(&mut client, "lib", body);
        let expected = format!("{prefix}{problem}");
        assert!(reply.starts_with(&expected), "{body}: {reply}");
    }
    let long = format!("--{}", "x".repeat(4_500_000));
    let reply = load(&mut client, "lib", &long);
    assert!(reply.starts_with("-"), "{reply}");
    // All together.
    let padding = "x".repeat(100_000);
    let refused = (0..20).find_map(|n| {
        let body = format!("redis.register_function('f{n}', function() end) --{padding}");
        let reply = load(&mut client, &format!("l{n}"), &body);
        (reply != format!("\"l{n}\"")).then_some((n, reply))
    });
    let (n, reply) = refused.expect("the budget ends");
    assert!(n >= 4 && reply.contains("bytes at most"), "{n}: {reply}");
    // Whatever fits can be brought back, over itself as well.
    let Answer::Bulk(payload) = client.run_raw("FUNCTION DUMP") else {
        panic!("no payload");
    };
    for policy in ["REPLACE", "FLUSH"] {
        let words = [
            b"FUNCTION",
            b"RESTORE".as_slice(),
            &payload,
            policy.as_bytes(),
        ];
        assert_eq!(show(&client.call(&words)), "+OK", "{policy}");
    }
    assert_eq!(client.run("FCALL f0 0"), "nil");
    assert_eq!(client.run("FUNCTION FLUSH"), "+OK");
    assert_eq!(client.run("FUNCTION LIST"), "[]");
    load_one(&mut client, "f", "function() return 1 end");
    assert_eq!(client.run("FCALL f 0"), ":1");
}

#[test]
fn a_library_has_no_way_out_of_its_sandbox() {
    let server = Fixture::new();
    let mut client = server.client();
    let nonexistent = "Script attempted to access nonexistent global variable";
    for name in [
        "string", "load", "pcall", "os", "debug", "setfenv", "jit", "_G",
    ] {
        let reply = load(&mut client, "lib", &format!("local v = {name}"));
        let expected = format!(
            "-ERR Error registering functions: ERR user_function:2: {nonexistent} '{name}'"
        );
        assert_eq!(reply, expected);
    }
    for (function, expected) in [
        (
            "function() return string.dump(function() end) end",
            "attempt to call field 'dump'",
        ),
        (
            "function() return load('\\27LJ') end",
            "bad argument #1 to 'load'",
        ),
        ("function() local v = debug return v end", nonexistent),
        ("function() x = 1 end", "Attempt to modify a readonly table"),
        (
            "function() redis.call = 1 end",
            "Attempt to modify a readonly table",
        ),
        (
            "function() string.x = 1 end",
            "Attempt to modify a readonly table",
        ),
        (
            "function() getmetatable(_G).__index = 1 end",
            "attempt to index",
        ),
        (
            "function() pcall(function() while true do end end) end",
            "was ended after 100 ms",
        ),
    ] {
        client.run("CONFIG SET lua-time-limit 100");
        load_one(&mut client, "f", function);
        let reply = client.run("FCALL f 0");
        assert!(
            reply.starts_with("-") && reply.contains(expected),
            "{function}: {reply}"
        );
    }
    // Nor is there a way that writes raw.
    load_one(
        &mut client,
        "f",
        "function() return {pcall(table.insert, string, 1) and 1 or 0, #string} end",
    );
    client.check(&[("FCALL f 0", "[:0 :0]"), ("FCALL f 0", "[:0 :0]")]);
    let script = "return #string";
    assert_eq!(show(&client.call(&["EVAL", script, "0"])), ":0");
}

#[test]
fn payloads_bring_libraries_back_and_hostile_ones_bring_errors() {
    let server = Fixture::new();
    let mut client = server.client();
    load_one(&mut client, "a", "function() return 1 end");
    load_one(&mut client, "b", "function() return 2 end");
    let Answer::Bulk(payload) = client.run_raw("FUNCTION DUMP") else {
        panic!("no payload");
    };
    let restore = |client: &mut Client, payload: &[u8], policy: &str| {
        show(&client.call(&[
            b"FUNCTION",
            b"RESTORE".as_slice(),
            payload,
            policy.as_bytes(),
        ]))
    };
    assert_eq!(
        restore(&mut client, &payload, "APPEND"),
        "-ERR Library a already exists"
    );
    load_one(&mut client, "a", "function() return 3 end");
    load_one(&mut client, "c", "function() return 4 end");
    assert_eq!(restore(&mut client, &payload, "REPLACE"), "+OK");
    client.check(&[
        ("FCALL a 0", ":1"),
        ("FCALL b 0", ":2"),
        ("FCALL c 0", ":4"),
    ]);
    assert_eq!(restore(&mut client, &payload, "FLUSH"), "+OK");
    client.check(&[("FCALL a 0", ":1"), ("FCALL c 0", NOT_FOUND)]);
    assert_eq!(client.run("FUNCTION DELETE a"), "+OK");
    // The function is one of another library.
    let taken = "redis.register_function('a', function() return 9 end)";
    assert_eq!(load(&mut client, "other", taken), "\"other\"");
    assert_eq!(
        restore(&mut client, &payload, "REPLACE"),
        "-ERR Function a already exists"
    );
    client.check(&[("FCALL a 0", ":9"), ("FCALL b 0", ":2")]);
    let damaged = "-ERR DUMP payload version or checksum are wrong";
    for at in 0..payload.len() {
        let mut bytes = payload.clone();
        bytes[at] ^= 1;
        assert_eq!(restore(&mut client, &bytes, "FLUSH"), damaged, "{at}");
        assert_eq!(restore(&mut client, &payload[..at], "FLUSH"), damaged);
    }
    client.check(&[("FCALL a 0", ":9"), ("FCALL b 0", ":2")]);
}

#[test]
fn functions_are_called_by_their_names_in_any_case() {
    let directory = tempfile::tempdir().unwrap();
    let body = "redis.register_function('Sum', function(keys) return #keys end)";
    {
        let server = on_disk(directory.path());
        let mut client = server.client();
        assert_eq!(load(&mut client, "Lib", body), "\"Lib\"");
        let again = "redis.register_function('SUM', function() return 1 end)";
        let taken = "-ERR Function SUM already exists";
        assert_eq!(load(&mut client, "other", again), taken);
        let twice = load(&mut client, "other", &format!("{body} {body}"));
        assert!(twice.ends_with("already exists in the library"), "{twice}");
        // Names of libraries are not folded.
        assert_eq!(
            load(&mut client, "lib", &body.replace("Sum", "other")),
            "\"lib\""
        );
    }
    let server = on_disk(directory.path());
    let mut client = server.client();
    client.check(&[
        ("FCALL Sum 2 a b", ":2"),
        ("FCALL sum 1 a", ":1"),
        ("FCALL SUM 0", ":0"),
        ("FCALL OTHER 0", ":0"),
    ]);
    assert!(client.run("FUNCTION LIST").contains("\"Sum\""));
    client.check(&[("FUNCTION DELETE Lib", "+OK"), ("FCALL sum 0", NOT_FOUND)]);
}

/// As in Redis, where chance says which one is called: it is the first one, in the order of bytes.
#[test]
fn a_library_has_functions_whose_names_differ_in_case_only() {
    let directory = tempfile::tempdir().unwrap();
    let both = "redis.register_function('f', function() return 1 end) \
                redis.register_function{function_name = 'F', flags = {'no-writes'}, \
                callback = function() return 2 end}";
    {
        let server = on_disk(directory.path());
        let mut client = server.client();
        assert_eq!(load(&mut client, "both", both), "\"both\"");
        client.check(&[("FCALL f 0", ":2"), ("FCALL F 0", ":2")]);
        let taken = "-ERR Function F already exists";
        assert_eq!(load(&mut client, "other", both), taken);
    }
    let server = on_disk(directory.path());
    let mut client = server.client();
    client.check(&[("FCALL f 0", ":2"), ("FCALL_RO f 0", ":2")]);
    let list = client.run("FUNCTION LIST");
    assert!(
        list.contains("\"name\" \"F\"") && list.contains("\"name\" \"f\""),
        "{list}"
    );
    let Answer::Bulk(payload) = client.run_raw("FUNCTION DUMP") else {
        panic!("no payload");
    };
    client.check(&[("FUNCTION DELETE both", "+OK"), ("FCALL f 0", NOT_FOUND)]);
    let restore: [&[u8]; 3] = [b"FUNCTION", b"RESTORE", &payload];
    assert_eq!(show(&client.call(&restore)), "+OK");
    client.check(&[("FCALL f 0", ":2")]);
    assert_eq!(client.run("FUNCTION LIST"), list);
}

/// Waits until so many clients wait for the end of a pause.
fn wait_for_held(client: &mut Client, count: &str) {
    let until = now() + Duration::from_secs(20);
    while fields(client, "clients")["blocked_clients"] != count {
        assert!(now() < until, "they do not wait");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn functions_that_may_write_wait_for_the_end_of_a_pause() {
    let server = Fixture::new();
    let (mut client, mut other, mut third) = (server.client(), server.client(), server.client());
    let body = "redis.register_function('writes', function() return redis.call('INCR', 'n') end) \
                redis.register_function{function_name = 'reads', flags = {'no-writes'}, \
                callback = function() return 2 end}";
    assert_eq!(load(&mut client, "lib", body), "\"lib\"");
    let script = "#!lua flags=no-writes\nreturn 3";
    let name = show(&client.call(&["SCRIPT", "LOAD", script]));
    let name = name.trim_matches('"');
    assert_eq!(other.run("CLIENT PAUSE 100000 WRITE"), "+OK");
    // What says that it does not write goes on.
    assert_eq!(show(&other.call(&["EVAL", script, "0"])), ":3");
    other.check(&[
        ("FCALL reads 0", ":2"),
        ("FCALL_RO reads 0", ":2"),
        (&format!("EVALSHA {name} 0"), ":3"),
        ("MULTI", "+OK"),
        ("FCALL reads 0", "+QUEUED"),
        (&format!("EVALSHA {name} 0"), "+QUEUED"),
        ("EXEC", "[:2 :3]"),
    ]);
    client.send(&encode(&["FCALL", "writes", "0"]));
    third.check(&[
        ("MULTI", "+OK"),
        ("FCALL reads 0", "+QUEUED"),
        ("FCALL writes 0", "+QUEUED"),
    ]);
    third.send(&encode(&["EXEC"]));
    wait_for_held(&mut other, "2");
    let list = other.text("CLIENT LIST");
    assert!(
        list.contains(" cmd=fcall ") && list.contains(" cmd=exec "),
        "{list}"
    );
    let mut more = [server.client(), server.client(), server.client()];
    more[0].send(&encode(&["FCALL", "nosuch", "0"]));
    more[1].send(&encode(&["EVAL", "#!lua\nreturn 4", "0"]));
    more[2].send(&encode(&["EVALSHA", &"0".repeat(40), "0"]));
    wait_for_held(&mut other, "5");
    other.check(&[("EXISTS n", ":0"), ("CLIENT UNPAUSE", "+OK")]);
    // One of both was first.
    let replies = [client.answer(), third.answer()].map(|of| show(&of));
    assert!(
        replies == [":1", "[:2 :2]"] || replies == [":2", "[:2 :1]"],
        "{replies:?}"
    );
    let expected = [
        NOT_FOUND,
        ":4",
        "-NOSCRIPT No matching script. Please use EVAL.",
    ];
    for (client, expected) in more.iter_mut().zip(expected) {
        assert_eq!(show(&client.answer()), expected);
    }
}

#[test]
fn info_tells_how_many_functions_there_are() {
    let server = Fixture::new();
    let mut client = server.client();
    let check = |client: &mut Client, functions: &str, libraries: &str| {
        let memory = fields(client, "memory");
        assert_eq!(memory["number_of_functions"], functions);
        assert_eq!(memory["number_of_libraries"], libraries);
    };
    check(&mut client, "0", "0");
    let one = "redis.register_function('a', function() end)";
    let two = "redis.register_function('b', function() end) \
               redis.register_function('c', function() end)";
    assert_eq!(load(&mut client, "one", one), "\"one\"");
    assert_eq!(load(&mut client, "two", two), "\"two\"");
    check(&mut client, "3", "2");
    assert_eq!(client.run("FUNCTION DELETE two"), "+OK");
    check(&mut client, "1", "1");
    // There are no figures for these.
    assert!(!client.text("INFO memory").contains("used_memory_lua"));
    assert!(!client.text("INFO persistence").contains("rdb_changes"));
}

#[test]
fn loads_beside_each_other_never_share_a_function() {
    let server = Fixture::new();
    let address = server.address;
    drop(server.client());
    // All want the function `f`, and one library at a time may have it.
    let threads: Vec<_> = (0..4)
        .map(|number| {
            thread::spawn(move || {
                let mut client = Client::connect(address);
                let (mut loaded, begun) = (0, now());
                while begun.elapsed() < Duration::from_secs(2) {
                    let body =
                        format!("redis.register_function('f', function() return {number} end)");
                    let reply = load(&mut client, &format!("l{number}"), &body);
                    if reply == format!("\"l{number}\"") {
                        loaded += 1;
                        // Nobody else can have replaced it.
                        assert_eq!(client.run("FCALL f 0"), format!(":{number}"));
                        assert_eq!(client.run(&format!("FUNCTION DELETE l{number}")), "+OK");
                    } else {
                        assert_eq!(reply, "-ERR Function f already exists");
                    }
                }
                loaded
            })
        })
        .collect();
    let loaded: u32 = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    assert!(loaded > 4, "{loaded}");
    let stats = "[\"running_script\" nil \"engines\" [\"LUA\" [\"libraries_count\" :0 \
                 \"functions_count\" :0]]]";
    assert_eq!(server.client().run("FUNCTION STATS"), stats);
}

#[test]
fn a_call_finds_what_the_library_has_registered_in_any_way() {
    let server = Fixture::new();
    let mut client = server.client();
    // As it is registered at each call: by position, by name, in any case, as a number.
    let body = "local function f(keys, args) return args end \
                redis.register_function(7, f) \
                redis.register_function{FUNCTION_NAME = 'named', CALLBACK = f} \
                redis.register_function{function_name = 8, callback = f, description = 9}";
    assert_eq!(load(&mut client, "lib", body), "\"lib\"");
    for name in ["7", "named", "8"] {
        assert_eq!(client.run(&format!("FCALL {name} 0 a")), "[\"a\"]");
    }
    // What the library has taken of `redis` does in a function what it does in a script.
    let body = "local log = redis.log \
                redis.register_function('fails', function() log('a') end)";
    assert_eq!(load(&mut client, "log", body), "\"log\"");
    let failed = client.run("FCALL fails 0");
    assert!(
        failed.contains("redis.log() requires two arguments or more"),
        "{failed}"
    );
    // What depends on where things lie in memory is another thing at each call.
    let body = "local name = ('%s'):format({}):gsub('[^%w]', '') \
                redis.register_function(name, function() return 1 end)";
    assert_eq!(load(&mut client, "odd", body), "\"odd\"");
    let listed = client.run("FUNCTION LIST LIBRARYNAME odd");
    let at = listed.find("\"name\" \"").unwrap() + 8;
    let name = listed[at..].split('"').next().unwrap();
    let reply = client.run(&format!("FCALL {name} 0"));
    assert!(reply == NOT_FOUND || reply == ":1", "{reply}");
}

/// What of the libraries is lost or damaged is told, and goes with FUNCTION FLUSH or by loading it.
#[test]
fn damaged_libraries_can_be_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let first = on_disk(directory.path());
    for name in ["a", "b"] {
        load_one(&mut first.client(), name, "function() return 1 end");
    }
    drop(first);
    let damaged = |change: fn(&pandodb::Table)| {
        let path = directory.path().to_owned();
        Fixture::opened_by(options(), move |_| {
            let db = open_on_disk(&path)?;
            change(&db.table("functions")?);
            Ok(db)
        })
    };
    // A library is not there any more.
    let server = damaged(|table| assert!(table.delete(b"la").unwrap()));
    let mut client = server.client();
    let text = client.run("FUNCTION LIST");
    assert!(text.contains("are damaged; FUNCTION FLUSH"), "{text}");
    let text = client.run("FCALL a 0");
    assert!(
        text.starts_with("-ERR the library of this function is damaged"),
        "{text}"
    );
    assert_eq!(client.run("FCALL b 0"), ":1");
    let text = client.run("FUNCTION DELETE a");
    assert!(text.contains("are damaged; FUNCTION FLUSH"), "{text}");
    client.check(&[("FUNCTION FLUSH", "+OK"), ("FUNCTION LIST", "[]")]);
    client.check(&[("FCALL a 0", NOT_FOUND), ("FCALL b 0", NOT_FOUND)]);
    load_one(&mut client, "a", "function() return 2 end");
    assert_eq!(client.run("FCALL a 0"), ":2");
    drop((client, server));
    // The list is not there any more: the functions belong to nobody.
    let server = damaged(|table| assert!(table.delete(b"d").unwrap()));
    let mut client = server.client();
    client.check(&[("FUNCTION LIST", "[]"), ("FCALL a 0", ":2")]);
    load_one(&mut client, "a", "function() return 3 end");
    assert_eq!(client.run("FCALL a 0"), ":3");
    drop((client, server));
    // The list is something else.
    let server = damaged(|table| table.put(b"d", b"\x01\xff").unwrap());
    let mut client = server.client();
    let text = client.run("FUNCTION STATS");
    assert!(text.contains("are damaged; FUNCTION FLUSH"), "{text}");
    client.check(&[("FUNCTION FLUSH", "+OK"), ("FUNCTION LIST", "[]")]);
}

/// A transaction of PANDO BEGIN has the libraries that it sees; at READCOMMITTED, those of now.
#[test]
fn transactions_of_several_commands_call_the_functions_that_they_see() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    for (level, seen, committed) in [
        ("READCOMMITTED", ":2", "+OK"),
        ("SNAPSHOT", ":1", "+OK"),
        ("SERIALIZABLE", ":1", "-CONFLICT function f"),
    ] {
        load_one(&mut other, "f", "function() return 1 end");
        let begin = format!("PANDO BEGIN {level}");
        client.check(&[(&begin[..], "+OK"), ("FCALL f 0", ":1"), ("SET a 1", "+OK")]);
        load_one(&mut other, "f", "function() return 2 end");
        assert_eq!(client.run("FCALL f 0"), seen, "{level}");
        assert_eq!(client.run("PANDO COMMIT"), committed, "{level}");
    }
}

/// A store that has no functions stays as it is until somebody asks for one.
#[test]
fn the_table_is_made_when_it_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let tables = || open_on_disk(directory.path()).unwrap().tables();
    let has_functions = |tables: &[String]| tables.iter().any(|name| name == "functions");
    let server = on_disk(directory.path());
    let mut client = server.client();
    client.check(&[("EVAL return(1) 0", ":1"), ("FUNCTION FLUSH", "+OK")]);
    drop((client, server));
    assert!(!has_functions(&tables()));
    let server = on_disk(directory.path());
    let mut client = server.client();
    client.check(&[
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
        ("FCALL f 0", "+QUEUED"),
        ("EXEC", &format!("[+OK {NOT_FOUND}]")),
    ]);
    drop((client, server));
    assert!(has_functions(&tables()));
}
