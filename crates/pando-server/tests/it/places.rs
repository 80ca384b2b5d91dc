//! Commands of places on the earth.

use std::fmt::Write as _;

use pando_resp::Answer;

use crate::client::{Client, show};
use crate::fixture::{Fixture, open_small, options};
use crate::statistics::fields;

const SICILY: &str = "GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania";

#[test]
fn places_are_added_and_looked_up() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        (SICILY, ":2"),
        ("GEOADD g NX CH 1 1 Palermo", ":0"),
        ("GEOADD g XX 1 1 Rome", ":0"),
        ("ZSCORE g Palermo", "\"3479099956230698\""),
        ("GEODIST g Palermo Catania", "\"166274.1516\""),
        ("GEODIST g Palermo Catania KM", "\"166.2742\""),
        ("GEODIST g Palermo Catania mi", "\"103.3182\""),
        ("GEODIST g Palermo Palermo", "\"0.0000\""),
        ("GEODIST g Palermo Rome", "nil"),
        (
            "GEODIST g Palermo Catania x",
            "-ERR unsupported unit provided. please use M, KM, FT, MI",
        ),
        ("GEODIST g Palermo Catania m x", "-ERR syntax error"),
        ("GEOHASH g Palermo Rome", "[\"sqc8b49rny0\" nil]"),
        (
            "GEOPOS g Palermo Rome",
            "[[\"13.36138933897018433\" \"38.11555639549629859\"] nil]",
        ),
        ("GEOPOS none a", "[nil]"),
        ("GEOHASH g", "[]"),
        (
            "GEOADD g 200 100 x",
            "-ERR invalid longitude,latitude pair 200.000000,100.000000",
        ),
        ("GEOADD g x 1 a", "-ERR value is not a valid float"),
        ("GEOADD g NX XX 1 1 a", "-ERR syntax error"),
        ("GEOADD g 1 1 a 1 1", "-ERR syntax error"),
        ("SET s v", "+OK"),
        (
            "GEOPOS s a",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
    ]);
}

#[test]
fn places_are_searched() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        (SICILY, ":2"),
        (
            "GEOADD g 12.758489 38.788135 edge1 17.24151 38.788135 edge2",
            ":2",
        ),
        (
            "GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km ASC",
            "[\"Catania\" \"Palermo\"]",
        ),
        (
            "GEOSEARCH g FROMLONLAT 15 37 BYBOX 400 400 km ASC WITHDIST",
            "[[\"Catania\" \"56.4413\"] [\"Palermo\" \"190.4424\"] [\"edge2\" \"279.7403\"] \
             [\"edge1\" \"279.7405\"]]",
        ),
        (
            "GEOSEARCH g FROMMEMBER Palermo BYRADIUS 200 km DESC COUNT 1 WITHHASH",
            "[[\"Catania\" :3479447370796909]]",
        ),
        ("GEOSEARCH none FROMMEMBER x BYRADIUS 1 m", "[]"),
        (
            "GEOSEARCH g FROMMEMBER x BYRADIUS 1 m",
            "-ERR could not decode requested zset member",
        ),
        (
            "GEOSEARCH g BYRADIUS 1 m ASC WITHDIST",
            "-ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for GEOSEARCH",
        ),
        (
            "GEOSEARCH g FROMLONLAT 1 1 ASC WITHDIST",
            "-ERR exactly one of BYRADIUS and BYBOX can be specified for GEOSEARCH",
        ),
        (
            "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 1 m ANY",
            "-ERR the ANY argument requires COUNT argument",
        ),
        (
            "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS -1 m",
            "-ERR radius cannot be negative",
        ),
        (
            "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 1 m COUNT 0",
            "-ERR COUNT must be > 0",
        ),
        ("SET dst v EX 100", "+OK"),
        (
            "GEOSEARCHSTORE dst g FROMLONLAT 15 37 BYRADIUS 200 km STOREDIST",
            ":2",
        ),
        ("TTL dst", ":-1"),
        ("ZRANGE dst 0 -1", "[\"Catania\" \"Palermo\"]"),
        (
            "GEOSEARCHSTORE dst g FROMLONLAT 15 37 BYRADIUS 200 km WITHDIST",
            "-ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
        ),
        ("GEORADIUS g 15 37 200 km ASC", "[\"Catania\" \"Palermo\"]"),
        ("GEORADIUS g 15 37 200 km STORE dst", ":2"),
        ("GEODIST dst Palermo Catania", "\"166274.1516\""),
        ("GEORADIUS_RO g 15 37 200 km STORE dst", "-ERR syntax error"),
        ("GEORADIUSBYMEMBER_RO g Palermo 1 m", "[\"Palermo\"]"),
        ("GEORADIUSBYMEMBER none Palermo 1 m STORE dst", ":0"),
        ("EXISTS dst", ":0"),
    ]);
}

