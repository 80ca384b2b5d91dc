//! Commands that wait for elements of their keys.

use pando_sync::atomic::{AtomicUsize, Ordering};
use pando_sync::thread;
use pando_sync::time::{Duration, now};
use std::collections::BTreeSet;

use crate::client::{Client, encode, show, words};
use crate::fixture::{Fixture, open_small, options};

impl Client {
    /// Sends a command whose reply comes later.
    pub(crate) fn begin(&mut self, command: &str) {
        self.send(&encode(&words(command)));
    }

    /// Returns the reply to a command that was begun.
    pub(crate) fn end(&mut self) -> String {
        show(&self.answer())
    }
}

/// Waits until so many clients wait.
#[track_caller]
pub(crate) fn wait_for_waiters(client: &mut Client, count: usize) {
    wait_for_line(client, &format!("blocked_clients:{count}\r\n"));
}

/// Waits until INFO clients has a line.
#[track_caller]
fn wait_for_line(client: &mut Client, line: &str) {
    let limit = now() + Duration::from_secs(60);
    loop {
        let shown = client.text("INFO clients");
        if shown.contains(line) {
            return;
        }
        assert!(now() < limit, "{line} is not in {shown}");
        thread::yield_now();
    }
}

/// One key for whose lists and sorted sets clients wait counts twice.
#[test]
fn keys_that_are_awaited_are_counted() {
    let server = Fixture::new();
    let mut client = server.client();
    let commands = [
        "BLPOP a b 0",
        "BZPOPMIN b c 0",
        "XREAD BLOCK 0 STREAMS s $",
        "BLMOVE a d LEFT LEFT 0",
    ];
    let mut waiters = commands.map(|_| server.client());
    for (count, (waiter, command)) in (1..).zip(waiters.iter_mut().zip(commands)) {
        waiter.begin(command);
        wait_for_waiters(&mut client, count);
    }
    wait_for_line(&mut client, "total_blocking_keys:5\r\n");
    client.check(&[("RPUSH a x", ":1")]);
    assert_eq!(waiters[0].end(), "[\"a\" \"x\"]");
    wait_for_line(&mut client, "total_blocking_keys:4\r\n");
    drop(waiters);
    wait_for_line(&mut client, "total_blocking_keys:0\r\n");
}

#[test]
fn what_is_there_is_taken_at_once() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("RPUSH a 1 2 3 4 5", ":5"),
        ("BLPOP none a 0", "[\"a\" \"1\"]"),
        ("BRPOP none a 0", "[\"a\" \"5\"]"),
        ("BLMPOP 0 2 none a LEFT COUNT 2", "[\"a\" [\"2\" \"3\"]]"),
        ("BLMOVE a b LEFT RIGHT 0", "\"4\""),
        ("EXISTS a", ":0"),
        ("BRPOPLPUSH b c 0", "\"4\""),
        ("LRANGE c 0 -1", "[\"4\"]"),
        ("BLPOP c x", "-ERR timeout is not a float or out of range"),
        ("BLPOP c -1", "-ERR timeout is negative"),
        ("BLPOP c 1e300", "-ERR timeout is out of range"),
        ("BLPOP c inf", "-ERR timeout is out of range"),
        ("BLPOP c -0x1", "-ERR timeout is negative"),
        ("BLPOP c -0.001", "-ERR timeout is negative"),
        ("BLPOP c nan", "-ERR timeout is not a float or out of range"),
        // Numbers of C, as Redis takes them. The least ones are none that mean for ever.
        ("BLPOP none 0x1p-9", "nil"),
        ("BRPOPLPUSH none c 0x.01", "nil"),
        ("BLMPOP 0X1P-9 1 none LEFT", "nil"),
        ("BRPOPLPUSH c c -0.0009", "\"4\""),
        ("BZPOPMIN none 1e-400", "nil"),
        ("BLMPOP 0 0 c LEFT", "-ERR numkeys should be greater than 0"),
        ("BLMOVE c d UP LEFT 0", "-ERR syntax error"),
        ("LRANGE c 0 -1", "[\"4\"]"),
        ("SET s x", "+OK"),
        (
            "BLPOP s c 0",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        ("MULTI", "+OK"),
        ("BLPOP none 0", "+QUEUED"),
        ("BLMOVE none c LEFT LEFT 0", "+QUEUED"),
        ("BLPOP c 0", "+QUEUED"),
        ("EXEC", "[nil nil [\"c\" \"4\"]]"),
        ("COMMAND GETKEYS BLPOP a b 0", "[\"a\" \"b\"]"),
        ("COMMAND GETKEYS BLMPOP 0 2 a b LEFT", "[\"a\" \"b\"]"),
    ]);
}

