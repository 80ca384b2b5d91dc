//! Nobody comes between a push and the client that waits for it (decision 111).
//!
//! Most of these tests have commands wait for others as long as it takes, since a machine may be
//! busy, so that what they see does not depend on time.

use std::collections::BTreeSet;

use pando_resp::Answer;
use pando_sync::thread;
use pando_sync::time::{Duration, now};

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

/// Clients that track keys are told of a push before the one who waits for it is woken, and have a
/// turn then.
#[test]
fn who_is_told_of_a_change_does_not_overtake_those_who_have_waited_longer() {
    let server = patient();
    // Neighbours have different loops.
    let mut clients = [server.client(), server.client()];
    let [mut first, mut second] = [server.client(), server.client()];
    assert!(matches!(second.run_raw("HELLO 3"), Answer::Map(_)));
    assert_eq!(second.run("CLIENT TRACKING ON BCAST"), "+OK");
    for round in 0..200 {
        wait_for_waiters(&mut clients[0], 0);
        first.begin("BLPOP p q 0");
        wait_for_waiters(&mut clients[0], 1);
        second.begin("BLPOP p q 0");
        wait_for_waiters(&mut clients[0], 2);
        clients[round % 2].check(&[("RPUSH q x", ":1"), ("RPUSH q y", ":1")]);
        assert_eq!(show(&first.answer()), "[\"q\" \"x\"]", "{round}");
        // What it is told comes in between.
        while show(&second.answer()) != "[\"q\" \"y\"]" {}
    }
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
        let commands = [
            "RPUSH q a",
            "SET b 1",
            "RPUSH q b",
            "RPUSH q c",
            "RPUSH q d",
        ];
        let replies = pipeline(&mut pusher, &commands);
        assert_eq!(replies, [":1", "+OK", ":1", ":1", ":2"], "{round}");
        assert_eq!(waiter.end(), "[\"q\" \"a\"]", "{round}");
        assert_eq!(next.end(), "[\"q\" \"b\"]", "{round}");
        assert_eq!(pusher.run("LPOP q 9"), "[\"c\" \"d\"]", "{round}");
        // Several GETs share a look-up.
        waiter.begin("BLPOP q 0");
        wait_for_waiters(&mut pusher, 1);
        let commands = ["INCR a", "LPUSH q x", "GET a", "GET q", "GET a"];
        let replies = pipeline(&mut pusher, &commands);
        assert_eq!(replies[2..], ["\"3\"", "nil", "\"3\""], "{round}");
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
        for command in [
            "SELECT 1", "MULTI", "LLEN q", "SELECT 0", "LLEN q", "SELECT 1",
        ] {
            other.run(command);
        }
        pusher.check(&[("RPUSH q x", ":1")]);
        assert_eq!(other.run("EXEC"), "[:0 +OK :0 +OK]", "{round}");
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

/// The key that gets the element is watched.
#[test]
fn what_is_moved_is_changed_for_who_watches_it() {
    let server = patient();
    let (mut pusher, mut waiter) = (server.client(), server.client());
    let mut others = [server.client(), server.client()];
    for round in 0..200 {
        waiter.begin("BRPOPLPUSH q d 0");
        wait_for_waiters(&mut pusher, 1);
        let watcher = &mut others[round % 2];
        watcher.check(&[("WATCH d", "+OK"), ("MULTI", "+OK"), ("GET a", "+QUEUED")]);
        pusher.check(&[("RPUSH q x", ":1")]);
        watcher.check(&[("EXEC", "nil")]);
        assert_eq!(waiter.end(), "\"x\"");
        pusher.check(&[("DEL d", ":1")]);
    }
}

/// As above, with one who is served slowly: a lock of another client is in his way.
#[test]
fn who_watches_a_key_waits_for_what_is_moved_to_it() {
    let server = patient();
    let (mut pusher, mut waiter) = (server.client(), server.client());
    let (mut owner, mut watcher) = (server.client(), server.client());
    waiter.begin("BLMOVE q d LEFT RIGHT 0");
    wait_for_waiters(&mut pusher, 1);
    watcher.check(&[("WATCH d", "+OK"), ("MULTI", "+OK"), ("GET a", "+QUEUED")]);
    owner.check(&[("PANDO BEGIN", "+OK"), ("PANDO LOCK d", "+OK")]);
    pusher.check(&[("RPUSH q x", ":1")]);
    watcher.begin("EXEC");
    // Time for an EXEC that does not wait.
    thread::sleep(Duration::from_millis(100));
    owner.check(&[("PANDO COMMIT", "+OK")]);
    assert_eq!(watcher.end(), "nil");
    assert_eq!(waiter.end(), "\"x\"");
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

/// Who is slow is waited for once, and not by each command of a pipeline.
#[test]
fn a_pipeline_waits_once_for_who_is_slow() {
    let bound = Duration::from_millis(100);
    let mut of = locked(Fixture::with(pando_server::ServerOptions {
        served_first_max: bound,
        ..options()
    }));
    let began = now();
    let replies = pipeline(&mut of.pusher, &["LLEN q"; 100]);
    assert!(replies.iter().all(|reply| reply == ":1"), "{replies:?}");
    let lasted = began.elapsed();
    assert!(lasted >= bound && lasted < 20 * bound, "{lasted:?}");
    of.owner.check(&[("PANDO COMMIT", "+OK")]);
    assert_eq!(of.waiter.end(), "\"x\"");
}

/// Commands that wait themselves come behind who brings or takes what they change, too, and so do
/// those that change keys which they do not name.
#[test]
fn who_is_awake_is_served_before_all_that_change_his_keys() {
    let server = patient();
    let (mut pusher, mut waiter) = (server.client(), server.client());
    for round in 0..40 {
        let mut check = |waits: &str, replies: &[(&str, &str)], taken: &str| {
            waiter.begin(waits);
            wait_for_waiters(&mut pusher, 1);
            let commands: Vec<&str> = replies.iter().map(|(command, _)| *command).collect();
            let expected: Vec<&str> = replies.iter().map(|(_, reply)| *reply).collect();
            assert_eq!(
                pipeline(&mut pusher, &commands),
                expected,
                "{round} {waits}"
            );
            assert_eq!(waiter.end(), taken, "{round} {commands:?}");
            pusher.check(&[("FLUSHALL", "+OK"), ("RPUSH s x", ":1")]);
        };
        let served = "[\"k\" \"y\"]";
        let moves = "BLMOVE s k LEFT LEFT 0";
        if round > 0 {
            check(
                "BLPOP k 0",
                &[("LPUSH k y", ":1"), (moves, "\"x\"")],
                served,
            );
        }
        let chain = [("LPUSH a y", ":1"), ("BLPOP s 1", "[\"s\" \"y\"]")];
        check("BLMOVE a s RIGHT LEFT 0", &chain, "\"y\"");
        for all in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 1"] {
            check("BLPOP k 0", &[("LPUSH k y", ":1"), (all, "+OK")], served);
        }
    }
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

/// A loop that is kept busy for a while by one of its clients.
struct Busy(Client);

impl Busy {
    /// Has the loop of `client` work for about this time, on a transaction of commands that never
    /// let others go first.
    fn begin(mut client: Client, time: Duration) -> Self {
        const MEASURED: usize = 100;
        let numbers: Vec<String> = (0..500).map(|number| number.to_string()).collect();
        client.run(&format!("RPUSH numbers {}", numbers.join(" ")));
        let sort = encode(&words("SORT numbers DESC LIMIT 0 1"));
        let began = now();
        Self::queue(&mut client, &sort, MEASURED);
        client.run("EXEC");
        let count = MEASURED as u128 * time.as_nanos() / began.elapsed().as_nanos().max(1);
        Self::queue(&mut client, &sort, usize::try_from(count).unwrap());
        client.send(&encode(&["EXEC"]));
        // Long enough for the loop to begin with it.
        thread::sleep(time / 5);
        Self(client)
    }

    fn queue(client: &mut Client, command: &[u8], count: usize) {
        client.run("MULTI");
        client.send(&command.repeat(count));
        for _ in 0..count {
            client.answer();
        }
    }

    fn is_underway(&self) -> bool {
        !self.0.has_answer()
    }

    fn end(mut self) {
        self.0.answer();
    }
}

/// A waiter may have a loop that is busy: others go on after a while.
#[test]
fn a_busy_loop_holds_nobody_for_long() {
    let server = Fixture::new();
    let (mut waiter, mut pusher) = (server.client(), server.client());
    waiter.begin("BLPOP q 0");
    wait_for_waiters(&mut pusher, 1);
    let busy = Busy::begin(server.client(), Duration::from_secs(2));
    pusher.check(&[("RPUSH q x", ":1"), ("LLEN q", ":1"), ("EXISTS q", ":1")]);
    assert!(busy.is_underway(), "the loop was to be busy");
    assert_eq!(waiter.end(), "[\"q\" \"x\"]");
    pusher.check(&[("LLEN q", ":0")]);
    busy.end();
}

/// A waiter whose wait ends after it was woken takes the element or leaves it, and holds nobody.
#[test]
fn a_wait_that_ends_at_the_same_time_holds_nobody() {
    for how in ["TIMEOUT", "ERROR", ""] {
        while !is_told_in_time(how) {}
    }
}

/// Wakes a waiter and ends its wait, by itself if `how` says nothing. Returns false if it had ended
/// before that.
fn is_told_in_time(how: &str) -> bool {
    // Clients of a new server have its loops by turns.
    let server = patient();
    let (mut waiter, mut pusher) = (server.client(), server.client());
    let id = waiter.integer("CLIENT ID");
    let begun = now();
    waiter.begin(if how.is_empty() {
        "BLPOP q 0.3"
    } else {
        "BLPOP q 0"
    });
    wait_for_waiters(&mut pusher, 1);
    let busy = Busy::begin(server.client(), Duration::from_secs(1));
    pusher.check(&[("RPUSH q x", ":1")]);
    let in_time = !how.is_empty() || begun.elapsed() < Duration::from_millis(300);
    if !how.is_empty() {
        // A client without keys is not held.
        pusher.check(&[(&format!("CLIENT UNBLOCK {id} {how}"), ":1")]);
    }
    let left = pusher.integer("LLEN q");
    let reply = waiter.end();
    match how {
        "TIMEOUT" => assert_eq!((left, &*reply), (1, "nil")),
        "ERROR" => assert!(
            left == 1 && reply.starts_with("-UNBLOCKED"),
            "{left} {reply}"
        ),
        _ if in_time => assert_eq!((left, &*reply), (0, "[\"q\" \"x\"]")),
        _ => {}
    }
    busy.end();
    in_time
}

#[test]
fn who_waits_is_served_in_order_by_a_pipeline() {
    const WAITERS: usize = 100;
    let server = Fixture::new();
    let mut pusher = server.client();
    let mut waiters: Vec<Client> = (0..WAITERS).map(|_| server.client()).collect();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        waiter.begin("BLPOP q 0");
        wait_for_waiters(&mut pusher, number + 1);
    }
    let pushes: Vec<String> = (0..WAITERS).map(|of| format!("RPUSH q {of}")).collect();
    let pushes: Vec<&str> = pushes.iter().map(String::as_str).collect();
    pipeline(&mut pusher, &pushes);
    for (number, waiter) in waiters.iter_mut().enumerate() {
        assert_eq!(waiter.end(), format!("[\"q\" \"{number}\"]"));
    }
    pusher.check(&[("EXISTS q", ":0")]);
}

/// Many who wait, move and push at once: each element goes to one, and nobody hangs.
#[test]
fn many_who_wait_and_push_are_all_served() {
    const CLIENTS: usize = 100;
    const EACH: usize = 40;
    let server = Fixture::new();
    let taken: Vec<String> = thread::scope(|scope| {
        let takers: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let mut client = server.client();
                scope.spawn(move || {
                    let mut taken = Vec::new();
                    for _ in 0..EACH {
                        match number % 4 {
                            // Movers, and those who take what they have moved.
                            0 => drop(client.run("BLMOVE q r LEFT RIGHT 0")),
                            1 => taken.push(client.run("BLPOP r 0")),
                            2 => taken.push(client.run("BRPOP s t 0")),
                            _ => taken.push(client.run("BLPOP t s 0")),
                        }
                        client.run("LLEN q");
                    }
                    taken
                })
            })
            .collect();
        for number in 0..CLIENTS {
            let mut client = server.client();
            scope.spawn(move || {
                for of in 0..EACH {
                    // As many of each as are taken.
                    let push = match number % 4 {
                        0 => format!("RPUSH q {number}-{of}"),
                        1 => "LLEN r".to_owned(),
                        _ => format!("RPUSH {} {number}-{of}", ["s", "t"][of % 2]),
                    };
                    pipeline(&mut client, &[&push, "LLEN s"]);
                }
            });
        }
        takers
            .into_iter()
            .flat_map(|of| of.join().unwrap())
            .collect()
    });
    let elements = taken.iter().map(|reply| reply.split('"').nth(3).unwrap());
    let different: BTreeSet<&str> = elements.collect();
    assert_eq!(
        (taken.len(), different.len()),
        (CLIENTS / 4 * EACH * 3, taken.len())
    );
    server.client().check(&[("EXISTS q r s t", ":0")]);
}
