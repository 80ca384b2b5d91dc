//! Nobody comes between a push and the client that waits for it (decision 111).
//!
//! Most of these tests have commands wait for others as long as it takes, since a machine may be
//! busy, so that what they see does not depend on time.

use pando_sync::time::Duration;

use crate::blocking::wait_for_waiters;
use crate::client::{Client, encode, show, words};
use crate::fixture::{Fixture, options};
use crate::pipeline_runs::together_count;

/// Returns a server whose commands wait for others as long as it takes.
fn patient() -> Fixture {
    Fixture::with(pando_server::ServerOptions {
        served_first_max: Duration::from_secs(100),
        ..options()
    })
}

/// Sends commands in one pipeline. Returns their replies.
fn pipeline(client: &mut Client, commands: &[&str]) -> Vec<String> {
    let bytes: Vec<u8> = (commands.iter())
        .flat_map(|command| encode(&words(command)))
        .collect();
    client.send(&bytes);
    commands.iter().map(|_| show(&client.answer())).collect()
}

#[test]
fn what_is_pushed_is_taken_before_the_next_command() {
    let server = patient();
    // Neighbours have different loops.
    let mut clients = [server.client(), server.client(), server.client()];
    let mut waiter = server.client();
    let looks = [
        ("LLEN q", ":0"),
        ("EXISTS other q", ":0"),
        ("LRANGE q 0 -1", "[]"),
        ("LPOP q", "nil"),
        ("RPOPLPUSH q p", "nil"),
        ("LMPOP 2 none q LEFT", "nil"),
        ("TYPE q", "+none"),
        ("DEL q", ":0"),
        ("GET q", "nil"),
        ("SET q text NX GET", "nil"),
        #[cfg(feature = "scripts")]
        ("EVAL return{redis.call('llen',KEYS[1])} 1 q", "[:0]"),
        ("RPUSH q y", ":1"),
    ];
    for round in 0..240 {
        let (look, expected) = looks[round % looks.len()];
        waiter.begin(["BLPOP p q 0", "BRPOP q 0", "BLMPOP 0 1 q LEFT"][round % 3]);
        wait_for_waiters(&mut clients[0], 1);
        assert_eq!(clients[0].run("RPUSH q x"), ":1", "{round}");
        // By the one who has pushed, or by one that it has told.
        let seen = clients[round / looks.len() % 3].run(look);
        assert_eq!(seen, expected, "{round}: {look}");
        let taken = waiter.end();
        assert!(taken.contains("\"x\""), "{round}: {taken}");
        clients[0].run("DEL q p");
    }
}

#[test]
fn what_is_pushed_is_taken_before_the_next_command_of_a_pipeline() {
    let server = patient();
    let (mut pusher, mut waiter, mut next) = (server.client(), server.client(), server.client());
    for round in 0..100 {
        waiter.begin("BLPOP q 0");
        wait_for_waiters(&mut pusher, 1);
        let commands = [
            "SET a 1",
            "LPUSH o 1",
            "LPUSH q x",
            "LLEN q",
            "LPUSH q y",
            "INCR a",
            "LPUSH q z",
            "LLEN q",
            "GET a",
            "DEL q o",
        ];
        let replies = pipeline(&mut pusher, &commands);
        let expected = [
            "+OK", ":1", ":1", ":0", ":1", ":2", ":2", ":2", "\"2\"", ":2",
        ];
        assert_eq!(replies, expected, "{round}");
        assert_eq!(waiter.end(), "[\"q\" \"x\"]", "{round}");
        // Commands that would share a commit.
        waiter.begin("BLPOP q 0");
        wait_for_waiters(&mut pusher, 1);
        next.begin("BRPOP q 0");
        wait_for_waiters(&mut pusher, 2);
        let commands = ["RPUSH q a", "RPUSH q b", "RPUSH q c", "RPUSH q d"];
        let replies = pipeline(&mut pusher, &commands);
        assert_eq!(replies, [":1", ":1", ":1", ":2"], "{round}");
        assert_eq!(waiter.end(), "[\"q\" \"a\"]", "{round}");
        assert_eq!(next.end(), "[\"q\" \"b\"]", "{round}");
        // Several GETs share a look-up.
        waiter.begin("BLPOP q 0");
        wait_for_waiters(&mut pusher, 1);
        let commands = ["DEL q", "LPUSH q x", "GET a", "GET q", "GET a"];
        let replies = pipeline(&mut pusher, &commands);
        assert_eq!(replies[2..], ["\"2\"", "nil", "\"2\""], "{round}");
        assert_eq!(waiter.end(), "[\"q\" \"x\"]", "{round}");
    }
}