#[test]
fn of_several_members_the_last_one_is_the_center() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        (SICILY, ":2"),
        (
            "GEOSEARCH g FROMMEMBER Catania FROMMEMBER Palermo BYRADIUS 1 m",
            "[\"Palermo\"]",
        ),
        (
            "GEOSEARCH g FROMMEMBER x FROMMEMBER Palermo BYRADIUS 1 m WHAT",
            "-ERR could not decode requested zset member",
        ),
        (
            "GEOSEARCH g FROMMEMBER Palermo FROMLONLAT 15 37 BYRADIUS 1 m",
            "-ERR syntax error",
        ),
        (
            "GEOSEARCH g FROMLONLAT 15 37 FROMMEMBER Palermo BYRADIUS 1 m",
            "-ERR syntax error",
        ),
    ]);
}

/// Radius of the earth in meters, as Redis has it.
const EARTH: f64 = 6_372_797.560_856;

/// Returns the distance in meters.
fn distance(a: (f64, f64), b: (f64, f64)) -> f64 {
    let half_chord = |from: f64, to: f64| ((to - from).to_radians() / 2.0).sin().powi(2);
    let across = half_chord(a.0, b.0) * a.1.to_radians().cos() * b.1.to_radians().cos();
    2.0 * EARTH * (half_chord(a.1, b.1) + across).sqrt().asin()
}

/// Returns the places of all members of `g`.
fn places_of(client: &mut Client, count: usize) -> Vec<(f64, f64)> {
    let names: Vec<String> = (0..count).map(|number| format!("m{number}")).collect();
    let number = |answer: &Answer| -> f64 { show(answer).trim_matches('"').parse().unwrap() };
    let mut places = Vec::new();
    for names in names.chunks(1000) {
        let Answer::Array(found) = client.run_raw(&format!("GEOPOS g {}", names.join(" "))) else {
            panic!("no places");
        };
        places.extend(found.iter().map(|place| match place {
            Answer::Array(parts) => (number(&parts[0]), number(&parts[1])),
            other => panic!("{other:?}"),
        }));
    }
    places
}

/// Returns the names that a search finds, in order.
fn found(client: &mut Client, command: &str) -> Vec<String> {
    let Answer::Array(found) = client.run_raw(command) else {
        panic!("{command}: no array");
    };
    let mut names: Vec<String> = found.iter().map(show).collect();
    names.sort();
    names
}

/// Returns the number of pages that were read from the device.
pub(crate) fn pages_read(client: &mut Client) -> u64 {
    let text = &fields(client, "pando")["page_reads_total"];
    text.parse().expect("a number")
}