#[test]
fn members_of_sorted_sets_are_waited_for() {
    let server = Fixture::new();
    let (mut client, mut waiter) = (server.client(), server.client());
    client.check(&[
        ("ZADD z 1 a 2 b 3 c 4 d", ":4"),
        ("BZPOPMIN none z 0", "[\"z\" \"a\" \"1\"]"),
        ("BZPOPMAX none z 0", "[\"z\" \"d\" \"4\"]"),
        (
            "BZMPOP 0 2 none z MIN COUNT 5",
            "[\"z\" [[\"b\" \"2\"] [\"c\" \"3\"]]]",
        ),
        ("EXISTS z", ":0"),
        ("BZPOPMIN z 0.01", "nil"),
        ("BZMPOP 0.01 1 z MAX", "nil"),
        ("BZMPOP 0 1 z UP", "-ERR syntax error"),
    ]);
    waiter.begin("BZPOPMAX y z 0");
    wait_for_waiters(&mut client, 1);
    client.check(&[("RPUSH y 1", ":1"), ("ZADD z 5 e 6 f", ":2")]);
    assert_eq!(waiter.end(), "[\"z\" \"f\" \"6\"]");
    client.check(&[("DEL z", ":1")]);
    waiter.begin("BZMPOP 0 2 x z MIN");
    wait_for_waiters(&mut client, 1);
    client.check(&[("ZADD q 7 g", ":1"), ("ZUNIONSTORE z 1 q", ":1")]);
    assert_eq!(waiter.end(), "[\"z\" [[\"g\" \"7\"]]]");
}

#[test]
fn the_time_of_a_wait_ends() {
    let server = Fixture::new();
    let mut client = server.client();
    for (command, seconds) in [
        ("BLPOP a b 0.2", 0.2),
        ("BLMPOP 0.1 1 a LEFT", 0.1),
        ("BLMOVE a b LEFT LEFT 0.1", 0.1),
    ] {
        let began = now();
        assert_eq!(client.run(command), "nil");
        assert!(
            began.elapsed() >= Duration::from_secs_f64(seconds),
            "{command}"
        );
    }
    wait_for_waiters(&mut client, 0);
}

#[test]
fn who_has_waited_longest_is_served_first() {
    let server = Fixture::new();
    let mut pusher = server.client();
    let mut waiters: Vec<Client> = (0..6).map(|_| server.client()).collect();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        waiter.begin("BLPOP q 0");
        wait_for_waiters(&mut pusher, number + 1);
    }
    // Three at once, then in one pipeline, then in a transaction.
    pusher.check(&[("RPUSH q a b", ":2")]);
    assert_eq!(waiters[0].end(), "[\"q\" \"a\"]");
    assert_eq!(waiters[1].end(), "[\"q\" \"b\"]");
    pusher.send(b"RPUSH q c\r\nRPUSH q d\r\n");
    assert_eq!(waiters[2].end(), "[\"q\" \"c\"]");
    assert_eq!(waiters[3].end(), "[\"q\" \"d\"]");
    pusher.answer();
    pusher.answer();
    pusher.check(&[
        ("MULTI", "+OK"),
        ("RPUSH q x", "+QUEUED"),
        ("DEL q", "+QUEUED"),
        ("RPUSH q e f", "+QUEUED"),
        ("EXEC", "[:1 :1 :2]"),
    ]);
    assert_eq!(waiters[4].end(), "[\"q\" \"e\"]");
    assert_eq!(waiters[5].end(), "[\"q\" \"f\"]");
    pusher.check(&[("EXISTS q", ":0")]);
}

