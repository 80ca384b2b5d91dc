//! Lists in blocks, and rows and heads of them that no server writes: every command has a reply,
//! and no thread of the server panics. A list that nobody has changed is what a list in memory is;
//! one whose rows are found sound stays so, and none of its elements is missing.

#![no_main]

use std::collections::VecDeque;

use libfuzzer_sys::fuzz_target;
use pando_resp::Answer;
use pando_server::check_rows;
use pandodb::Db;

mod server;

type List = VecDeque<Vec<u8>>;

/// Returns an element: many are short, some alike, and some have rows of their own.
fn element(length: u8, byte: u8) -> Vec<u8> {
    let length = usize::from(length);
    vec![byte; if length < 200 { length % 24 } else { (length - 190) * 5 }]
}

/// Changes the row of a block of the list. Returns false if there is none.
fn forge_block(db: &Db, [which, at, how, byte, _]: [u8; 5]) -> bool {
    let Some(members) = db.existing_table("db/0/members") else {
        return false;
    };
    let rows = members.iter().map(|row| row.expect("a read succeeds"));
    let rows: Vec<_> = rows.filter(|(key, _)| key.get(8) == Some(&b'L')).collect();
    if rows.is_empty() {
        return false;
    }
    let (key, mut row) = rows[usize::from(which) % rows.len()].clone();
    let at = usize::from(at) % (row.len() + 1);
    match how % 8 {
        0 => row.truncate(at),
        1 => row.insert(at, byte),
        2 => row.extend(vec![byte; usize::from(how) * 8]),
        3 if row.len() > at => drop(row.remove(at)),
        4 => row.rotate_left(at),
        5 => row[0] = row[0].wrapping_add(byte),
        6 => row.clone_from(&rows[usize::from(byte) % rows.len()].1),
        _ if row.len() > at => row[at] = byte,
        _ => row.push(byte),
    }
    members.put(&key, &row).expect("the row fits");
    true
}

/// Changes the head of the list. Returns false if there is none.
fn forge_head(db: &Db, [at, how, byte, ..]: [u8; 5]) -> bool {
    let Some(keys) = db.existing_table("db/0/keys") else {
        return false;
    };
    let Some(mut row) = keys.get(b"\0l").expect("a read succeeds") else {
        return false;
    };
    if row.is_empty() {
        return false;
    }
    let at = row.len() - 1 - usize::from(at) % row.len().min(42);
    match how % 4 {
        0 => row[at] = byte,
        1 => row[at] ^= 1 << (byte % 8),
        2 => row[at] = row[at].wrapping_add(byte),
        _ => row.truncate(at),
    }
    keys.put(b"\0l", &row).expect("the row fits");
    true
}

