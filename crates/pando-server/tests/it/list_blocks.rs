//! Large lists, whose elements lie in blocks (decision 118), beside a list in memory.

use std::collections::VecDeque;
use std::path::Path;

use fastrand::Rng;
use pando_resp::Answer;
use pando_server::check_rows;
use pandodb::{Db, verify};

use crate::client::{Client, encode, show, words};
use crate::fixture::{Fixture, open_on_disk, open_small, options};

pub(crate) type List = VecDeque<Vec<u8>>;

pub(crate) fn on_disk(path: &Path) -> Fixture {
    let path = path.to_owned();
    Fixture::opened_by(options(), move |_| open_on_disk(&path))
}

/// Returns a client of a server whose lists become large at once.
pub(crate) fn client_of(server: &Fixture) -> Client {
    let mut client = crate::trees::client_of(server);
    client.check(&[("CONFIG SET list-max-listpack-size 4", "+OK")]);
    client
}

/// Returns an element: most are short, so that some come twice, others fill a block, have a row of
/// their own, or lie in other pages.
fn element(random: &mut Rng) -> Vec<u8> {
    let bytes = match random.u32(..30) {
        0 => random.usize(100..=256),
        1 => random.usize(257..400),
        2 if random.u32(..8) == 0 => random.usize(2_000..9_000),
        _ => random.usize(..12),
    };
    let mut element = vec![b'a' + random.u8(..26); bytes];
    if let Some(last) = element.last_mut() {
        *last = random.u8(..);
    }
    element
}

fn elements(random: &mut Rng) -> Vec<Vec<u8>> {
    let count = match random.u32(..20) {
        0 => random.usize(1..400),
        1..5 => random.usize(1..20),
        _ => 1,
    };
    (0..count).map(|_| element(random)).collect()
}

/// A command, and what it replies.
pub(crate) struct Step {
    pub(crate) command: Vec<Vec<u8>>,
    pub(crate) reply: Answer,
}

pub(crate) fn bulk(element: Option<&Vec<u8>>) -> Answer {
    element.map_or(Answer::Null, |of| Answer::Bulk(of.clone()))
}

pub(crate) fn number(of: usize) -> Answer {
    Answer::Integer(i64::try_from(of).unwrap())
}

fn all_of<'e>(elements: impl Iterator<Item = &'e Vec<u8>>) -> Answer {
    Answer::Array(elements.map(|of| Answer::Bulk(of.clone())).collect())
}

/// Makes a step of words.
pub(crate) fn step(words: &[&str], more: &[Vec<u8>], reply: Answer) -> Step {
    let words = words.iter().map(|word| word.as_bytes().to_vec());
    let command = words.chain(more.iter().cloned()).collect();
    Step { command, reply }
}

fn push(random: &mut Rng, list: &mut List) -> Step {
    let new = elements(random);
    let is_left = random.bool();
    for of in &new {
        match is_left {
            true => list.push_front(of.clone()),
            false => list.push_back(of.clone()),
        }
    }
    let name = if is_left { "LPUSH" } else { "RPUSH" };
    step(&[name, "l"], &new, number(list.len()))
}

fn pop(random: &mut Rng, list: &mut List) -> Step {
    let is_left = random.bool();
    let name = if is_left { "LPOP" } else { "RPOP" };
    let mut take = || match is_left {
        true => list.pop_front(),
        false => list.pop_back(),
    };
    if random.u32(..6) > 0 {
        let popped = take();
        return step(&[name, "l"], &[], bulk(popped.as_ref()));
    }
    let count = random.usize(1..200);
    let popped: Vec<_> = std::iter::from_fn(take).take(count).collect();
    let reply = match popped.is_empty() {
        true => Answer::Null,
        false => all_of(popped.iter()),
    };
    step(&[name, "l", &count.to_string()], &[], reply)
}