/// Large lists have a head that commands of a pipeline keep for each other.
#[test]
fn what_is_pushed_to_a_large_list_is_taken_before_the_next_command_of_a_pipeline() {
    let server = patient();
    let (mut pusher, mut waiter) = (server.client(), server.client());
    let long = format!("RPUSH d {}", "old ".repeat(20_000));
    assert_eq!(pusher.integer(&long), 20_000);
    for round in 0..50 {
        waiter.begin("BLMOVE q d LEFT RIGHT 0");
        wait_for_waiters(&mut pusher, 1);
        let commands = [
            "LPUSH q x",
            "RPUSH d y",
            "RPUSH d z",
            "RPOP d",
            "RPOP d",
            "RPOP d",
        ];
        let replies = pipeline(&mut pusher, &commands);
        let expected = [":1", ":20002", ":20003", "\"z\"", "\"y\"", "\"x\""];
        assert_eq!(replies, expected, "{round}");
        assert_eq!(waiter.end(), "\"x\"");
    }
}

/// Whoever waits for one key does not keep commands with other keys from sharing commits.
#[test]
fn pipelines_without_an_awaited_key_run_together() {
    let server = patient();
    let (mut pusher, mut waiter) = (server.client(), server.client());
    waiter.begin("BLPOP q 0");
    wait_for_waiters(&mut pusher, 1);
    let before = together_count(&mut pusher);
    let replies = pipeline(&mut pusher, &["LPUSH other x"; 16]);
    assert_eq!(replies[15], ":16");
    assert_eq!(together_count(&mut pusher) - before, 16);
    pusher.check(&[("LPUSH q x", ":1")]);
    assert_eq!(waiter.end(), "[\"q\" \"x\"]");
}

#[test]
fn what_a_transaction_or_script_pushes_is_taken_at_its_end() {
    let server = patient();
    let (mut pusher, mut other, mut waiter) = (server.client(), server.client(), server.client());
    for round in 0..100 {
        waiter.begin("BLPOP q 0");
        wait_for_waiters(&mut pusher, 1);
        let exec = ["MULTI", "RPUSH q x y", "LLEN q", "EXEC", "LRANGE q 0 -1"];
        let replies = pipeline(&mut pusher, &exec);
        assert_eq!(replies[3..], ["[:2 :2]", "[\"y\"]"], "{round}");
        assert_eq!(waiter.end(), "[\"q\" \"x\"]");
        // One that reads, in another database for a part, waits for the others; queueing does not.
        pusher.run("DEL q");
        waiter.begin("BLPOP q 0");
        wait_for_waiters(&mut pusher, 1);
        for command in ["MULTI", "SELECT 1", "LLEN q", "SELECT 0", "LLEN q"] {
            other.run(command);
        }
        pusher.check(&[("RPUSH q x", ":1")]);
        assert_eq!(other.run("EXEC"), "[+OK :0 +OK :0]", "{round}");
        assert_eq!(waiter.end(), "[\"q\" \"x\"]");
    }
    #[cfg(feature = "scripts")]
    for round in 0..100 {
        waiter.begin("BLPOP q 0");
        wait_for_waiters(&mut pusher, 1);
        // A key that the script does not name ends a pipeline run, too.
        let push = [
            "EVAL redis.call('rpush',KEYS[1],'x')return{redis.call('llen',KEYS[1])} 1 q",
            "EVAL redis.call('rpush','q','x')return{redis.call('llen','q')} 0",
        ][round % 2];
        let llen = "EVAL return{redis.call('llen',KEYS[1])} 1 q";
        let replies = pipeline(&mut pusher, &[push, llen, "LLEN q"]);
        assert_eq!(replies, ["[:1]", "[:0]", ":0"], "{round}");
        assert_eq!(waiter.end(), "[\"q\" \"x\"]");
    }
}

/// Whoever is served may serve others: all of them are before the next command, whichever key it
/// names.
#[test]
fn chains_are_served_to_their_end() {
    const LENGTH: usize = 6;
    let server = patient();
    let mut clients = [server.client(), server.client()];
    let mut movers: Vec<Client> = (0..LENGTH).map(|_| server.client()).collect();
    for round in 0..200 {
        // A chain, or a ring.
        let is_ring = round % 2 == 1;
        for (number, mover) in movers.iter_mut().enumerate() {
            let next = match number + 1 {
                LENGTH if is_ring => 0,
                next => next,
            };
            mover.begin(&format!("BLMOVE l{number} l{next} RIGHT LEFT 0"));
            wait_for_waiters(&mut clients[0], number + 1);
        }
        clients[0].check(&[("RPUSH l0 foo", ":1")]);
        let last = if is_ring { 0 } else { LENGTH };
        // The end of the chain is asked for first, or some other key.
        for step in 0..=LENGTH {
            let key = (last + step * (round % 5 + 1)) % (LENGTH + 1);
            let expected = if key == last { ":1" } else { ":0" };
            let seen = clients[round / 2 % 2].run(&format!("LLEN l{key}"));
            assert_eq!(seen, expected, "{round}: l{key} of {last}");
        }
        for mover in &mut movers {
            assert_eq!(mover.end(), "\"foo\"", "{round}");
        }
        assert_eq!(clients[0].run(&format!("DEL l{last}")), ":1");
    }
}

