//! Scripts and functions on a full disk, and in a store that has failed: which error comes, and
//! that nothing of what was refused is seen.

use pando_resp::Answer;
use pando_server::Durability;
use pando_sync::time::{Duration, now};
use pandodb::device::faulty::{Fault, FaultPlan, FaultyDevice, Operation};

use crate::client::{Client, encode, show};
use crate::expiry_obstacles::fill;
use crate::failures::{calls, key, send, serve};
use crate::fixture::Fixture;
use crate::scripts::eval;

/// Keys that the scripts write, each in a page of its own.
const KEYS: usize = 200;
const FULL: &str = "-ERR no room for writes: ";
const POISONED: &str = "-ERR writes are refused since a write or sync failed (log: ";
/// The reply of one whose write, or what it has read, was not durable when the log failed.
const NOT_DURABLE: &str = "-MISCONF Errors writing to the log: ";

/// `write` changes all of them, `delete` deletes one key, and `read` returns the value of one.
const LIBRARY: &str = "#!lua name=lib
local function write(keys, args)
    redis.call('SET', 'first', args[1])
    for i = 1, 200 do redis.call('SET', 'own:' .. i, args[1]) end
    return redis.call('GET', 'own:7')
end
redis.register_function('write', write)
redis.register_function('delete', function(keys) return redis.call('DEL', keys[1]) end)
redis.register_function{function_name = 'read', flags = {'no-writes'},
    callback = function(keys) return redis.call('GET', keys[1]) end}";

const WRITE: &str = "redis.call('SET', 'first', ARGV[1])
    for i = 1, 200 do redis.call('SET', 'own:' .. i, ARGV[1]) end
    return redis.call('GET', 'own:7')";
/// It catches all errors that it can.
const WRITE_CAUGHT: &str = "pcall(redis.call, 'SET', 'first', ARGV[1])
    for i = 1, 200 do redis.pcall('SET', 'own:' .. i, ARGV[1]) end
    return 'caught'";
/// It leaves its loop before it writes.
const WRITE_LONG: &str = "local x = 0
    for i = 1, 3000000 do x = x + i end
    for i = 1, 200 do redis.call('SET', 'own:' .. i, ARGV[1]) end
    return 'long'";
/// What makes room does not help what needs it in the same transaction.
const DELETE_AND_WRITE: &str = "redis.call('DEL', 'own:1')
    for i = 2, 200 do redis.call('SET', 'own:' .. i, ARGV[1]) end
    return 'deleted'";

fn own(number: usize) -> String {
    format!("own:{number}")
}

/// Returns a library whose code takes many pages, with one function of its name.
fn long_library(name: &str) -> String {
    let comment = "x".repeat(500_000);
    format!(
        "#!lua name={name}\nredis.register_function('{name}', function() return 5 end)\n--{comment}"
    )
}

/// Libraries have half a second to run, which is too little on a machine that is busy enough.
const TIMEOUT: &str = "ERR FUNCTION LOAD timeout";

/// Sends a command that runs libraries, again if it was not in time.
fn run_libraries(client: &mut Client, words: &[impl AsRef<[u8]>]) -> String {
    let until = now() + Duration::from_secs(120);
    loop {
        let reply = show(&client.call(words));
        if !reply.ends_with(TIMEOUT) || now() > until {
            return reply;
        }
    }
}

/// Sends a command that runs libraries until it is refused: there may be room for it at first,
/// since it takes less than the scripts, and what was replaced before becomes free at any time.
/// Calls `before` before each time, with whether the last one was taken.
#[track_caller]
fn check_libraries_refused(
    client: &mut Client,
    words: &[impl AsRef<[u8]>],
    beginning: &str,
    before: impl Fn(&mut Client, bool),
) {
    let until = now() + Duration::from_secs(120);
    let mut was_taken = false;
    loop {
        before(client, was_taken);
        let reply = show(&client.call(words));
        was_taken = !reply.starts_with('-');
        if !(was_taken || reply.ends_with(TIMEOUT)) || now() > until {
            return check_refused(&reply, beginning);
        }
    }
}

/// Loads the library, and sets all keys that the scripts write.
fn prepare(client: &mut Client) {
    let load = ["FUNCTION", "LOAD", LIBRARY];
    assert_eq!(run_libraries(client, &load), "\"lib\"");
    let padding = "p".repeat(2500);
    let keys = (1..=KEYS).flat_map(|n| [own(n), format!("own:{n}:"), format!("own:{n}:a")]);
    let sets = keys.map(
        |key| match key.ends_with(|last: char| last.is_ascii_digit()) {
            true => encode(&["SET", &key, "old"]),
            false => encode(&["SET", &key, &padding]),
        },
    );
    for _ in 0..send(client, sets) {
        assert_eq!(show(&client.answer()), "+OK");
    }
    client.check(&[("SET first old", "+OK")]);
}