/// Inserts, sets, removes or rotates elements somewhere in a list that has some.
fn edit(random: &mut Rng, list: &mut List) -> Step {
    let place = random.usize(..list.len());
    let (here, new) = (list[place].clone(), element(random));
    match random.u32(..7) {
        0..3 => {
            let at = list.iter().position(|of| *of == here).unwrap();
            let is_before = random.bool();
            list.insert(at + usize::from(!is_before), new.clone());
            let side = if is_before { "BEFORE" } else { "AFTER" };
            step(&["LINSERT", "l", side], &[here, new], number(list.len()))
        }
        3 => {
            list[place] = new.clone();
            let place = place.to_string();
            step(&["LSET", "l", &place], &[new], Answer::Simple("OK".into()))
        }
        4 => {
            let most = random.usize(1..4);
            let equal = list.iter().enumerate().filter(|(_, of)| **of == here);
            let places: Vec<usize> = equal.map(|(at, _)| at).take(most).collect();
            places.iter().rev().for_each(|at| drop(list.remove(*at)));
            let most = most.to_string();
            step(&["LREM", "l", &most], &[here], number(places.len()))
        }
        5 => {
            let moved = list.pop_back().unwrap();
            list.push_front(moved.clone());
            step(&["RPOPLPUSH", "l", "l"], &[], Answer::Bulk(moved))
        }
        _ => {
            let most = list.len().min(300);
            let (from, behind) = (random.usize(..most), random.usize(..most));
            let kept = from..list.len().saturating_sub(behind);
            list.truncate(kept.end);
            list.drain(..kept.start.min(list.len()));
            let (from, to) = (from.to_string(), format!("-{}", behind + 1));
            step(
                &["LTRIM", "l", &from, &to],
                &[],
                Answer::Simple("OK".into()),
            )
        }
    }
}

fn read(random: &mut Rng, list: &List) -> Step {
    let length = list.len();
    let place = random.usize(..length + 1);
    match random.u32(..4) {
        0 => step(&["LLEN", "l"], &[], number(length)),
        1 => step(
            &["LINDEX", "l", &place.to_string()],
            &[],
            bulk(list.get(place)),
        ),
        2 => {
            let place = place.max(1);
            let here = bulk(length.checked_sub(place).and_then(|at| list.get(at)));
            step(&["LINDEX", "l", &format!("-{place}")], &[], here)
        }
        _ => {
            let count = random.usize(1..700);
            let range = (place.to_string(), (place + count - 1).to_string());
            let shown = all_of(list.iter().skip(place).take(count));
            step(&["LRANGE", "l", &range.0, &range.1], &[], shown)
        }
    }
}

/// Returns commands of which each has the list that those before it leave.
fn steps(random: &mut Rng, list: &mut List) -> Vec<Step> {
    let count = random.usize(1..24);
    let kind = random.u32(..4);
    let mut steps = Vec::new();
    for _ in 0..count {
        // Stretches of one command, and all in turns.
        let kind = if kind == 3 {
            random.u32(..16)
        } else {
            kind * 5
        };
        steps.push(match kind {
            0..5 => push(random, list),
            5..9 => pop(random, list),
            9..13 if !list.is_empty() => edit(random, list),
            _ => read(random, list),
        });
    }
    // It is made and taken apart again and again.
    if list.len() > 4000 {
        let kept = random.usize(1..50);
        list.truncate(kept);
        let last = (kept - 1).to_string();
        let ok = Answer::Simple("OK".into());
        steps.push(step(&["LTRIM", "l", "0", &last], &[], ok));
    }
    steps
}

