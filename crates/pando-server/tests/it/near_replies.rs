//! Searches of places that find much: threads show and store it.

use pando_resp::Answer;
use pando_sync::thread;
use pando_sync::time::Duration;

use crate::client::{Client, show};
use crate::fixture::{Fixture, open_small, options};
use crate::places::{by_distance, fill_long_named, in_order};
use crate::trees::many;
use crate::until_end::End;

/// More than what is shown from memory.
const COUNT: usize = 20_000;

/// Places all over the earth; every fourth one has the place of another.
fn fill(client: &mut Client) {
    let mut random = fastrand::Rng::with_seed(11);
    let mut last = [String::new(), String::new()];
    for start in (0..COUNT).step_by(1_000) {
        let places = (start..start + 1_000).flat_map(|n| {
            if n % 4 != 1 {
                let degrees = [random.f64() * 360.0 - 180.0, random.f64() * 170.0 - 85.0];
                last = degrees.map(|degrees| degrees.to_string());
            }
            [last[0].clone(), last[1].clone(), format!("m{n}")]
        });
        let places: Vec<String> = places.collect();
        assert_eq!(many(client, &["GEOADD", "g"], places.into_iter()), ":1000");
    }
    // Of another use.
    client.check(&[("ZADD g -5 neg 1e300 huge", ":2")]);
}

/// Returns the reply of a command inside of EXEC, where it is made in memory.
fn in_memory(client: &mut Client, command: &str) -> Answer {
    client.check(&[("MULTI", "+OK")]);
    client.run(command);
    match client.run_raw("EXEC") {
        Answer::Array(mut replies) if replies.len() == 1 => replies.remove(0),
        other => panic!("{:.200}", show(&other)),
    }
}

#[test]
fn what_is_near_is_shown_as_it_is_in_memory() {
    let server = Fixture::new();
    let mut client = server.client();
    fill(&mut client);
    let from = "g FROMLONLAT 15.5 37";
    let commands = [
        format!("GEOSEARCH {from} BYRADIUS 30000 km"),
        format!("GEOSEARCH {from} BYRADIUS 19000 km WITHDIST WITHHASH WITHCOORD"),
        format!("GEOSEARCH {from} BYBOX 36000 18000 km WITHCOORD"),
        format!("GEOSEARCH {from} BYRADIUS 30000 km ASC WITHDIST"),
        format!("GEOSEARCH {from} BYRADIUS 30000000 ft DESC WITHDIST WITHHASH"),
        format!("GEOSEARCH {from} BYRADIUS 30000 mi COUNT 17000 WITHDIST"),
        format!("GEOSEARCH {from} BYRADIUS 30000 km COUNT 17000 DESC"),
        format!("GEOSEARCH {from} BYRADIUS 30000 km COUNT 30000 WITHHASH"),
        format!("GEOSEARCH {from} BYRADIUS 30000 km COUNT 17000 ANY"),
        format!("GEOSEARCH {from} BYRADIUS 30000 km COUNT 17000 ANY DESC WITHDIST"),
        "GEOSEARCH g FROMMEMBER m77 BYRADIUS 30000 km ASC WITHDIST".to_owned(),
        "GEORADIUS g 100 -50 30000 km WITHDIST WITHCOORD".to_owned(),
        "GEORADIUS_RO g 100 -50 30000 km ASC".to_owned(),
        "GEORADIUSBYMEMBER g m5 30000 km COUNT 18000".to_owned(),
    ];
    for version in [2, 3] {
        client.run(&format!("HELLO {version}"));
        for command in &commands {
            let expected = show(&in_memory(&mut client, command));
            assert!(expected.len() > 120_000, "{command}: {expected:.200}");
            let shown = show(&client.run_raw(command));
            assert!(shown == expected, "{version} {command}: {shown:.200}");
        }
    }
    client.check(&[("GEORADIUS g 0 0 1 m", "[]"), ("PING", "+PONG")]);
}

#[test]
fn what_is_near_is_stored_as_it_is_from_memory() {
    let server = Fixture::new();
    let mut client = server.client();
    fill(&mut client);
    let shape = "g FROMLONLAT 15.5 37 BYRADIUS 19000 km";
    for (command, options) in [
        ("GEOSEARCHSTORE", shape.to_owned()),
        ("GEOSEARCHSTORE", format!("{shape} STOREDIST")),
        ("GEOSEARCHSTORE", format!("{shape} DESC STOREDIST")),
        ("GEOSEARCHSTORE", format!("{shape} COUNT 6000")),
        (
            "GEOSEARCHSTORE",
            format!("{shape} COUNT 6000 DESC STOREDIST"),
        ),
        ("GEOSEARCHSTORE", format!("{shape} COUNT 6000 ANY")),
        ("GEORADIUS", "g 15.5 37 9000 km STORE".to_owned()),
        ("GEORADIUSBYMEMBER", "g m7 9000 km STOREDIST".to_owned()),
    ] {
        let stores_to = |key: &str| match command {
            "GEOSEARCHSTORE" => format!("{command} {key} {options}"),
            _ => format!("{command} {options} {key}"),
        };
        client.check(&[("SET d old EX 100", "+OK")]);
        let count = client.run(&stores_to("d"));
        let number: usize = count.trim_start_matches(':').parse().unwrap();
        assert!(number > 4_096, "{options}: {count}");
        // What the transaction has changed is read by itself.
        client.check(&[("MULTI", "+OK"), ("ZADD g -7 new", "+QUEUED")]);
        client.run(&stores_to("e"));
        let replies = format!("[:1 {count} :1]");
        client.check(&[("ZREM g new", "+QUEUED"), ("EXEC", &replies)]);
        let stored = client.run("ZRANGE d 0 -1 WITHSCORES");
        assert!(
            stored == client.run("ZRANGE e 0 -1 WITHSCORES"),
            "{options}"
        );
        client.check(&[
            ("ZDIFFSTORE f 2 d e", ":0"),
            ("ZINTERCARD 2 d e", &count),
            ("ZCARD d", &count),
            ("TTL d", ":-1"),
            ("OBJECT ENCODING d", "\"skiplist\""),
        ]);
    }
    let both = "[:20000 :9000 :1]";
    client.check(&[
        ("MULTI", "+OK"),
        (
            "GEOSEARCHSTORE h g FROMLONLAT 1 2 BYRADIUS 30000 km",
            "+QUEUED",
        ),
        (
            "GEOSEARCHSTORE i h FROMLONLAT 1 2 BYRADIUS 30000 km COUNT 9000",
            "+QUEUED",
        ),
        ("DEL h", "+QUEUED"),
        ("EXEC", both),
        ("ZCARD i", ":9000"),
        (
            "GEOSEARCHSTORE g g FROMLONLAT 1 2 BYRADIUS 30000 km",
            ":20000",
        ),
        ("ZSCORE g neg", "nil"),
        ("ZCARD g", ":20000"),
    ]);
}