#[test]
fn a_wait_goes_on_until_there_are_elements() {
    let server = Fixture::new();
    let (mut pusher, mut waiter) = (server.client(), server.client());
    waiter.begin("BLMOVE q r LEFT RIGHT 0");
    wait_for_waiters(&mut pusher, 1);
    pusher.check(&[
        ("MULTI", "+OK"),
        ("RPUSH q x", "+QUEUED"),
        ("DEL q", "+QUEUED"),
        ("EXEC", "[:1 :1]"),
        ("SET q text", "+OK"),
        ("DEL q", ":1"),
        ("RPUSH other y", ":1"),
        ("LPOP other", "\"y\""),
    ]);
    // A chain: what is moved serves the next one.
    let mut next = server.client();
    next.begin("BRPOP a b r 0");
    wait_for_waiters(&mut pusher, 2);
    pusher.check(&[("LPUSH q z", ":1")]);
    assert_eq!(waiter.end(), "\"z\"");
    assert_eq!(next.end(), "[\"r\" \"z\"]");
    // A value of another type when it looks again.
    waiter.begin("BLPOP q 0");
    wait_for_waiters(&mut pusher, 1);
    pusher.check(&[
        ("MULTI", "+OK"),
        ("RPUSH q x", "+QUEUED"),
        ("SET q text", "+QUEUED"),
        ("EXEC", "[:1 +OK]"),
        ("SET q more", "+OK"),
        ("DEL q", ":1"),
        ("RPUSH q at-last", ":1"),
    ]);
    assert_eq!(waiter.end(), "[\"q\" \"at-last\"]");
}

#[test]
fn who_is_gone_takes_nothing_and_keeps_nobody_waiting() {
    let server = Fixture::new();
    let mut pusher = server.client();
    for _ in 0..20 {
        let mut gone = server.client();
        gone.begin("BLPOP q p 0");
        wait_for_waiters(&mut pusher, 1);
        let mut stays = server.client();
        stays.begin("BLPOP q 0");
        wait_for_waiters(&mut pusher, 2);
        drop(gone);
        pusher.send(b"RPUSH q a\r\nRPUSH q b\r\n");
        pusher.answer();
        pusher.answer();
        let served = stays.end();
        // The one who went may have been served just before.
        assert!(
            ["[\"q\" \"a\"]", "[\"q\" \"b\"]"].contains(&served.as_str()),
            "{served}"
        );
        pusher.run("DEL q");
        wait_for_waiters(&mut pusher, 0);
    }
}

/// Every element goes to one client, and nobody waits while there are elements.
#[test]
fn a_queue_loses_and_doubles_nothing() {
    const CONSUMERS: usize = 24;
    const PRODUCERS: usize = 8;
    const EACH: usize = 400;
    let server = Fixture::new();
    let consumers: Vec<_> = (0..CONSUMERS)
        .map(|number| {
            let mut client = server.client();
            thread::spawn(move || {
                let mut taken = Vec::new();
                loop {
                    let command = match number % 3 {
                        0 => "BLPOP q p 0",
                        1 => "BRPOP p q 0",
                        _ => "BLMPOP 0 2 q p LEFT COUNT 3",
                    };
                    let reply = client.run(command);
                    let elements: Vec<&str> = reply.split('"').skip(3).step_by(2).collect();
                    for element in elements {
                        match element.parse::<usize>() {
                            Ok(element) => taken.push(element),
                            Err(_) => return taken,
                        }
                    }
                }
            })
        })
        .collect();
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|number| {
            let mut client = server.client();
            thread::spawn(move || {
                for index in 0..EACH {
                    let key = ["q", "p"][index % 2];
                    client.run(&format!("RPUSH {key} {}", number * EACH + index));
                }
            })
        })
        .collect();
    for producer in producers {
        producer.join().unwrap();
    }
    let mut client = server.client();
    while client.run("EXISTS q p") != ":0" {
        thread::yield_now();
    }
    wait_for_waiters(&mut client, CONSUMERS);
    // One end for each; who takes several gives back what is too much.
    for _ in 0..CONSUMERS * 4 {
        client.run("RPUSH q end");
    }
    let mut all = BTreeSet::new();
    for consumer in consumers {
        for element in consumer.join().unwrap() {
            assert!(all.insert(element), "{element} was taken twice");
        }
    }
    assert_eq!(all.len(), PRODUCERS * EACH);
}