/// Runs commands together, one by one, or as a transaction: of EXEC, of PANDO BEGIN, or a script.
pub(crate) fn run(client: &mut Client, random: &mut Rng, steps: &[Step]) {
    let shown = |step: &Step| {
        let words = step.command.iter().map(|of| of.escape_ascii().to_string());
        let words = words.map(|word| word.chars().take(40).collect::<String>());
        words
            .collect::<Vec<_>>()
            .join(" ")
            .chars()
            .take(300)
            .collect::<String>()
    };
    let bytes = |steps: &[Step]| {
        let commands = steps.iter().map(|step| encode(&step.command));
        commands.collect::<Vec<_>>().concat()
    };
    let check = |step: &Step, answer: &Answer| {
        let (answer, wanted) = (show(answer), show(&step.reply));
        assert!(
            answer == wanted,
            "{}: {answer:.300}, not {wanted:.300}",
            shown(step)
        );
    };
    let ways = if cfg!(feature = "scripts") { 5 } else { 4 };
    match random.u32(..ways) {
        0 => {
            client.send(&bytes(steps));
            let answers: Vec<Answer> = steps.iter().map(|_| client.answer()).collect();
            steps
                .iter()
                .zip(&answers)
                .for_each(|(step, of)| check(step, of));
        }
        1 => {
            for step in steps {
                let answer = client.call(&step.command);
                check(step, &answer);
            }
        }
        2 => {
            // It may meet what removes the rows of lists before it.
            let answers = (0..20).find_map(|_| transaction(client, steps));
            let answers = answers.expect("a commit");
            steps
                .iter()
                .zip(&answers)
                .for_each(|(step, of)| check(step, of));
        }
        way => {
            let ended = match way {
                3 => {
                    client.check(&[("WATCH l", "+OK"), ("MULTI", "+OK")]);
                    client.send(&bytes(steps));
                    steps
                        .iter()
                        .for_each(|_| assert_eq!(show(&client.answer()), "+QUEUED"));
                    client.run_raw("EXEC")
                }
                _ => client.call(&script(steps)),
            };
            let Answer::Array(answers) = ended else {
                panic!("{way}: {} of {}", show(&ended), steps.len());
            };
            steps
                .iter()
                .zip(&answers)
                .for_each(|(step, of)| check(step, of));
        }
    }
}

/// Runs commands in a transaction of PANDO BEGIN; `None` if it has met other writes.
fn transaction(client: &mut Client, steps: &[Step]) -> Option<Vec<Answer>> {
    client.check(&[("PANDO BEGIN", "+OK")]);
    let answers: Vec<_> = steps.iter().map(|of| client.call(&of.command)).collect();
    let ended = client.run_raw("PANDO COMMIT");
    // There is little memory for what others, the cleaner too, replace meanwhile.
    let is_met = |answer: &Answer| {
        let shown = show(answer);
        shown.starts_with("-CONFLICT") || shown.starts_with("-SNAPSHOTENDED")
    };
    let has_met = is_met(&ended) || answers.iter().any(is_met);
    assert!(has_met || !show(&ended).starts_with('-'), "{ended:?}");
    if has_met {
        client.run("PANDO ROLLBACK");
        return None;
    }
    Some(answers)
}

/// Returns the call of a script that runs commands, and replies with all that these reply.
fn script(steps: &[Step]) -> Vec<Vec<u8>> {
    let text = "local all, at = {}, 1
        while at <= #ARGV do
            local count = tonumber(ARGV[at])
            all[#all + 1] = redis.call(unpack(ARGV, at + 1, at + count))
            at = at + count + 1
        end
        return all";
    let mut call = ["EVAL", text, "1", "l"]
        .map(|word| word.as_bytes().to_vec())
        .to_vec();
    for step in steps {
        call.push(step.command.len().to_string().into_bytes());
        call.extend(step.command.iter().cloned());
    }
    call
}

/// Edits a list, and opens the store anew now and then.
fn edit_for(rounds: usize, seed: u64, is_cold: bool) {
    let directory = tempfile::tempdir().unwrap();
    let (mut random, mut list) = (Rng::with_seed(seed), List::new());
    for _ in 0..3 {
        let path = directory.path().to_owned();
        let server = match is_cold {
            true => Fixture::opened_by(options(), move |_| open_small(&path)),
            false => on_disk(&path),
        };
        let mut client = client_of(&server);
        for _ in 0..rounds {
            let steps = steps(&mut random, &mut list);
            run(&mut client, &mut random, &steps);
        }
        assert_eq!(
            show(&client.run_raw("LRANGE l 0 -1")),
            show(&all_of(list.iter()))
        );
        client.check(&[(
            "COPY l copy REPLACE",
            if list.is_empty() { ":0" } else { ":1" },
        )]);
        if !list.is_empty() {
            let copy = show(&client.run_raw("LRANGE copy 0 -1"));
            assert_eq!(copy, show(&all_of(list.iter())));
        }
        drop(client);
        drop(server);
        let report = check_rows(&open_on_disk(directory.path()).unwrap()).unwrap();
        assert_eq!(report.descriptions, [""; 0], "seed {seed}");
        let report = verify(directory.path(), |_, _| ()).unwrap();
        assert!(
            report.damages.is_empty(),
            "seed {seed}: {:?}",
            report.damages
        );
    }
}

#[test]
fn edits_are_those_of_a_list_in_memory() {
    for seed in 0..4 {
        edit_for(120, seed, false);
    }
}

#[test]
fn edits_are_those_of_a_list_in_memory_with_few_frames() {
    edit_for(60, 99, true);
}

/// Blocks are cut in the middle again and again: all have room, and none is nearly empty.
#[test]
fn insertions_at_one_place_leave_full_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let server = on_disk(directory.path());
    let mut client = client_of(&server);
    let many: Vec<String> = (0..600).map(|number| format!("element-{number}")).collect();
    crate::trees::many(&mut client, &["RPUSH", "l"], many.iter().cloned());
    let insertions = (0..3000).map(|number| {
        let new = format!("new-{number:06}");
        encode(&["LINSERT", "l", "AFTER", "element-300", &new])
    });
    client.send(&insertions.collect::<Vec<_>>().concat());
    (0..3000).for_each(|number| assert_eq!(show(&client.answer()), format!(":{}", 601 + number)));
    let places = [
        ("LINDEX l 301", "\"new-002999\""),
        ("LINDEX l 3300", "\"new-000000\""),
    ];
    client.check(&places);
    client.check(&[("LINDEX l 3301", "\"element-301\""), ("LLEN l", ":3600")]);
    drop(client);
    drop(server);
    let report = check_rows(&open_on_disk(directory.path()).unwrap()).unwrap();
    assert_eq!(report.descriptions, [""; 0]);
    // 600 of 12 bytes and 3,000 of 11, in blocks of 960 bytes that are half full at least.
    assert!((40..=90).contains(&report.rows), "{} blocks", report.rows);
}

