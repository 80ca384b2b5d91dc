//! Several clients at the same time.

use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::client::encode;
use crate::fixture::Fixture;
use crate::until_end::End;

#[test]
fn increments_of_several_clients_are_all_counted() {
    let server = Fixture::new();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = server.client();
                for _ in 0..20 {
                    client.send(&encode(&["INCR", "n"]).repeat(25));
                    for _ in 0..25 {
                        client.answer();
                    }
                }
            });
        }
    });
    assert_eq!(server.client().run("GET n"), "\"2000\"");
}

#[test]
fn only_one_of_many_creates_a_key() {
    let server = Fixture::new();
    for round in 0..20 {
        let created: i64 = thread::scope(|scope| {
            let clients: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| server.client().integer(&format!("SETNX k{round} v"))))
                .collect();
            clients
                .into_iter()
                .map(|client| client.join().unwrap())
                .sum()
        });
        assert_eq!(created, 1);
    }
}

#[test]
fn flushes_between_writes_leave_a_whole_database() {
    let server = Fixture::new();
    let stop = End::default();
    thread::scope(|scope| {
        let bring = stop.brought();
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = server.client();
                while !stop.is_there() {
                    assert_eq!(client.run("MSET a 1 b 1 c 1"), "+OK");
                    let reply = client.run("MGET a b c");
                    let whole = reply == "[nil nil nil]" || reply == "[\"1\" \"1\" \"1\"]";
                    assert!(whole, "{reply}");
                    client.run("SET t 1 PX 1");
                }
            });
        }
        let mut client = server.client();
        for _ in 0..100 {
            assert_eq!(client.run("FLUSHALL"), "+OK");
        }
        drop(bring);
    });
    let mut client = server.client();
    client.check(&[("FLUSHALL", "+OK"), ("DBSIZE", ":0"), ("KEYS *", "[]")]);
}

#[test]
fn clients_that_vanish_in_the_middle_leave_nothing_behind() {
    let server = Fixture::new();
    let mut client = server.client();
    for round in 0..30 {
        let mut victim = server.client();
        victim.send(&encode(&["INCR", "n"]).repeat(50));
        match round % 3 {
            0 => victim.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100\r\nabc"),
            1 => victim.send(b"MULTI\r\nSET half 1\r\n"),
            _ => {}
        }
        drop(victim);
        client.run("CLIENT KILL TYPE normal SKIPME yes");
    }
    let limit = now() + Duration::from_secs(10);
    while client.text("CLIENT LIST").lines().count() > 1 {
        assert!(now() < limit, "{}", client.text("CLIENT LIST"));
        thread::sleep(Duration::from_millis(5));
    }
    client.check(&[("EXISTS half a", ":0"), ("PING", "+PONG")]);
}