/// One pushes at the moment when the other finds nothing and begins to wait.
#[test]
fn what_comes_between_looking_and_waiting_is_found() {
    const ROUNDS: usize = 6000;
    let server = Fixture::new();
    let (mut pusher, mut waiter) = (server.client(), server.client());
    // Only connections of different loops run at the same time.
    let waits = thread::spawn(move || {
        for _ in 0..ROUNDS {
            assert_eq!(waiter.run("BLPOP q 0"), "[\"q\" \"x\"]");
            waiter.run("RPUSH back x");
        }
    });
    for round in 0..ROUNDS {
        for _ in 0..round % 64 {
            std::hint::spin_loop();
        }
        pusher.run("RPUSH q x");
        assert_eq!(pusher.run("BLPOP back 0"), "[\"back\" \"x\"]");
    }
    waits.join().unwrap();
}

/// It takes milliseconds to look at so many keys: elements come when theirs was looked at, and the
/// command does not wait yet.
#[test]
fn what_comes_while_other_keys_are_looked_at_is_found() {
    const KEYS: usize = 10_000;
    let server = Fixture::new();
    let mut pusher = server.client();
    let keys: Vec<String> = (0..KEYS).map(|number| format!("k{number}")).collect();
    let command = encode(&words(&format!("BLPOP {} 0", keys.join(" "))));
    // One of them has another loop than the one who pushes.
    for mut waiter in [server.client(), server.client()] {
        for round in 0..40 {
            waiter.send(&command);
            thread::sleep(Duration::from_micros(round * 250));
            pusher.check(&[("RPUSH k0 x", ":1")]);
            assert_eq!(waiter.end(), "[\"k0\" \"x\"]", "{round}");
        }
    }
}

/// Between the looks at keys whose pages are on disk the command begins again and again, and what
/// it has read is played back: it must not wait for what has come since.
#[test]
fn what_comes_while_pages_are_read_is_found() {
    const VALUES: usize = 20_000;
    let server = Fixture::opened_by(options(), open_small);
    let mut pusher = server.client();
    let value = "v".repeat(200);
    for first in (0..VALUES).step_by(500) {
        let numbers = first..first + 500;
        let pairs: Vec<String> = numbers.map(|of| format!("key{of:05} {value}")).collect();
        assert_eq!(pusher.run(&format!("MSET {}", pairs.join(" "))), "+OK");
    }
    // The first one lies in a leaf of its own.
    let others = (0..400).map(|of| format!("key{:05}x", of * VALUES / 400));
    let keys: Vec<String> = std::iter::once("a".to_owned()).chain(others).collect();
    let command = encode(&words(&format!("BLPOP {} 0", keys.join(" "))));
    for mut waiter in [server.client(), server.client()] {
        for round in 0..100 {
            waiter.send(&command);
            thread::sleep(Duration::from_micros(round * 100));
            pusher.check(&[("RPUSH a x", ":1")]);
            assert_eq!(waiter.end(), "[\"a\" \"x\"]", "{round}");
        }
    }
}