/// What is put behind a long element shares the block behind that.
#[test]
fn insertions_behind_a_long_element_share_blocks() {
    let ends = [(10, "new-599"), (609, "new-0")];
    insert_beside_a_long_one("AFTER", ends);
}

/// What is put before a long element shares the block before that.
#[test]
fn insertions_before_a_long_element_share_blocks() {
    let ends = [(9, "new-0"), (608, "new-599")];
    insert_beside_a_long_one("BEFORE", ends);
}

/// Puts 600 short elements on this side of one of twenty long ones; two of them are at the places
/// `ends` then.
fn insert_beside_a_long_one(side: &str, ends: [(usize, &str); 2]) {
    let directory = tempfile::tempdir().unwrap();
    let server = on_disk(directory.path());
    let mut client = client_of(&server);
    crate::trees::many(&mut client, &["RPUSH", "l"], (0..20).map(long));
    let pivot = long(9);
    let insertions =
        (0..600).map(|at| encode(&["LINSERT", "l", side, &pivot, &format!("new-{at}")]));
    client.send(&insertions.collect::<Vec<_>>().concat());
    (0..600).for_each(|at| assert_eq!(show(&client.answer()), format!(":{}", 21 + at)));
    for (place, element) in ends {
        let command = format!("LINDEX l {place}");
        client.check(&[(&command, &format!("\"{element}\""))]);
    }
    drop(client);
    drop(server);
    let report = check_rows(&open_on_disk(directory.path()).unwrap()).unwrap();
    assert_eq!(report.descriptions, [""; 0]);
    // 20 long ones, and 600 short ones, some 100 in a block.
    assert!(report.rows <= 32, "{} blocks", report.rows);
}

/// What is removed one by one leaves no blocks of few elements.
#[test]
fn removals_join_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let server = on_disk(directory.path());
    let mut client = client_of(&server);
    let many = |at: usize| format!("element-{at:05}");
    crate::trees::many(&mut client, &["RPUSH", "l"], (0..4000).map(many));
    let gone = (0..4000).filter(|at| at % 20 != 0);
    let removals = gone
        .clone()
        .map(|at| encode(&["LREM", "l", "1", &many(at)]));
    client.send(&removals.collect::<Vec<_>>().concat());
    gone.for_each(|_| assert_eq!(show(&client.answer()), ":1"));
    client.check(&[("LLEN l", ":200"), ("LINDEX l 199", "\"element-03980\"")]);
    drop(client);
    drop(server);
    let report = check_rows(&open_on_disk(directory.path()).unwrap()).unwrap();
    assert_eq!(report.descriptions, [""; 0]);
    // 3,000 bytes, where 64 blocks were.
    assert!(report.rows <= 16, "{} blocks", report.rows);
}