#[test]
fn all_who_wait_are_served_before_the_next_command() {
    let server = patient();
    let (mut pusher, mut other) = (server.client(), server.client());
    let mut waiters: Vec<Client> = (0..5).map(|_| server.client()).collect();
    for round in 0..100 {
        for (number, waiter) in waiters.iter_mut().enumerate() {
            waiter.begin("BZPOPMIN z 0");
            wait_for_waiters(&mut pusher, number + 1);
        }
        pusher.check(&[("ZADD z 1 a 2 b 3 c 4 d 5 e 6 f", ":6")]);
        let looks = [&mut pusher, &mut other];
        assert_eq!(looks[round % 2].run("ZRANGE z 0 -1"), "[\"f\"]", "{round}");
        for (waiter, member) in waiters.iter_mut().zip("abcde".chars()) {
            assert!(waiter.end().contains(&format!("\"{member}\"")), "{round}");
        }
        pusher.run("DEL z");
    }
    // One is refused, and leaves the element to the next one.
    pusher.run("SET text x");
    for round in 0..50 {
        waiters[0].begin("BLMOVE q text LEFT LEFT 0");
        wait_for_waiters(&mut pusher, 1);
        waiters[1].begin("BLPOP q 0");
        wait_for_waiters(&mut pusher, 2);
        pusher.check(&[("RPUSH q x", ":1"), ("LLEN q", ":0")]);
        assert!(waiters[0].end().starts_with("-WRONGTYPE "), "{round}");
        assert_eq!(waiters[1].end(), "[\"q\" \"x\"]", "{round}");
    }
}

/// One that waits for a lock in the middle of being served, and one that has it.
struct Locked {
    server: Fixture,
    waiter: Client,
    waiter_id: i64,
    owner: Client,
    pusher: Client,
}

/// Returns clients of which one was woken, and cannot end before the owner of a lock does.
fn locked(server: Fixture) -> Locked {
    let (mut waiter, mut owner) = (server.client(), server.client());
    let mut pusher = server.client();
    let waiter_id = waiter.integer("CLIENT ID");
    waiter.begin("BLMOVE q d LEFT RIGHT 0");
    wait_for_waiters(&mut pusher, 1);
    owner.check(&[("PANDO BEGIN", "+OK"), ("PANDO LOCK d", "+OK")]);
    pusher.check(&[("RPUSH q x", ":1")]);
    Locked {
        server,
        waiter,
        waiter_id,
        owner,
        pusher,
    }
}

/// Who is held goes on after a while, even if those before it do not end.
#[test]
fn nobody_is_held_for_long() {
    let mut of = locked(Fixture::new());
    // Commands that name other keys are not held at all.
    of.pusher
        .check(&[("LLEN other", ":0"), ("LLEN q", ":1"), ("LLEN d", ":0")]);
    assert_eq!(
        pipeline(&mut of.pusher, &["RPUSH q y", "RPUSH q z", "LLEN q"]),
        [":2", ":3", ":3"]
    );
    of.owner.check(&[("PANDO COMMIT", "+OK")]);
    assert_eq!(of.waiter.end(), "\"x\"");
    let mut other = of.server.client();
    other.check(&[("LRANGE q 0 -1", "[\"y\" \"z\"]")]);
}

/// A transaction of several commands may have what others wait for, so it is not held.
#[test]
fn who_has_locks_is_not_held() {
    let mut of = locked(patient());
    of.owner.check(&[
        ("LLEN q", ":1"),
        ("RPUSH d first", ":1"),
        ("LLEN d", ":1"),
        ("PANDO COMMIT", "+OK"),
        ("LRANGE d 0 -1", "[\"first\" \"x\"]"),
    ]);
    assert_eq!(of.waiter.end(), "\"x\"");
}

/// Others who wait queue up behind one who is being served, and are not held.
#[test]
fn who_comes_to_wait_is_behind_one_who_is_served() {
    let mut of = locked(patient());
    let mut next = of.server.client();
    next.begin("BLPOP q 0");
    let mut other = of.server.client();
    wait_for_waiters(&mut other, 1);
    // The time of a wait ends meanwhile.
    let mut third = of.server.client();
    third.check(&[("BLPOP q 0.01", "nil")]);
    of.owner.check(&[("PANDO COMMIT", "+OK")]);
    assert_eq!(of.waiter.end(), "\"x\"");
    other.check(&[("RPUSH q y", ":1"), ("LLEN q", ":0")]);
    assert_eq!(next.end(), "[\"q\" \"y\"]");
}

/// One who is gone while he is served holds nobody.
#[test]
fn who_is_killed_while_he_is_served_holds_nobody() {
    for round in 0..20 {
        let mut of = locked(patient());
        let kill = format!("CLIENT KILL ID {}", of.waiter_id);
        of.pusher.begin("LLEN q");
        match round % 2 {
            0 => assert_eq!(of.server.client().run(&kill), ":1"),
            _ => drop(of.waiter),
        }
        assert_eq!(of.pusher.end(), ":1", "{round}");
        of.pusher.check(&[("LPOP q", "\"x\"")]);
        of.owner
            .check(&[("PANDO COMMIT", "+OK"), ("EXISTS d", ":0")]);
    }
}