/// All that is found is more than a reply may be in memory.
#[test]
fn what_is_near_may_be_longer_than_memory() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    // As many as are shown from memory, if that has room.
    let all = fill_long_named(&mut client, 16_200);
    let search = "GEOSEARCH g FROMLONLAT 10.5 20.25 BYRADIUS 30000 km";
    let in_memory = show(&in_memory(&mut client, search));
    assert!(
        in_memory.starts_with("-ERR the command reads a collection"),
        "{in_memory:.80}"
    );
    let hashes: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
    let from = (10.5, 20.25);
    assert!(in_order(&mut client, search) == hashes);
    assert!(in_order(&mut client, &format!("{search} COUNT 9000 ANY")) == hashes[..9000]);
    for (order, is_descending) in [("ASC", false), ("DESC", true)] {
        let expected = by_distance(&all, from, is_descending);
        assert!(in_order(&mut client, &format!("{search} {order}")) == expected);
        let some = in_order(&mut client, &format!("{search} COUNT 12000 {order}"));
        assert!(some == expected[..12_000]);
    }
    let store = "GEOSEARCHSTORE d g FROMLONLAT 10.5 20.25 BYRADIUS 30000 km";
    client.check(&[(store, ":16200")]);
    assert!(in_order(&mut client, "ZRANGE d 0 -1") == hashes);
    client.check(&[(&format!("{store} STOREDIST COUNT 14000"), ":14000")]);
    let mut stored = in_order(&mut client, "ZRANGE d 0 -1");
    let mut expected = by_distance(&all, from, false)[..14_000].to_vec();
    stored.sort();
    expected.sort();
    assert!(stored == expected);
}

/// Two members move together, and one is the center.
#[test]
fn what_is_near_is_of_one_moment() {
    let server = Fixture::new();
    let mut client = server.client();
    fill(&mut client);
    client.check(&[("GEOADD g 0 0 center 0.001 0 beside 170 0 far", ":3")]);
    let search = "GEOSEARCH g FROMMEMBER center BYRADIUS 30000 km";
    let around = format!("{search} ASC WITHDIST");
    let end = End::default();
    thread::scope(|scope| {
        let _bring = end.brought();
        scope.spawn(|| {
            let mut writer = server.client();
            for round in 0_u32.. {
                if end.is_there() {
                    break;
                }
                let at = f64::from(round % 17) * 10.0;
                let far = 170 * (1 - 2 * i64::from(round % 2));
                let command = format!("GEOADD g {at} 0 center {} 0 beside {far} 0 far", at + 0.001);
                writer.run("MULTI");
                writer.run("ZREM g center beside far");
                writer.run(&command);
                writer.run("EXEC");
                thread::sleep(Duration::from_millis(20 + u64::from(round % 60)));
            }
        });
        for _ in 0..3 {
            // Searches wait for others, while their center moves.
            scope.spawn(|| {
                let mut other = server.client();
                for _ in 0..6 {
                    let shown = in_order(&mut other, &around);
                    assert_eq!(shown[0], "[\"center\" \"0.0000\"]");
                }
            });
        }
        for round in 0..4 {
            let shown = in_order(&mut client, &around);
            assert_eq!(shown.len(), COUNT + 3, "{round}");
            assert_eq!(shown[0], "[\"center\" \"0.0000\"]", "{round}");
            assert!(shown[1].starts_with("[\"beside\" \"0.11"), "{}", shown[1]);
            let shown = in_order(&mut client, search);
            assert_eq!(shown.len(), COUNT + 3, "{round}");
            let store = "GEOSEARCHSTORE d g FROMMEMBER center BYRADIUS 30000 km STOREDIST";
            let count = format!(":{}", COUNT + 3);
            client.check(&[
                (store, &count),
                ("ZCARD d", &count),
                ("ZCOUNT d -inf +inf", &count),
                ("ZRANGE d 0 1", "[\"center\" \"beside\"]"),
                ("ZCOUNT d 0.1 0.12", ":1"),
                (
                    "GEOSEARCHSTORE d g FROMLONLAT 0 0 BYRADIUS 30000 km",
                    &count,
                ),
                ("ZCARD d", &count),
            ]);
        }
    });
}
