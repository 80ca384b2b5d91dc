//! On a full disk and beside damage: what has expired goes, and large collections are deleted.

use pando_resp::Answer;
use pando_server::Durability;
use pando_sync::thread;
use pando_sync::time::{Duration, now};
use pandodb::Builder;
use pandodb::device::faulty::FaultyDevice;

use crate::client::{Client, encode, show};
use crate::failures::{FRAMES, key, send, send_sets, serve, serve_with, value};

/// Asks again and again until `holds`, for a minute at most.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = now();
    while !holds() {
        assert!(
            now().duration_since(begun) < Duration::from_secs(60),
            "{what} does not come"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

fn size(client: &mut Client) -> usize {
    let size = client.run("DBSIZE");
    size.trim_start_matches(':').parse().unwrap()
}

/// Sets keys from `first` on, with these options, until none is taken any more; returns the number
/// of those that were taken.
pub(crate) fn fill(client: &mut Client, first: usize, options: &[&str]) -> usize {
    let (mut taken, mut refused) = (0, 0);
    for first in (first..first + 40_000).step_by(100) {
        let set = |number| {
            let (key, value) = (key(number), value(number));
            let command = [&["SET", &key, &value], options].concat();
            encode(&command)
        };
        let before = taken;
        for _ in 0..send(client, (first..first + 100).map(set)) {
            match client.answer() {
                Answer::Error(text) => assert!(text.starts_with("ERR"), "{text}"),
                answer => {
                    assert_eq!(show(&answer), "+OK");
                    taken += 1;
                }
            }
        }
        // A checkpoint makes room for some more; on a busy machine it takes its time.
        refused = if before == taken { refused + 1 } else { 0 };
        match refused {
            0 => {}
            10 => return taken,
            _ => thread::sleep(Duration::from_millis(50)),
        }
    }
    panic!("the disk is not full");
}

/// Puts a hash of some megabytes.
fn put_large(client: &mut Client, name: &str) {
    for first in (0..3000).step_by(50) {
        let mut command = vec!["HSET".to_owned(), name.to_owned()];
        for number in first..first + 50 {
            command.extend([format!("{name}:{number}"), value(number)]);
        }
        let command: Vec<&str> = command.iter().map(|part| &part[..]).collect();
        assert_eq!(show(&client.call(&command)), ":50");
    }
}

fn has_room(client: &mut Client, sets: usize) -> bool {
    send_sets(client, 100_000..100_000 + sets);
    let taken = (0..sets).filter(|_| show(&client.answer()) == "+OK");
    taken.count() == sets
}

#[test]
fn what_expired_leaves_a_full_disk_past_keys_whose_deadlines_were_moved() {
    const MOVED: usize = 300;
    let (server, device) = serve(Durability::None, None);
    let mut client = server.client();
    client.check(&[("DEBUG SET-ACTIVE-EXPIRE 0", "+OK")]);
    for number in 0..MOVED {
        let moved = || {
            client.run(&format!("SET moved:{number} v PX 1000"));
            client.run(&format!("PEXPIRE moved:{number} 36000000")) == ":1"
        };
        wait_until("a deadline in time", moved);
    }
    device.set_capacity(32 << 20);
    let filled = fill(&mut client, 0, &["PX", "1500"]);
    assert!(filled > 1000, "{filled}");
    client.check(&[("DEBUG SET-ACTIVE-EXPIRE 1", "+OK")]);
    wait_until("the end of what has expired", || size(&mut client) == MOVED);
    wait_until("room", || has_room(&mut client, 1000));
}

#[test]
fn large_collections_leave_a_full_disk() {
    let (server, device) = serve(Durability::None, None);
    let mut client = server.client();
    client.check(&[("DEBUG SET-ACTIVE-EXPIRE 0", "+OK")]);
    for name in ["deleted", "unlinked", "expired"] {
        put_large(&mut client, name);
    }
    client.check(&[("PEXPIRE expired 1", ":1")]);
    device.set_capacity(48 << 20);
    let filled = fill(&mut client, 0, &[]);
    assert!(filled > 1000, "{filled}");
    client.check(&[("DEL deleted", ":1"), ("UNLINK unlinked", ":1")]);
    client.check(&[("DEBUG SET-ACTIVE-EXPIRE 1", "+OK")]);
    wait_until("the end of what has expired", || {
        size(&mut client) == filled
    });
    // More than two of them had.
    wait_until("room", || has_room(&mut client, 5000));
}

/// Those of small collections as well as those of large ones.
#[test]
fn elements_are_removed_on_a_full_disk() {
    let (server, device) = serve(Durability::None, None);
    let mut client = server.client();
    client.check(&[
        ("RPUSH l a b c d e", ":5"),
        ("SADD s a b c", ":3"),
        ("ZADD z 1 a 2 b 3 c 4 d", ":4"),
        ("HSET h a 1 b 2 c 3", ":3"),
    ]);
    put_large(&mut client, "hash");
    for number in 0..1000 {
        let value = value(number);
        client.call(&["RPUSH", "list", &value]);
        client.call(&["SADD", "set", &value]);
        client.call(&["ZADD", "sorted", &number.to_string(), &value]);
    }
    device.set_capacity(48 << 20);
    let filled = fill(&mut client, 0, &[]);
    assert!(filled > 1000, "{filled}");
    client.check(&[
        ("LPOP l", "\"a\""),
        ("LTRIM l 0 1", "+OK"),
        ("SREM s a", ":1"),
        ("ZPOPMIN z", "[\"a\" \"1\"]"),
        ("ZREM z b", ":1"),
        ("HDEL h a", ":1"),
        ("LRANGE l 0 -1", "[\"b\" \"c\"]"),
        ("ZCARD z", ":2"),
    ]);
    for number in 0..900 {
        let value = value(number);
        assert_eq!(
            show(&client.call(&["LPOP", "list"])),
            format!("\"{value}\"")
        );
        assert_eq!(show(&client.call(&["SREM", "set", &value])), ":1");
        assert_eq!(show(&client.call(&["ZREM", "sorted", &value])), ":1");
        let field = format!("hash:{number}");
        assert_eq!(show(&client.call(&["HDEL", "hash", &field])), ":1");
    }
    client.check(&[
        ("LLEN list", ":100"),
        ("SCARD set", ":100"),
        ("ZCARD sorted", ":100"),
        ("HLEN hash", ":2100"),
    ]);
    wait_until("room", || has_room(&mut client, 500));
}

/// The block at the end of a list is written again for each element that goes, and nothing else
/// makes room.
#[test]
fn short_elements_of_lists_are_removed_on_a_full_disk() {
    let (server, device) = serve(Durability::None, None);
    let mut client = server.client();
    for list in 0..20 {
        let elements: String = (0..2000).map(|number| format!(" {number}")).collect();
        client.check(&[(&format!("RPUSH list{list}{elements}"), ":2000")]);
    }
    device.set_capacity(48 << 20);
    let filled = fill(&mut client, 0, &[]);
    assert!(filled > 1000, "{filled}");
    for number in 0..60 {
        for list in 0..20 {
            let popped = client.run(&format!("LPOP list{list}"));
            assert_eq!(popped, format!("\"{number}\""), "list {list}");
        }
    }
}

/// All databases at once, at page sizes of which the reserve has fewer and fewer.
#[test]
fn everything_goes_at_once_on_a_full_disk() {
    for page_size in [4 << 10, 16 << 10] {
        let options = move |builder: Builder| builder.page_size(page_size);
        let (server, device) = serve_with(Durability::None, options);
        let mut client = server.client();
        // A table for what is weighted is made when it is needed.
        for database in 0..16 {
            client.check(&[(&format!("SELECT {database}"), "+OK")]);
            let numbers = (0..1000).map(|number| number.to_string());
            crate::trees::many(&mut client, &["RPUSH", "list"], numbers);
        }
        client.check(&[("SELECT 0", "+OK"), ("SAVE", "+OK")]);
        device.set_capacity(48 << 20);
        for round in 0..2 {
            fill(&mut client, round * 40_000, &[]);
            assert_eq!(client.run("FLUSHALL"), "+OK", "pages of {page_size}");
            assert_eq!(size(&mut client), 0);
        }
    }
}

/// What a stretch of a pipeline keeps of a list is written as its own commands would, and not as
/// the one with which the pipeline begins.
#[test]
fn a_stretch_behind_a_removal_takes_no_room_of_a_full_disk() {
    let (server, device) = serve(Durability::None, None);
    let mut client = server.client();
    crate::trees::many(&mut client, &["RPUSH", "other"], (0..50).map(key));
    let numbers = (0..3000).map(|number| number.to_string());
    crate::trees::many(&mut client, &["RPUSH", "list"], numbers);
    device.set_capacity(48 << 20);
    let refused = |reply: &str| reply.starts_with("-ERR no room for writes");
    // A checkpoint may make room at any time.
    for number in 0..50 {
        fill(&mut client, number * 40_000, &[]);
        let before = client.run("RPUSH list more");
        let commands = [&["LPOP", "other"][..], &["RPUSH", "list", "more"]].map(encode);
        client.send(&commands.concat());
        assert_eq!(show(&client.answer()), format!("\"{}\"", key(number)));
        let behind_removal = show(&client.answer());
        let after = client.run("RPUSH list more");
        if refused(&before) && refused(&after) {
            assert!(refused(&behind_removal), "{behind_removal}");
            return;
        }
    }
    panic!("the disk was never full");
}

/// Turns a bit in each page that has the text.
fn damage(device: &FaultyDevice, text: &[u8]) -> usize {
    let data = device.snapshot_file("data");
    let places = data.windows(text.len()).enumerate();
    let places: Vec<usize> = places
        .filter(|(_, bytes)| *bytes == text)
        .map(|(at, _)| at)
        .collect();
    for at in &places {
        device.flip_bit("data", *at as u64, 1);
    }
    places.len()
}

#[test]
fn what_expired_beside_a_damaged_page_is_removed() {
    let (server, device) = serve(Durability::None, Some(FRAMES));
    let mut client = server.client();
    client.check(&[
        ("DEBUG SET-ACTIVE-EXPIRE 0", "+OK"),
        ("SET victim 1.here.is.the.damage PX 1", "+OK"),
    ]);
    let set = |number: usize| encode(&["SET", &key(number), &value(number), "PX", "1"]);
    for first in (0..3000).step_by(100) {
        send(&mut client, (first..first + 100).map(set));
        (0..100).for_each(|_| assert_eq!(show(&client.answer()), "+OK"));
    }
    client.check(&[("SAVE", "+OK"), ("SELECT 1", "+OK")]);
    // Other pages take its frame.
    for first in (0..3000).step_by(100) {
        send_sets(&mut client, first..first + 100);
        (0..100).for_each(|_| assert_eq!(show(&client.answer()), "+OK"));
    }
    client.check(&[("SAVE", "+OK"), ("SELECT 0", "+OK")]);
    assert!(damage(&device, b"1.here.is.the.damage") > 0);
    assert!(client.run("GET victim").starts_with('-'));
    assert_eq!(size(&mut client), 3001);
    client.check(&[("DEBUG SET-ACTIVE-EXPIRE 1", "+OK")]);
    wait_until("the end of the others", || size(&mut client) < 50);
    assert!(client.run("GET victim").starts_with('-'));
}