pub(crate) fn long(at: usize) -> String {
    format!("{at:05}{}", "x".repeat(300))
}

/// Between two numbers that are far from each other lie positions that are shorter than numbers.
#[test]
fn positions_may_be_shorter_than_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let server = on_disk(directory.path());
    let mut client = client_of(&server);
    let long = "x".repeat(300);
    let all = (0..1400).map(|at| match at {
        0..100 | 1300.. => format!("{at:04}{}", "y".repeat(300)),
        _ => long.clone(),
    });
    crate::trees::many(&mut client, &["RPUSH", "l"], all);
    client.check(&[(&format!("LREM l 0 {long}"), ":1200")]);
    let pivot = format!("0099{}", "y".repeat(300));
    client.check(&[(&format!("LINSERT l AFTER {pivot} new{long}"), ":201")]);
    client.check(&[(&format!("LINSERT l AFTER {pivot} newer{long}"), ":202")]);
    for at in 0..100 {
        let name = if at % 2 == 0 { "RPOP" } else { "LPOP" };
        client.run(&format!("{name} l"));
    }
    client.check(&[("LLEN l", ":102")]);
    drop(client);
    drop(server);
    let report = check_rows(&open_on_disk(directory.path()).unwrap()).unwrap();
    assert_eq!(report.descriptions, [""; 0]);
}

const KEYS: &str = "db/0/keys";
pub(crate) const MEMBERS: &str = "db/0/members";

/// Changes the numbers of the head of the list: count, lowest and highest position.
fn change_head(db: &Db, change: impl Fn([u64; 3]) -> [u64; 3]) {
    let keys = db.existing_table(KEYS).unwrap();
    let mut row = keys.get(b"\0l").unwrap().unwrap().to_vec();
    let start = row.len() - 24;
    let number = |at: usize| u64::from_le_bytes(row[start + at * 8..][..8].try_into().unwrap());
    let numbers = change([number(0), number(1), number(2)]);
    row.truncate(start);
    row.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    keys.put(b"\0l", &row).unwrap();
}

/// Puts `value` where a block is: the first one, the last one, or one between.
fn put_block(db: &Db, place: usize, value: &[u8]) {
    let members = db.existing_table(MEMBERS).unwrap();
    let rows = members.iter().map(|row| row.unwrap().0);
    let blocks: Vec<_> = rows.filter(|key| key[8] == b'L').collect();
    let at = [0, blocks.len() / 2, blocks.len() - 1][place];
    members.put(&blocks[at], value).unwrap();
}

/// Returns what may be done to a list whose rows are any bytes.
fn commands_of_lists() -> Vec<String> {
    let many = |name: &str| format!("{name} l {}", "pushed-element ".repeat(500));
    let mut commands: Vec<String> = [
        "LPOP l",
        "RPOP l",
        "LPUSH l a",
        "RPUSH l a",
        "LPOP l 3",
        "RPOP l 3",
        "LRANGE l 0 -1",
        "LRANGE l 100 120",
        "LRANGE l -20 -1",
        "LRANGE l 290 310",
        "LINDEX l 0",
        "LINDEX l -1",
        "LINDEX l 300",
        "LINSERT l BEFORE e300 new",
        "LSET l 0 a",
        "LSET l -1 a",
        "LSET l 300 a",
        "LREM l 1 e250",
        "LPOS l e301",
        "LMOVE l l LEFT RIGHT",
        "LMOVE l l RIGHT LEFT",
        "LTRIM l 1 -2",
        "COPY l copy REPLACE",
        "SORT l ALPHA",
        "LLEN l",
    ]
    .map(str::to_owned)
    .to_vec();
    commands.extend([many("LPUSH"), many("RPUSH")]);
    for name in ["LPUSH", "RPUSH"] {
        commands.extend((0..300).map(|at| format!("{name} l pushed-{at}")));
    }
    for name in ["LPOP", "RPOP"] {
        commands.extend((0..300).map(|_| format!("{name} l")));
    }
    commands
}