/// Whoever goes without what is in a key leaves it to the next one.
#[test]
fn nobody_waits_beside_elements_that_another_one_leaves() {
    let server = Fixture::new();
    let mut pusher = server.client();
    let (mut first, mut second) = (server.client(), server.client());
    // One that waits for another type.
    first.begin("BZPOPMIN k 0");
    wait_for_waiters(&mut pusher, 1);
    second.begin("BLPOP k 0");
    wait_for_waiters(&mut pusher, 2);
    pusher.check(&[("RPUSH k x", ":1")]);
    assert_eq!(second.end(), "[\"k\" \"x\"]");
    pusher.check(&[("ZADD k 1 y", ":1")]);
    assert_eq!(first.end(), "[\"k\" \"y\" \"1\"]");
    // One that another key has served.
    first.begin("BLPOP k1 k2 0");
    wait_for_waiters(&mut pusher, 1);
    second.begin("BLPOP k2 0");
    wait_for_waiters(&mut pusher, 2);
    pusher.check(&[
        ("MULTI", "+OK"),
        ("RPUSH k1 a", "+QUEUED"),
        ("RPUSH k2 b", "+QUEUED"),
        ("EXEC", "[:1 :1]"),
    ]);
    assert_eq!(first.end(), "[\"k1\" \"a\"]");
    assert_eq!(second.end(), "[\"k2\" \"b\"]");
    // One that is refused.
    pusher.check(&[("SET d text", "+OK")]);
    first.begin("BLMOVE s d LEFT LEFT 0");
    wait_for_waiters(&mut pusher, 1);
    second.begin("BLPOP s 0");
    wait_for_waiters(&mut pusher, 2);
    pusher.check(&[("RPUSH s z", ":1")]);
    assert!(first.end().starts_with("-WRONGTYPE "));
    assert_eq!(second.end(), "[\"s\" \"z\"]");
}

#[test]
fn others_end_a_wait() {
    let server = Fixture::new();
    let mut client = server.client();
    let commands = [
        ("BLPOP a b 0", "nil"),
        ("BRPOP a 0", "nil"),
        ("BLMPOP 0 2 a b LEFT", "nil"),
        ("BLMOVE a b LEFT LEFT 0", "nil"),
        ("BRPOPLPUSH a b 0", "nil"),
        ("BZPOPMIN a b 0", "nil"),
        ("BZPOPMAX a 0", "nil"),
        ("BZMPOP 0 1 a MIN", "nil"),
        ("WAIT 1 0", ":0"),
        ("WAITAOF 0 1 0", "[:1 :0]"),
    ];
    let error = "-UNBLOCKED client unblocked via CLIENT UNBLOCK";
    // Of both loops.
    for mut waiter in [server.client(), server.client()] {
        let id = waiter.integer("CLIENT ID");
        for (command, nothing) in commands {
            for (how, reply) in [("", nothing), ("TIMEOUT", nothing), ("error", error)] {
                let unblock = format!("CLIENT UNBLOCK {id} {how}");
                client.check(&[(&unblock, ":0")]);
                waiter.begin(command);
                wait_for_waiters(&mut client, 1);
                client.check(&[(&unblock, ":1")]);
                assert_eq!(waiter.end(), reply, "{command} {how}");
                client.check(&[(&unblock, ":0")]);
            }
        }
        // It has no place among those who wait, and takes nothing.
        client.check(&[("RPUSH a x", ":1"), ("LLEN a", ":1"), ("DEL a", ":1")]);
        waiter.check(&[("PING", "+PONG")]);
    }
    client.check(&[
        ("CLIENT UNBLOCK 1000000", ":0"),
        ("CLIENT UNBLOCK -1", ":0"),
        (
            "CLIENT UNBLOCK x",
            "-ERR value is not an integer or out of range",
        ),
        (
            "CLIENT UNBLOCK 1 soon",
            "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR",
        ),
    ]);
}

