//! Insertions between the elements of large lists: positions stay short (decision 118).

use std::path::Path;

use fastrand::Rng;
use pando_resp::Answer;
use pando_server::check_rows;
use pandodb::{Db, TableOptions};

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, open_on_disk, open_small, options};
use crate::list_blocks::{List, MEMBERS, Step, client_of, long, number, on_disk, run, step};

/// Bytes of the longest position, if rows around got new ones in time.
const POSITION_BYTES: usize = 48;
/// Bytes of the keys of elements before the position.
const START_BYTES: usize = 9;

/// Checks the rows of a store, and returns the bytes of the longest position of a list.
fn longest_position(db: &Db) -> usize {
    let report = check_rows(db).unwrap();
    assert_eq!(report.descriptions, [""; 0]);
    let members = db.existing_table(MEMBERS).unwrap();
    let keys = members.iter().map(|row| row.unwrap().0);
    let of_lists = keys.filter(|key| key[START_BYTES - 1] == b'L');
    of_lists.map(|key| key.len() - START_BYTES).max().unwrap()
}

/// Sends commands, all together, and checks what they reply.
fn send(client: &mut Client, commands: impl Iterator<Item = (Vec<u8>, String)>) {
    let commands: Vec<_> = commands.collect();
    for commands in commands.chunks(200) {
        let bytes: Vec<u8> = commands
            .iter()
            .flat_map(|(bytes, _)| bytes.clone())
            .collect();
        client.send(&bytes);
        for (_, wanted) in commands {
            assert_eq!(&show(&client.answer()), wanted);
        }
    }
}

/// Where long elements are inserted, one for each row.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Behind the same element.
    Behind,
    /// Between the last two of them, in turns on the left and on the right.
    Turns,
    /// Each behind the one before.
    Along,
}

/// Inserts elements into a list of `length`, in which `pivot` is. Takes one from the end for each.
fn insert(client: &mut Client, count: usize, length: usize, (pivot, place): (&str, Place)) {
    let mut last = pivot.to_owned();
    let commands = (0..count).flat_map(|at| {
        let new = format!("{pivot}-{}", long(at));
        let (side, of) = match (place, at % 2) {
            (Place::Behind, _) => ("AFTER", pivot),
            (Place::Turns, 0) | (Place::Along, _) => ("AFTER", &last[..]),
            (Place::Turns, _) => ("BEFORE", &last[..]),
        };
        let insertion = encode(&["LINSERT", "l", side, of, &new]);
        last = new;
        let trim = encode(&["LTRIM", "l", "0", &(length - 1).to_string()]);
        [
            (insertion, format!(":{}", length + 1)),
            (trim, "+OK".to_owned()),
        ]
    });
    send(client, commands);
}

/// Fills a list so that it has more bytes than one that could be written anew at once.
fn fill(client: &mut Client) -> usize {
    crate::trees::many(client, &["RPUSH", "l", "first"], (0..1200).map(long));
    1201
}

/// Returns a store on disk whose lists have a row for each element.
fn open_single(directory: &Path) -> pandodb::Result<Db> {
    let db = open_on_disk(directory)?;
    db.table_with(MEMBERS, TableOptions::new().counted(true))?;
    Ok(db)
}

/// Inserts at one place again and again, in blocks and in rows of single elements.
fn insert_again_and_again(place: Place, count: usize) {
    for open in [open_single, open_on_disk] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let server = Fixture::opened_by(options(), move |_| open(&path));
        let mut client = client_of(&server);
        let length = fill(&mut client);
        insert(&mut client, count, length, ("first", place));
        drop(client);
        drop(server);
        let longest = longest_position(&open_on_disk(directory.path()).unwrap());
        assert!(longest <= POSITION_BYTES, "{longest} bytes");
    }
}

#[test]
fn insertions_behind_one_element_go_on() {
    insert_again_and_again(Place::Behind, 7000);
}

#[test]
fn insertions_in_turns_go_on() {
    insert_again_and_again(Place::Turns, 2200);
}

#[test]
fn insertions_along_a_list_go_on() {
    insert_again_and_again(Place::Along, 1100);
}

/// Elements of this length lie in pages of their own.
#[test]
fn insertions_of_elements_that_lie_elsewhere_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let server = on_disk(directory.path());
    let mut client = client_of(&server);
    let filler = |at: usize| format!("{at}{}", "x".repeat(6000));
    crate::trees::many(&mut client, &["RPUSH", "l", "first"], (0..50).map(filler));
    for at in 0..1000 {
        let insertion = format!("LINSERT l AFTER first {}", filler(at));
        client.check(&[(&insertion, ":52"), ("LTRIM l 0 -2", "+OK")]);
    }
    let last = format!("\"{}\"", filler(950));
    client.check(&[("LINDEX l 50", &last)]);
    drop(client);
    drop(server);
    let longest = longest_position(&open_on_disk(directory.path()).unwrap());
    assert!(longest <= POSITION_BYTES, "{longest} bytes");
}