/// Runs a command, with the list in memory beside it. Returns the reply.
fn run([what, one, two, three, _]: [u8; 5], list: &mut List) -> Answer {
    let text = |number: i64| number.to_string().into_bytes();
    let new = element(two, three);
    let at = usize::from(one) * 4 % (list.len() + 1);
    let place = text(i64::try_from(at).expect("a short list"));
    let many = usize::from(one) % 12;
    match what {
        0 => {
            (0..=many).for_each(|_| list.push_front(new.clone()));
            let new = vec![&new[..]; many + 1];
            server::call(&[&[&b"LPUSH"[..], b"l"], &new[..]].concat())
        }
        1 => {
            (0..=many).for_each(|_| list.push_back(new.clone()));
            let new = vec![&new[..]; many + 1];
            server::call(&[&[&b"RPUSH"[..], b"l"], &new[..]].concat())
        }
        2 => {
            list.drain(..many.min(list.len()));
            server::call(&[b"LPOP", b"l", many.to_string().as_bytes()])
        }
        3 => {
            list.truncate(list.len() - many.min(list.len()));
            server::call(&[b"RPOP", b"l", many.to_string().as_bytes()])
        }
        4 => {
            if let Some(old) = list.get_mut(at) {
                old.clone_from(&new);
            }
            server::call(&[b"LSET", b"l", &place, &new])
        }
        5 => {
            let pivot = list.get(at).cloned().unwrap_or_default();
            if let Some(at) = list.iter().position(|old| *old == pivot) {
                list.insert(at, new.clone());
            }
            server::call(&[b"LINSERT", b"l", b"BEFORE", &pivot, &new])
        }
        6 => {
            let gone = list.get(at).cloned().unwrap_or_default();
            if let Some(at) = list.iter().position(|old| *old == gone) {
                list.remove(at);
            }
            server::call(&[b"LREM", b"l", b"1", &gone])
        }
        7 => {
            let end = list.len().saturating_sub(usize::from(two) % 64);
            list.truncate(end);
            list.drain(..at.min(end));
            let end = text(i64::try_from(end).expect("a short list") - 1);
            match end[..] == b"-1"[..] {
                true => server::call(&[b"DEL", b"l"]),
                false => server::call(&[b"LTRIM", b"l", &place, &end]),
            }
        }
        8 => {
            if let Some(moved) = list.pop_front() {
                list.push_back(moved);
            }
            server::call(&[b"LMOVE", b"l", b"l", b"LEFT", b"RIGHT"])
        }
        9 => server::call(&[b"LPOS", b"l", &new, b"RANK", b"-1"]),
        10 => server::call(&[b"COPY", b"l", b"copy", b"REPLACE"]),
        11 => server::call(&[b"LRANGE", b"l", &place, text(at as i64 + 20).as_slice()]),
        _ => server::call(&[b"LINDEX", b"l", &place]),
    }
}

/// Starts with an empty server.
fn begin() {
    for (name, value) in [
        (&b"list-max-listpack-size"[..], &b"4"[..]),
        (b"packed-bytes-max", b"20"),
    ] {
        server::call(&[b"CONFIG", b"SET", name, value]);
    }
    server::call(&[b"FLUSHALL"]);
}

fn is_sound(db: &Db) -> bool {
    check_rows(db).expect("a read succeeds").problems == 0
}

/// Returns all elements.
fn all() -> List {
    match server::call(&[b"LRANGE", b"l", b"0", b"-1"]) {
        Answer::Array(elements) => elements
            .into_iter()
            .map(|element| match element {
                Answer::Bulk(element) => element,
                other => panic!("an element: {}", server::shown(&other)),
            })
            .collect(),
        other => panic!("a list: {}", server::shown(&other)),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((count, bytes)) = bytes.split_first() else {
        return;
    };
    begin();
    let db = server::store();
    let mut list: List = (0..=*count).map(|at| vec![at % 32; usize::from(at % 24)]).collect();
    let elements: Vec<&[u8]> = list.iter().map(Vec::as_slice).collect();
    server::call(&[&[&b"RPUSH"[..], b"l"], &elements[..]].concat());
    let (mut blocks_changed, mut head_changed) = (false, false);
    for step in bytes.as_chunks::<5>().0.iter().take(100) {
        let [what, rest @ ..] = *step;
        let rest = [rest[0], rest[1], rest[2], rest[3], what];
        match what {
            252.. => {
                blocks_changed |= forge_block(&db, rest);
                // What is found sound is a list like any other.
                if blocks_changed && !head_changed && is_sound(&db) {
                    blocks_changed = false;
                    list = match server::call(&[b"EXISTS", b"l"]) {
                        Answer::Integer(1) => all(),
                        _ => List::new(),
                    };
                }
            }
            250..252 => head_changed |= forge_head(&db, rest),
            _ => {
                let answer = run([what % 13, rest[0], rest[1], rest[2], 0], &mut list);
                let is_error = matches!(answer, Answer::Error(_));
                if is_error && !blocks_changed && !head_changed {
                    let known = ["ERR no such key", "ERR index out of range"];
                    let text = server::shown(&answer);
                    assert!(known.iter().any(|known| text.contains(known)), "{step:?}: {text}");
                }
            }
        }
    }
    if !blocks_changed && !head_changed {
        assert_eq!(all(), list);
        assert!(is_sound(&db), "{:?}", check_rows(&db));
    }
    assert_eq!(server::shown(&server::call(&[b"PING"])), "Simple(\"PONG\")");
});