/// Fills the disk so that neither dirty pages nor the next checkpoint leave room for a script.
fn fill_up(client: &mut Client, device: &FaultyDevice) {
    device.set_capacity(32 << 20);
    for round in 0..20 {
        if fill(client, round * 40_000, &[]) == 0 {
            return;
        }
        client.check(&[("SAVE", "+OK")]);
    }
    panic!("there is room again and again");
}

#[track_caller]
fn check_unchanged(server: &Fixture, client: &mut Client) {
    let mut other = server.client();
    for client in [client, &mut other] {
        for number in 1..=KEYS {
            assert_eq!(
                client.run(&format!("GET {}", own(number))),
                "\"old\"",
                "{number}"
            );
        }
        client.check(&[("GET first", "\"old\"")]);
    }
}

#[track_caller]
fn check_refused(reply: &str, beginning: &str) {
    assert!(reply.starts_with(beginning), "{reply:.200}");
}

/// All that writes, and is refused: scripts, functions, and changes of libraries.
fn refused(
    client: &mut Client,
    payload: &[u8],
    beginning: &str,
    before: impl Fn(&mut Client, bool),
) {
    let scripts = [WRITE, WRITE_CAUGHT, WRITE_LONG, DELETE_AND_WRITE];
    for script in scripts {
        check_refused(&eval(client, script, &[], &["new"]), beginning);
    }
    check_refused(&client.run("FCALL write 0 new"), beginning);
    let load = ["FUNCTION", "LOAD", "REPLACE"];
    let again = long_library("lib");
    for words in [&load[..2], &load[..]] {
        let (code, words) = match words.len() {
            2 => (long_library("long"), words),
            _ => (again.clone(), words),
        };
        let command = [words, &[&code]].concat();
        check_libraries_refused(client, &command, beginning, &before);
    }
    for policy in ["APPEND", "REPLACE", "FLUSH"] {
        let words = [b"FUNCTION", &b"RESTORE"[..], payload, policy.as_bytes()];
        check_libraries_refused(client, &words, beginning, &before);
    }
    // In a transaction of the client.
    client.check(&[("MULTI", "+OK"), ("FCALL write 0 new", "+QUEUED")]);
    check_refused(&client.run("EXEC"), beginning);
}

/// Returns the payload of all libraries.
fn dumped(client: &mut Client) -> Vec<u8> {
    let Answer::Bulk(payload) = client.run_raw("FUNCTION DUMP") else {
        panic!("no payload");
    };
    payload
}

/// Restores these libraries alone. Nothing reports that there is room again, so it is retried.
fn restore_alone(client: &mut Client, payload: &[u8]) {
    let restore = [b"FUNCTION", &b"RESTORE"[..], payload, b"FLUSH"];
    while run_libraries(client, &restore) != "+OK" {}
}

/// The payload of a library that is long, and is not there.
fn payload_of_long(client: &mut Client) -> Vec<u8> {
    let load = ["FUNCTION", "LOAD", &long_library("other")];
    assert_eq!(run_libraries(client, &load), "\"other\"");
    let payload = dumped(client);
    client.check(&[("FUNCTION FLUSH", "+OK")]);
    payload
}

#[test]
fn scripts_are_refused_by_a_full_disk_as_a_whole() {
    let (server, device) = serve(Durability::None, None);
    let mut client = server.client();
    let payload = payload_of_long(&mut client);
    prepare(&mut client);
    let own_libraries = dumped(&mut client);
    fill_up(&mut client, &device);
    let libraries = client.run("FUNCTION LIST");
    client.check(&[("CONFIG RESETSTAT", "+OK")]);
    let fill_again = |client: &mut Client, was_taken: bool| {
        if was_taken {
            device.set_capacity(1 << 40);
            restore_alone(client, &own_libraries);
        }
        fill_up(client, &device);
    };
    refused(&mut client, &payload, FULL, fill_again);
    assert_eq!(calls(&mut client, "eval"), (4, 4));
    // One was a part of an EXEC, which was refused.
    assert_eq!(calls(&mut client, "fcall").1, 1);
    check_unchanged(&server, &mut client);
    assert_eq!(client.run("FUNCTION LIST"), libraries);
    client.check(&[
        ("FCALL long 0", "-ERR Function not found"),
        ("FCALL other 0", "-ERR Function not found"),
        // What reads goes on, and so does what deletes.
        ("FCALL read 1 own:7", "\"old\""),
        ("FCALL_RO read 1 own:7", "\"old\""),
        ("SCRIPT EXISTS 0", "[:0]"),
    ]);
    assert_eq!(
        client.run(&format!("FCALL delete 1 {}", key(1))),
        ":1",
        "as DEL"
    );
    let delete = "return redis.call('DEL', KEYS[1])";
    assert_eq!(eval(&mut client, delete, &[&key(2)], &[]), ":1");
    // Beside others in a pipeline, the one that writes is refused alone.
    let (read, write) = ("return redis.call('GET', 'first')", WRITE);
    let commands = [
        encode(&["GET", "own:3"]),
        encode(&["EVAL", read, "0"]),
        encode(&["EVAL", write, "0", "new"]),
        encode(&["EVAL", delete, "1", &key(3)]),
        encode(&["FCALL", "write", "0", "new"]),
        encode(&["EVAL", read, "0"]),
        encode(&["GET", "own:3"]),
    ];
    for _ in 0..3 {
        client.send(&commands.concat());
        let replies: Vec<String> = commands.iter().map(|_| show(&client.answer())).collect();
        assert_eq!(replies[..2], ["\"old\"", "\"old\""]);
        check_refused(&replies[2], FULL);
        check_refused(&replies[4], FULL);
        assert_eq!(replies[5..], ["\"old\"", "\"old\""]);
    }
    check_unchanged(&server, &mut client);
    client.check(&[(&format!("GET {}", key(3)), "nil")]);
    device.set_capacity(1 << 40);
    // Nothing reports that there is room again, so writes are retried.
    while eval(&mut client, WRITE, &[], &["new"]) != "\"new\"" {}
    client.check(&[
        ("GET first", "\"new\""),
        ("FCALL write 0 newer", "\"newer\""),
        ("GET own:200", "\"newer\""),
    ]);
    let restore = [b"FUNCTION", &b"RESTORE"[..], &payload];
    assert_eq!(run_libraries(&mut client, &restore), "+OK");
    client.check(&[("FCALL other 0", ":5"), ("FUNCTION DELETE lib", "+OK")]);
}