/// A twentieth of it is in memory; a search that read all of it would read a thousand pages.
#[test]
fn a_search_of_a_large_set_reads_what_is_near() {
    const COUNT: usize = 40_000;
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    let mut random = fastrand::Rng::with_seed(7);
    let mut number = 0;
    for _ in 0..COUNT / 200 {
        let mut command = String::from("GEOADD g");
        for _ in 0..200 {
            // A third of them in one country, and some at the ends of the earth.
            let (longitude, latitude) = match random.u8(..9) {
                0..3 => (random.f64() * 8.0 + 6.0, random.f64() * 8.0 + 47.0),
                3 => (180.0 - random.f64() * 0.01, random.f64() * 170.0 - 85.0),
                4 => (random.f64() * 0.01 - 180.0, random.f64() * 170.0 - 85.0),
                5 => (random.f64() * 360.0 - 180.0, 85.05 - random.f64()),
                _ => (random.f64() * 360.0 - 180.0, random.f64() * 170.0 - 85.0),
            };
            write!(command, " {longitude} {latitude} m{number}").unwrap();
            number += 1;
        }
        assert_eq!(client.run(&command), ":200");
    }
    let places = places_of(&mut client, COUNT);
    for _ in 0..300 {
        let at = random.usize(..COUNT);
        let center = places[at];
        let radius = 10.0_f64.powf(random.f64() * 4.0 + 2.0).round();
        let expected = |is_inside: &dyn Fn((f64, f64)) -> bool| {
            let inside = (0..COUNT).filter(|of| is_inside(places[*of]));
            let mut names: Vec<String> = inside.map(|of| format!("\"m{of}\"")).collect();
            names.sort();
            names
        };
        let command = format!("GEOSEARCH g FROMMEMBER m{at} BYRADIUS {radius} m");
        let circle = expected(&|place| distance(center, place) <= radius);
        assert_eq!(found(&mut client, &command), circle, "{command}");
        let command = format!("GEOSEARCH g FROMMEMBER m{at} BYBOX {radius} {radius} m");
        let rectangle = expected(&|place| {
            let is_near = (place.1 - center.1).to_radians().abs() * EARTH <= radius / 2.0;
            is_near && distance((center.0, place.1), place) <= radius / 2.0
        });
        assert_eq!(found(&mut client, &command), rectangle, "{command}");
        let nearest = format!("GEORADIUSBYMEMBER g m{at} {radius} m COUNT 3 ASC");
        let count = found(&mut client, &nearest).len();
        assert_eq!(count, circle.len().min(3), "{nearest}");
    }
    let before = pages_read(&mut client);
    for at in 0..20 {
        // In the country that has most of them, some ten.
        let longitude = 6.5 + f64::from(at) / 3.0;
        let command = format!("GEOSEARCH g FROMLONLAT {longitude} 51 BYRADIUS 10 km");
        assert!(found(&mut client, &command).len() < 100);
    }
    let pages = pages_read(&mut client) - before;
    assert!(pages < 20 * 100, "{pages} pages for 20 searches");
}

/// Memory is taken for what is found: all of it is more than a reply may be.
#[test]
fn a_search_keeps_what_it_finds_alone() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    let mut random = fastrand::Rng::with_seed(7);
    let name = "n".repeat(900);
    for number in 0..100 {
        let mut command = String::from("GEOADD g");
        for of in 0..200 {
            let (longitude, latitude) = (random.f64() * 360.0, random.f64() * 170.0);
            let place = format!("{} {}", longitude - 180.0, latitude - 85.0);
            write!(command, " {place} {name}{number}.{of}").unwrap();
        }
        assert_eq!(client.run(&command), ":200");
    }
    let all = "GEOSEARCH g FROMLONLAT 0 0 BYRADIUS 30000 km";
    client.check(&[("MULTI", "+OK"), (all, "+QUEUED")]);
    let refused = client.run("EXEC");
    assert!(
        refused.starts_with("[-ERR the command reads a collection"),
        "{refused:.80}"
    );
    assert_eq!(found(&mut client, &format!("{all} COUNT 2 ANY")).len(), 2);
    let few = "GEOSEARCH g FROMLONLAT 0 0 BYBOX 40000 20 km";
    let on_equator = found(&mut client, few).len();
    assert!((10..300).contains(&on_equator), "{on_equator}");
    client.run("MULTI");
    for _ in 0..5 {
        client.run(few);
    }
    let Answer::Array(replies) = client.run_raw("EXEC") else {
        panic!("no array");
    };
    for reply in replies {
        assert!(matches!(&reply, Answer::Array(found) if found.len() == on_equator));
    }
}

/// Adds places with long names, every fifth of them where another one is. Returns these in the
/// order of their geohashes.
pub(crate) fn fill_long_named(client: &mut Client, count: usize) -> Vec<(String, (f64, f64))> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut last = (0.0, 0.0);
    for start in (0..count).step_by(200) {
        let mut command = String::from("GEOADD g");
        for number in start..start + 200 {
            if number % 5 != 1 {
                last = (random.f64() * 360.0 - 180.0, random.f64() * 170.0 - 85.0);
            }
            write!(command, " {} {} {}", last.0, last.1, long_name(number)).unwrap();
        }
        assert_eq!(client.run(&command), ":200");
    }
    let Answer::Array(names) = client.run_raw("ZRANGE g 0 -1") else {
        panic!("no array");
    };
    let names: Vec<String> = names
        .iter()
        .map(|name| show(name).trim_matches('"').to_owned())
        .collect();
    let number = |answer: &Answer| -> f64 { show(answer).trim_matches('"').parse().unwrap() };
    let mut all = Vec::new();
    for names in names.chunks(200) {
        let Answer::Array(found) = client.run_raw(&format!("GEOPOS g {}", names.join(" "))) else {
            panic!("no places");
        };
        for (name, place) in names.iter().zip(&found) {
            let Answer::Array(of) = place else {
                panic!("no place");
            };
            all.push((format!("\"{name}\""), (number(&of[0]), number(&of[1]))));
        }
    }
    all
}