/// Runs commands with a list of which `damage` has changed the store. What they reply is open, but
/// all of them do, and the server goes on.
fn run_with_damage(damage: impl Fn(&Db) + Send + 'static, is_found: bool) {
    let directory = tempfile::tempdir().unwrap();
    let server = on_disk(directory.path());
    let mut client = client_of(&server);
    let elements = (0..600).map(|at| format!("e{at}"));
    crate::trees::many(&mut client, &["RPUSH", "l"], elements);
    drop(client);
    drop(server);
    let path = directory.path().to_owned();
    let mut server = Fixture::opened_by(options(), move |_| {
        let db = open_on_disk(&path)?;
        damage(&db);
        let report = check_rows(&db)?;
        assert_eq!(report.problems > 0, is_found, "{report:?}");
        Ok(db)
    });
    server.is_damaged();
    let mut client = client_of(&server);
    let commands = commands_of_lists();
    for commands in commands.chunks(25) {
        client.send(
            &commands
                .iter()
                .map(|of| encode(&words(of)))
                .collect::<Vec<_>>()
                .concat(),
        );
        commands.iter().for_each(|_| drop(client.answer()));
    }
    commands[..25]
        .iter()
        .for_each(|of| drop(client.run_raw(of)));
    client.check(&[("MULTI", "+OK")]);
    commands.iter().for_each(|of| drop(client.run_raw(of)));
    client.run("EXEC");
    client.check(&[("PING", "+PONG")]);
}

#[test]
fn damaged_blocks_are_found_and_stop_nobody() {
    let full = [
        &[0x80 + 127][..],
        &[&[0xff, 0x7f][..], &[7; 16_383]].concat().repeat(127),
    ];
    for place in 0..3 {
        let rows = [
            vec![],
            vec![0x80],
            vec![0x7f],
            vec![0x81],
            vec![0xff; 1088],
            [&[0x81, 1, b'a'][..], &[0; 64]].concat(),
            full.concat(),
        ];
        for row in rows {
            run_with_damage(move |db| put_block(db, place, &row), true);
        }
    }
}

#[test]
fn damaged_heads_are_found_and_stop_nobody() {
    const MAX: u64 = u64::MAX;
    let changes: [fn([u64; 3]) -> [u64; 3]; 8] = [
        |[count, low, high]| [count + 1, low, high],
        |[count, low, high]| [count - 1, low, high],
        |[_, low, high]| [MAX - high - 1, low, high],
        |[count, _, high]| [count, 1, high],
        |[count, low, _]| [count, low, MAX - count - 1],
        |[count, low, high]| [count, high, low],
        |[count, low, high]| [count, low + 1, high],
        |[count, low, high]| [count, low, high - 1],
    ];
    for change in changes {
        run_with_damage(move |db| change_head(db, change), true);
    }
    // It is not known how far they go.
    run_with_damage(
        |db| change_head(db, |[count, low, high]| [count, low - 9, high + 9]),
        false,
    );
}

/// The head of a list in blocks does for no other collection.
#[test]
fn a_set_in_blocks_is_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let mut server = Fixture::opened_by(options(), move |_| open_on_disk(&path));
    server.is_damaged();
    let mut client = client_of(&server);
    crate::trees::many(
        &mut client,
        &["SADD", "l"],
        (0..300).map(|at| format!("e{at}")),
    );
    drop(client);
    drop(server);
    let path = directory.path().to_owned();
    let mut server = Fixture::opened_by(options(), move |_| {
        let db = open_on_disk(&path)?;
        let keys = db.existing_table(KEYS).unwrap();
        let mut row = keys.get(b"\0l")?.unwrap().to_vec();
        let form = row.len() - 41;
        row[form] = 4;
        keys.put(b"\0l", &row)?;
        // Its positions are those of a list without elements.
        change_head(&db, |[count, low, _]| [count, low, low]);
        assert_eq!(check_rows(&db)?.problems, 2);
        Ok(db)
    });
    server.is_damaged();
    let mut client = server.client();
    let reply = client.run("SADD l more");
    assert!(reply.starts_with("-ERR the value of this key"), "{reply}");
}