/// FUNCTION FLUSH makes room, as FLUSHALL does.
#[test]
fn functions_leave_a_full_disk() {
    let (server, device) = serve(Durability::None, None);
    let mut client = server.client();
    prepare(&mut client);
    fill_up(&mut client, &device);
    client.check(&[
        ("FUNCTION FLUSH", "+OK"),
        ("FUNCTION LIST", "[]"),
        ("FCALL read 1 first", "-ERR Function not found"),
        ("GET first", "\"old\""),
    ]);
}

#[test]
fn a_store_that_failed_refuses_scripts_that_write() {
    let (server, device) = serve(Durability::None, None);
    let mut client = server.client();
    let payload = payload_of_long(&mut client);
    prepare(&mut client);
    device.fail(FaultPlan::sticky(Operation::Sync, "log", 1, Fault::Io));
    assert!(client.run("WAITAOF 1 0 0").starts_with('-'));
    refused(&mut client, &payload, POISONED, |_, _| {});
    for command in [
        "FUNCTION FLUSH",
        "FUNCTION DELETE lib",
        "FCALL delete 1 first",
    ] {
        check_refused(&client.run(command), POISONED);
    }
    check_unchanged(&server, &mut client);
    client.check(&[
        ("FCALL read 1 first", "\"old\""),
        ("FCALL long 0", "-ERR Function not found"),
        ("DBSIZE", &format!(":{}", 3 * KEYS + 1)),
    ]);
    // A script that would write, and does not, is none that is refused.
    let script = "if ARGV[1] == 'no' then return redis.call('GET', 'first') end
                  return redis.call('SET', 'first', ARGV[1])";
    assert_eq!(eval(&mut client, script, &[], &["no"]), "\"old\"");
    check_refused(&eval(&mut client, script, &[], &["x"]), POISONED);
}

/// The script has written, and its log record does not become durable: neither the one who has
/// sent it nor anybody else is told that it has written.
#[test]
fn what_a_script_wrote_and_was_not_durable_is_shown_to_nobody() {
    let (server, device) = serve(Durability::Durable, None);
    let mut client = server.client();
    prepare(&mut client);
    device.fail(FaultPlan::sticky(Operation::Sync, "log", 1, Fault::Io));
    check_refused(&eval(&mut client, WRITE, &[], &["new"]), NOT_DURABLE);
    assert!(client.is_closed());
    for number in (1..=KEYS).step_by(20) {
        let mut reader = server.client();
        check_refused(
            &reader.run(&format!("FCALL read 1 {}", own(number))),
            NOT_DURABLE,
        );
        assert!(reader.is_closed());
    }
    // What was durable is shown, and writes are refused before they are made. A key whose stripe
    // is also that of one of the 201 keys (one in eighty) counts as not durable.
    const OTHERS: usize = 10;
    let padding = format!("\"{}\"", "p".repeat(2500));
    let (mut shown, mut poisoned) = (0, 0);
    for number in 1..=OTHERS {
        let mut reader = server.client();
        match reader.run(&format!("FCALL read 1 {}:a", own(number))) {
            reply if reply == padding => shown += 1,
            reply => check_refused(&reply, NOT_DURABLE),
        }
        let mut writer = server.client();
        let script = format!("return redis.call('SET', 'another:{number}', 1)");
        match eval(&mut writer, &script, &[], &[]) {
            reply if reply.starts_with(POISONED) => poisoned += 1,
            reply => check_refused(&reply, NOT_DURABLE),
        }
        let reply = server.client().run(&format!("EXISTS another:{number}"));
        assert!(reply == ":0" || reply.starts_with(NOT_DURABLE), "{reply}");
    }
    assert!(
        shown > OTHERS / 2 && poisoned > OTHERS / 2,
        "{shown}, {poisoned}"
    );
}