/// Of an element and an UNBLOCK that come at the same moment one ends the wait. Serving takes some
/// time, for the list that gets the element is long.
#[test]
fn who_is_unblocked_takes_nothing() {
    const ROUNDS: usize = 400;
    const TAKEN: i64 = 20_000;
    let server = Fixture::new();
    let mut waiter = server.client();
    let long = format!("RPUSH taken {}", "old ".repeat(20_000));
    assert_eq!(waiter.integer(&long), TAKEN);
    let id = waiter.integer("CLIENT ID");
    // It has another loop than the one who waits.
    let mut observer = server.client();
    let mut pusher = server.client();
    let mut ended = [0, 0];
    let began = AtomicUsize::new(0);
    for round in 1..=ROUNDS {
        waiter.begin("BLMOVE q taken LEFT RIGHT 0");
        wait_for_waiters(&mut observer, 1);
        // One of the two begins a little later than the other.
        let steps = round % 100 * 200;
        let spin = |steps| (0..steps).for_each(|_| std::hint::spin_loop());
        let unblocked = thread::scope(|scope| {
            let push = scope.spawn(|| {
                began.store(round, Ordering::Relaxed);
                spin(if round % 2 == 1 { steps } else { 0 });
                assert_eq!(pusher.run("RPUSH q x"), ":1");
            });
            while began.load(Ordering::Relaxed) != round {
                std::hint::spin_loop();
            }
            spin(if round % 2 == 0 { steps } else { 0 });
            let unblocked = observer.integer(&format!("CLIENT UNBLOCK {id} ERROR"));
            push.join().unwrap();
            unblocked
        });
        let reply = waiter.end();
        let left = observer.integer("DEL q");
        let taken = observer.integer("LLEN taken") - TAKEN;
        match unblocked {
            1 => assert!(reply.starts_with("-UNBLOCKED"), "{round}: {reply}"),
            _ => assert_eq!(reply, "\"x\"", "{round}"),
        }
        assert_eq!((left, taken), (unblocked, 1 - unblocked), "{round}");
        if taken == 1 {
            assert_eq!(observer.run("RPOP taken"), "\"x\"");
        }
        ended[usize::from(unblocked == 1)] += 1;
    }
    assert!(ended[0] > 0 && ended[1] > 0, "{ended:?}");
}

/// What those who wait take is counted, and has a bound for all of them together.
#[test]
fn keys_that_are_awaited_have_a_bound() {
    let open = |_: &std::path::Path| pandodb::Db::builder().max_memory(16 << 20).open_in_memory();
    let server = Fixture::opened_by(options(), open);
    let (mut first, mut second, mut other) = (server.client(), server.client(), server.client());
    let bytes = |client: &mut Client| -> u64 {
        let text = client.text("INFO memory");
        let mut lines = text.lines();
        let found = lines.find_map(|line| line.strip_prefix("memory_connections:"));
        found.unwrap().parse().unwrap()
    };
    let wait = |client: &mut Client, count: usize| {
        let keys: Vec<String> = (0..count).map(|number| format!("k{number}")).collect();
        client.begin(&format!("BLPOP {} 0", keys.join(" ")));
    };
    let before = bytes(&mut other);
    wait(&mut first, 5000);
    wait_for_waiters(&mut other, 1);
    let used = bytes(&mut other);
    assert!(used - before >= 256 * 5000, "{before} {used}");
    wait(&mut second, 5000);
    let refused = second.end();
    assert!(
        refused.starts_with("-ERR too many awaited keys"),
        "{refused}"
    );
    other.run("RPUSH k4999 a");
    assert_eq!(first.end(), "[\"k4999\" \"a\"]");
    wait(&mut second, 5000);
    wait_for_waiters(&mut other, 1);
    other.run("RPUSH k0 b");
    assert_eq!(second.end(), "[\"k0\" \"b\"]");
}
