//! New collections whose rows are too many for a batch: they are whole or not there, and nothing of
//! those that were not finished stays. At the end of each test the fixture looks for rows that no
//! key has.

use pando_sync::thread;
use pando_sync::time::{self, Duration};

use crate::client::{Client, encode, show};
use crate::fixture::Fixture;
use crate::trees::many;
use crate::until_end::End;

/// Elements whose rows take more than a batch may with the fixture's memory: 2.3 MB.
const COUNT: usize = 40_000;

fn element(number: usize) -> String {
    format!("{number:06}-{}", "e".repeat(33))
}

/// Sends a command with all elements; `each` makes its arguments of one.
fn fill(client: &mut Client, start: &[&str], each: impl Fn(usize) -> Vec<String>) -> String {
    many(client, start, (0..COUNT).flat_map(each))
}

/// Waits until nothing is left of what was given up.
fn wait_for_cleaner(client: &mut Client) {
    let begun = time::now();
    let pending = |client: &mut Client| {
        let info = client.text("INFO memory");
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("lazyfree_pending_objects:"));
        line.unwrap().to_owned()
    };
    while pending(client) != "0" {
        assert!(
            time::now() - begun < Duration::from_mins(2),
            "it is still not removed"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_collection_of_any_type_may_take_more_than_a_batch() {
    let server = Fixture::new();
    let mut client = server.client();
    let all = format!(":{COUNT}");
    assert_eq!(
        fill(&mut client, &["RPUSH", "l"], |n| vec![element(n)]),
        all
    );
    assert_eq!(fill(&mut client, &["SADD", "s"], |n| vec![element(n)]), all);
    let pair = |n| vec![element(n), n.to_string()];
    assert_eq!(fill(&mut client, &["HSET", "h"], pair), all);
    let scored = |n: usize| vec![n.to_string(), element(n)];
    assert_eq!(fill(&mut client, &["ZADD", "z"], scored), all);
    let some = COUNT / 2;
    let last = element(COUNT - 1);
    for (command, expected) in [
        ("LLEN l".to_owned(), all.clone()),
        (format!("LINDEX l {some}"), format!("\"{}\"", element(some))),
        ("SCARD s".to_owned(), all.clone()),
        (format!("SISMEMBER s {last}"), ":1".to_owned()),
        ("HLEN h".to_owned(), all.clone()),
        (format!("HGET h {last}"), format!("\"{}\"", COUNT - 1)),
        ("ZCARD z".to_owned(), all.clone()),
        (format!("ZRANK z {last}"), format!(":{}", COUNT - 1)),
        // Results of commands.
        ("SUNIONSTORE u s z".to_owned(), "-WRONGTYPE".to_owned()),
        ("SUNIONSTORE u s".to_owned(), all.clone()),
        ("ZUNIONSTORE zu 2 s z".to_owned(), all.clone()),
        ("ZRANGESTORE zr z 0 -1".to_owned(), all.clone()),
        ("COPY l copy".to_owned(), ":1".to_owned()),
        ("COPY h s REPLACE".to_owned(), ":1".to_owned()),
        ("LLEN copy".to_owned(), all.clone()),
        ("HLEN s".to_owned(), all.clone()),
        ("SCARD u".to_owned(), all.clone()),
        ("ZCARD zr".to_owned(), all.clone()),
        (format!("ZSCORE zu {last}"), format!("\"{COUNT}\"")),
    ] {
        let reply = client.run(&command);
        assert!(reply.starts_with(&expected), "{command}: {reply}");
    }
    // What is in an EXEC is in one commit.
    let mut other = server.client();
    client.check(&[
        ("MULTI", "+OK"),
        ("SET before 1", "+QUEUED"),
        ("SUNIONSTORE v u", "+QUEUED"),
        ("SUNIONSTORE w u", "+QUEUED"),
        ("DEL u", "+QUEUED"),
    ]);
    client.send(&encode(&["EXEC"]));
    while other.run("EXISTS before v w") == ":0" {}
    other.check(&[("EXISTS before v w u", ":3")]);
    assert_eq!(show(&client.answer()), format!("[+OK {all} {all} :1]"));
    let script = "redis.call('SUNIONSTORE', KEYS[1], KEYS[2]) \
                  return redis.call('SUNIONSTORE', KEYS[3], KEYS[1])";
    let reply = client.call(&["EVAL", script, "3", "x", "v", "y"]);
    assert_eq!(show(&reply), all);
    assert_eq!(client.run("SINTERCARD 4 v w x y"), all);
    wait_for_cleaner(&mut client);
}

/// Who has gone, or finds the database empty, leaves nothing.
#[test]
fn nothing_stays_of_what_was_not_finished() {
    let server = Fixture::new();
    let mut client = server.client();
    assert_eq!(
        fill(&mut client, &["SADD", "s"], |n| vec![element(n)]),
        format!(":{COUNT}")
    );
    for round in 0..12_u64 {
        let mut gone = server.client();
        gone.send(&encode(&["SUNIONSTORE", "d", "s"]));
        thread::sleep(Duration::from_millis(round * 7));
        drop(gone);
    }
    for round in 0..12_u64 {
        let mut other = server.client();
        other.send(&encode(&["SUNIONSTORE", "d", "s"]));
        thread::sleep(Duration::from_millis(round * 7));
        let command = ["FLUSHDB", "SWAPDB 0 1"][usize::from(round % 2 == 1)];
        client.check(&[(command, "+OK")]);
        let reply = show(&other.answer());
        assert!([":0", &format!(":{COUNT}")].contains(&&*reply), "{reply}");
        client.check(&[("FLUSHALL", "+OK")]);
        let filled = fill(&mut client, &["SADD", "s"], |n| vec![element(n)]);
        assert_eq!(filled, format!(":{COUNT}"));
    }
    // The threads of those that have gone may still be ending.
    thread::sleep(Duration::from_millis(200));
    wait_for_cleaner(&mut client);
}

/// Rows that were written before the database was emptied are written again: a list that is made of
/// nothing that was read is there, and whole.
#[test]
fn what_was_written_before_the_database_was_emptied_is_written_again() {
    let server = Fixture::new();
    let mut client = server.client();
    for round in 0..16_u64 {
        let mut other = server.client();
        other.check(&[("MULTI", "+OK")]);
        for key in ["l", "m"] {
            let queued = fill(&mut other, &["RPUSH", key], |n| vec![element(n)]);
            assert_eq!(queued, "+QUEUED");
        }
        other.send(&encode(&["EXEC"]));
        thread::sleep(Duration::from_millis(20 + round * 10));
        client.check(&[("FLUSHDB", "+OK")]);
        let reply = show(&other.answer());
        assert_eq!(reply, format!("[:{COUNT} :{COUNT}]"));
        for key in ["l", "m"] {
            let reply = client.run(&format!("LRANGE {key} 0 -1"));
            let found = reply.matches("-eee").count();
            assert!([0, COUNT].contains(&found), "{found}");
            let length = client.integer(&format!("LLEN {key}"));
            assert_eq!(length, i64::try_from(found).unwrap());
        }
        client.check(&[("FLUSHALL", "+OK")]);
    }
}

/// A transaction of PANDO BEGIN reads an earlier moment than that of rows that were written
/// meanwhile: it writes them itself, as far as a batch may have them.
#[test]
fn a_transaction_of_a_session_writes_its_rows_itself() {
    let server = Fixture::new();
    let mut client = server.client();
    let count = COUNT / 2;
    for level in ["SERIALIZABLE", "SNAPSHOT", "READCOMMITTED"] {
        client.check(&[(&format!("PANDO BEGIN {level}"), "+OK"), ("GET x", "nil")]);
        let elements = (0..count).map(element);
        assert_eq!(
            many(&mut client, &["SADD", "s"], elements),
            format!(":{count}")
        );
        let last = element(count - 1);
        client.check(&[
            (&format!("SISMEMBER s {last}"), ":1"),
            ("SCARD s", &format!(":{count}")),
        ]);
        assert!(client.run("PANDO COMMIT").starts_with(['+', ':']));
        client.check(&[
            (&format!("SISMEMBER s {last}"), ":1"),
            ("SUNIONSTORE t s", &format!(":{count}")),
            ("FLUSHALL", "+OK"),
        ]);
    }
    wait_for_cleaner(&mut client);
}

/// More commands than may have their rows written at a time, some of whom leave.
#[test]
fn commands_wait_in_line_to_have_their_rows_written() {
    let server = Fixture::new();
    let mut client = server.client();
    let filled = fill(&mut client, &["SADD", "s"], |n| vec![element(n)]);
    assert_eq!(filled, format!(":{COUNT}"));
    let mut others: Vec<Client> = (0..24).map(|_| server.client()).collect();
    for (number, other) in others.iter_mut().enumerate() {
        let key = format!("d{number}");
        other.send(&encode(&["SUNIONSTORE", &key, "s"]));
    }
    for (number, mut other) in others.into_iter().enumerate() {
        if number % 3 == 1 {
            continue;
        }
        assert_eq!(show(&other.answer()), format!(":{COUNT}"), "{number}");
    }
    wait_for_cleaner(&mut client);
}

/// What is stored is what the sources hold at the commit, not when the rows were made.
#[test]
fn a_result_is_of_one_moment_beside_writers() {
    let server = Fixture::new();
    let mut client = server.client();
    let filled = fill(&mut client, &["SADD", "s"], |n| vec![element(n)]);
    assert_eq!(filled, format!(":{COUNT}"));
    let ends = End::default();
    thread::scope(|scope| {
        let bring = ends.brought();
        let writer = scope.spawn(|| {
            let mut writer = server.client();
            // Both or none of them, in each moment.
            while !ends.is_there() {
                for command in ["SADD s one two", "SREM s one two"] {
                    writer.check(&[(command, ":2")]);
                    thread::sleep(Duration::from_millis(40));
                }
            }
        });
        for _ in 0..6 {
            let count = client.integer("SUNIONSTORE d s");
            let both = client.run("SMISMEMBER d one two");
            let extra = count - i64::try_from(COUNT).unwrap();
            let expected = if extra == 0 { "[:0 :0]" } else { "[:1 :1]" };
            assert_eq!((both.as_str(), extra == 0 || extra == 2), (expected, true));
        }
        drop(bring);
        writer.join().unwrap();
    });
    wait_for_cleaner(&mut client);
}