/// A block in the middle of what was not loaded is cut by LSET, too.
#[test]
fn elements_that_grow_get_room() {
    let directory = tempfile::tempdir().unwrap();
    let server = on_disk(directory.path());
    let mut client = client_of(&server);
    let length = fill(&mut client);
    insert(&mut client, 319, length, ("first", Place::Turns));
    // Those in the middle have positions of nearly as many bytes as any may have.
    crate::trees::many(
        &mut client,
        &["LPUSH", "l"],
        (0..2000).map(|at| at.to_string()),
    );
    let middle = 2000 + 160;
    for place in middle - 8..middle + 8 {
        let place = place.to_string();
        client.call(&["LSET", "l", &place, "short"]);
    }
    let all = client.run_raw("LRANGE l 0 -1");
    let Answer::Array(mut all) = all else {
        panic!("no list");
    };
    let many = (0..100).map(|at| format!("{at}"));
    for new in many {
        let of = format!("LINSERT l BEFORE short {new}");
        client.check(&[(&of, &format!(":{}", all.len() + 1))]);
        let at = all.iter().position(|of| show(of) == "\"short\"").unwrap();
        all.insert(at, Answer::Bulk(new.into_bytes()));
    }
    let grown = all.iter_mut().enumerate().take(middle + 100);
    for (place, of) in grown.skip(middle - 8) {
        let new = format!("{place}{}", "y".repeat(240));
        client.call(&["LSET", "l", &place.to_string(), &new]);
        *of = Answer::Bulk(new.into_bytes());
    }
    let shown = client.run_raw("LRANGE l 0 -1");
    assert_eq!(show(&shown), show(&Answer::Array(all)));
    drop(client);
    drop(server);
    let longest = longest_position(&open_on_disk(directory.path()).unwrap());
    assert!(longest <= POSITION_BYTES, "{longest} bytes");
}

/// A place of insertions, which may move.
struct Cursor {
    at: usize,
    /// 0: behind the same element; 1: around the last one; 2: before it.
    way: u32,
}

/// Returns commands that insert at few places, and some that take elements away.
fn steps(random: &mut Rng, list: &mut List, cursors: &mut [Cursor], next: &mut usize) -> Vec<Step> {
    let count = random.usize(1..40);
    let chosen = random.usize(..cursors.len());
    let mut steps = Vec::new();
    for _ in 0..count {
        if list.len() > 500 {
            let popped = list.pop_back().unwrap();
            steps.push(step(&["RPOP", "l"], &[], Answer::Bulk(popped)));
        }
        let cursor = &mut cursors[chosen];
        if random.u32(..1500) == 0 || cursor.at >= list.len() {
            *cursor = Cursor {
                at: random.usize(..list.len()),
                way: random.u32(..3),
            };
        }
        *next += 1;
        let bytes = [8, 200, 260, 300][random.usize(..4)];
        let new = format!("{next:08}{}", "z".repeat(bytes)).into_bytes();
        let is_behind = match cursor.way {
            0 => true,
            1 => random.bool(),
            _ => false,
        };
        let pivot = list[cursor.at].clone();
        let at = cursor.at + usize::from(is_behind);
        list.insert(at, new.clone());
        if cursor.way > 0 {
            cursor.at = at;
        }
        let side = if is_behind { "AFTER" } else { "BEFORE" };
        let reply = number(list.len());
        steps.push(step(&["LINSERT", "l", side], &[pivot, new], reply));
        // The others follow what they were at.
        for (number, other) in cursors.iter_mut().enumerate() {
            other.at += usize::from(number != chosen && other.at >= at);
        }
    }
    steps
}

/// Inserts at few places in all ways that commands are run, and opens the store anew.
fn insert_for(rounds: usize, seed: u64, is_cold: bool) {
    let directory = tempfile::tempdir().unwrap();
    let (mut random, mut list, mut next) = (Rng::with_seed(seed), List::new(), 0);
    let mut cursors = [3, 200].map(|at| Cursor { at, way: 1 });
    for part in 0..3 {
        let path = directory.path().to_owned();
        let server = match is_cold {
            true => Fixture::opened_by(options(), move |_| open_small(&path)),
            false => on_disk(&path),
        };
        let mut client = client_of(&server);
        if part == 0 {
            let elements = (0..400).map(long);
            list.extend(elements.clone().map(String::into_bytes));
            crate::trees::many(&mut client, &["RPUSH", "l"], elements);
        }
        for _ in 0..rounds {
            // It does not grow beyond what scripts and transactions may read of it.
            let steps = steps(&mut random, &mut list, &mut cursors, &mut next);
            run(&mut client, &mut random, &steps);
        }
        let all = list.iter().map(|of| Answer::Bulk(of.clone())).collect();
        let shown = client.run_raw("LRANGE l 0 -1");
        assert!(shown == Answer::Array(all), "seed {seed}");
        drop(client);
        drop(server);
        let longest = longest_position(&open_on_disk(directory.path()).unwrap());
        assert!(longest <= POSITION_BYTES, "seed {seed}: {longest} bytes");
    }
}

#[test]
fn insertions_at_few_places_are_those_of_a_list_in_memory() {
    for seed in 0..2 {
        insert_for(120, seed, false);
    }
}

#[test]
fn insertions_at_few_places_go_on_with_few_frames() {
    insert_for(40, 7, true);
}