fn long_name(number: usize) -> String {
    format!("{}{:06}", "n".repeat(970), number * 7919 % 1_000_003)
}

/// Returns the names of these places by their distances from a place, as a stable sort has them.
pub(crate) fn by_distance(
    all: &[(String, (f64, f64))],
    from: (f64, f64),
    is_descending: bool,
) -> Vec<String> {
    let mut all: Vec<(f64, &String)> = all
        .iter()
        .map(|(name, place)| (distance(from, *place), name))
        .collect();
    match is_descending {
        false => all.sort_by(|a, b| a.0.total_cmp(&b.0)),
        true => all.sort_by(|a, b| b.0.total_cmp(&a.0)),
    }
    all.into_iter().map(|(_, name)| name.clone()).collect()
}

/// Returns the names that a search shows, as it shows them.
pub(crate) fn in_order(client: &mut Client, command: &str) -> Vec<String> {
    let Answer::Array(found) = client.run_raw(command) else {
        panic!("{command:.100}: no array");
    };
    found.iter().map(show).collect()
}

/// Of all that is found, which is more than a reply may be, those that are shown are kept.
#[test]
fn the_nearest_ones_take_memory_for_themselves() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    let all = fill_long_named(&mut client, 16_200);
    for from in [(100.5, 60.25)] {
        let search = format!("g FROMLONLAT {} {} BYRADIUS 30000 km", from.0, from.1);
        for (order, is_descending) in [("", false), ("ASC", false), ("DESC", true)] {
            let expected = by_distance(&all, from, is_descending);
            for count in [1, 30] {
                let command = format!("GEOSEARCH {search} {order} COUNT {count}");
                let shown = in_order(&mut client, &command);
                assert!(shown == expected[..count], "{command}");
            }
            let command = format!("GEOSEARCHSTORE d {search} {order} COUNT 300");
            assert_eq!(client.run(&command), ":300");
            let mut stored = in_order(&mut client, "ZRANGE d 0 -1");
            let mut expected = expected[..300].to_vec();
            stored.sort();
            expected.sort();
            assert!(stored == expected, "{command}");
        }
    }
    client.run("MULTI");
    client.run("GEORADIUS g 100.5 60.25 30000 km COUNT 3");
    let Answer::Array(replies) = client.run_raw("EXEC") else {
        panic!("no array");
    };
    let Answer::Array(shown) = &replies[0] else {
        panic!("{:.100}", show(&replies[0]));
    };
    let shown: Vec<String> = shown.iter().map(show).collect();
    assert!(shown == by_distance(&all, (100.5, 60.25), false)[..3]);
}

/// Scores of another use are not found, as in Redis, whatever the form of the set.
#[test]
fn what_is_no_geohash_is_not_found() {
    let server = Fixture::new();
    let mut client = server.client();
    for packed in ["1800", "20"] {
        client.run(&format!("CONFIG SET packed-bytes-max {packed}"));
        client.check(&[("FLUSHALL", "+OK"), (SICILY, ":2")]);
        client.run("ZADD g -5 neg -0.3 little 1e300 huge inf most -inf least 1e17 other");
        for command in [
            "GEOSEARCH g FROMLONLAT -180 -85 BYRADIUS 100 km",
            "GEOSEARCH g FROMLONLAT 180 85 BYBOX 100 100 km",
        ] {
            assert!(found(&mut client, command).is_empty(), "{packed} {command}");
        }
        let all = "GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 30000 km";
        assert_eq!(found(&mut client, all).len(), 2, "{packed}");
    }
}

/// A search looks at its key several times, and tells of it once.
#[test]
fn a_search_counts_as_one_look() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[(SICILY, ":2")]);
    let counts = |client: &mut Client| {
        let stats = fields(client, "stats");
        ["keyspace_hits", "keyspace_misses"].map(|name| stats[name].parse::<u64>().unwrap())
    };
    for from in ["FROMMEMBER Palermo", "FROMLONLAT 15 37"] {
        let before = counts(&mut client);
        client.run(&format!("GEOSEARCH g {from} BYRADIUS 9 km"));
        client.run(&format!("GEOSEARCH none {from} BYRADIUS 9 km"));
        assert_eq!(counts(&mut client), before.map(|count| count + 1), "{from}");
    }
}
