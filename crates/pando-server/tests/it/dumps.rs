//! DUMP and RESTORE.

use pando_resp::Answer;
use pando_sync::thread;
use pando_sync::time::Duration;

use crate::client::{Client, encode, show};
use crate::fixture::Fixture;
use crate::trees::{client_of, fill};

/// Returns what DUMP says of `key`.
fn dumped(client: &mut Client, key: &str) -> Vec<u8> {
    match client.call(&["DUMP", key]) {
        Answer::Bulk(payload) => payload,
        other => panic!("DUMP {key}: {}", show(&other)),
    }
}

fn restored(client: &mut Client, key: &str, payload: &[u8], rest: &[&[u8]]) -> String {
    let command = [b"RESTORE", key.as_bytes(), b"0", payload].into_iter();
    let command: Vec<&[u8]> = command.chain(rest.iter().copied()).collect();
    show(&client.call(&command))
}

/// Returns a payload of this content, as this version of the RDB format has it.
fn sealed(content: &[u8], version: u16) -> Vec<u8> {
    let mut payload = content.to_vec();
    payload.extend(version.to_le_bytes());
    let sum = payload.iter().fold(0_u64, |sum, byte| {
        (0..8).fold(sum ^ u64::from(*byte), |sum, _| {
            (sum >> 1)
                ^ (if sum & 1 == 1 {
                    0x95ac_9329_ac4b_c9b5
                } else {
                    0
                })
        })
    });
    payload.extend(sum.to_le_bytes());
    payload
}

/// Dumps each key, restores it as another one, and compares what the commands say of both.
fn check_copies(client: &mut Client, shown: &[(&str, &[&str])]) {
    for (key, commands) in shown {
        let payload = dumped(client, key);
        assert_eq!(
            restored(client, "copy", &payload, &[b"REPLACE"]),
            "+OK",
            "{key}"
        );
        for command in *commands {
            let of = |name: &str| command.replace('@', name);
            assert_eq!(
                client.run(&of("copy")),
                client.run(&of(key)),
                "{command} of {key}"
            );
        }
    }
}

/// Makes a value of each kind.
fn fill_small(client: &mut Client) {
    client.check(&[
        ("SET text hello", "+OK"),
        ("SET number -129", "+OK"),
        ("SET empty ''", "+OK"),
        ("RPUSH list a 1 '' 70000", ":4"),
        ("SADD numbers 3 -1 2", ":3"),
        ("SADD words b a 7", ":3"),
        ("ZADD scored 1.5 a inf b -inf c -0 d", ":4"),
        ("HSET hash f v g 5", ":2"),
        ("PFADD counted a b c", ":1"),
        ("XADD stream 5-1 f v", "\"5-1\""),
        ("XADD stream 5-2 f w", "\"5-2\""),
        ("XADD stream 7-0 g x h y", "\"7-0\""),
        ("XDEL stream 5-1", ":1"),
        ("XGROUP CREATE stream all 0", "+OK"),
        ("XGROUP CREATE stream new $", "+OK"),
        (
            "XREADGROUP GROUP all c1 COUNT 1 STREAMS stream >",
            "[[\"stream\" [[\"5-2\" [\"f\" \"w\"]]]]]",
        ),
        ("XGROUP CREATECONSUMER stream all c2", ":1"),
        ("XGROUP CREATECONSUMER stream new c4", ":1"),
        ("XGROUP CREATE none g 0 MKSTREAM", "+OK"),
        ("DUMP nothing", "nil"),
    ]);
}

#[test]
fn a_restored_value_is_the_dumped_one() {
    let server = Fixture::new();
    let mut client = server.client();
    fill_small(&mut client);
    let encoded = "OBJECT ENCODING @";
    check_copies(
        &mut client,
        &[
            ("text", &["GET @", encoded]),
            ("number", &["GET @", encoded]),
            ("empty", &["GET @", encoded]),
            ("list", &["LRANGE @ 0 -1", encoded]),
            ("numbers", &["SMEMBERS @", encoded]),
            ("words", &["SMEMBERS @", encoded]),
            ("scored", &["ZRANGE @ 0 -1 WITHSCORES", encoded]),
            ("hash", &["HGETALL @", encoded]),
            ("counted", &["PFCOUNT @", "GET @"]),
            (
                "stream",
                &[
                    "XRANGE @ - +",
                    "XINFO STREAM @",
                    "XPENDING @ all",
                    "XPENDING @ new",
                    "XLEN @",
                ],
            ),
            ("none", &["XLEN @", "XINFO GROUPS @", "TYPE @"]),
        ],
    );
    // A consumer that is there goes on where it was, and numbers of new ones are free.
    let payload = dumped(&mut client, "stream");
    assert_eq!(
        restored(&mut client, "stream", &payload, &[b"REPLACE"]),
        "+OK"
    );
    client.check(&[
        ("XGROUP CREATECONSUMER stream new c5", ":1"),
        (
            "XREADGROUP GROUP all c1 STREAMS stream 0",
            "[[\"stream\" [[\"5-2\" [\"f\" \"w\"]]]]]",
        ),
        (
            "XREADGROUP GROUP all c3 STREAMS stream >",
            "[[\"stream\" [[\"7-0\" [\"g\" \"x\" \"h\" \"y\"]]]]]",
        ),
        ("XACK stream all 5-2 7-0", ":2"),
        (
            "XADD stream 7-0 a b",
            "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
    ]);
    let consumers = client.run("XINFO CONSUMERS stream new");
    assert!(
        consumers.contains("c4") && consumers.contains("c5"),
        "{consumers}"
    );
}

/// Makes a stream with many entries, of which many are pending.
fn fill_stream(client: &mut Client) {
    for n in 1..2_000 {
        client.call(&["XADD", "x", &format!("{n}-1"), "f", &format!("value {n}")]);
    }
    client.check(&[("XGROUP CREATE x g 0", "+OK")]);
    client.call(&[
        "XREADGROUP",
        "GROUP",
        "g",
        "c",
        "COUNT",
        "900",
        "STREAMS",
        "x",
        ">",
    ]);
    client.call(&[
        "XREADGROUP",
        "GROUP",
        "g",
        "d",
        "COUNT",
        "900",
        "STREAMS",
        "x",
        ">",
    ]);
}

#[test]
fn large_collections_are_dumped_and_restored() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    fill(&mut client, 20_000);
    fill_stream(&mut client);
    check_copies(
        &mut client,
        &[
            (
                "h",
                &[
                    "HLEN @",
                    "HGET @ f19999",
                    "HMGET @ f1 f777 none",
                    "OBJECT ENCODING @",
                ],
            ),
            (
                "s",
                &[
                    "SCARD @",
                    "SMISMEMBER @ m0 m19999 none",
                    "OBJECT ENCODING @",
                ],
            ),
            (
                "z",
                &[
                    "ZRANGE @ 0 -1 WITHSCORES",
                    "ZRANK @ m00007",
                    "ZCOUNT @ 5 700",
                ],
            ),
            (
                "l",
                &["LRANGE @ 0 -1", "LINDEX @ 10000", "OBJECT ENCODING @"],
            ),
            (
                "x",
                &[
                    "XRANGE @ - +",
                    "XINFO STREAM @",
                    "XPENDING @ g",
                    "XINFO STREAM @ FULL COUNT 0",
                ],
            ),
        ],
    );
}

/// They have few rows, but more bytes than a batch may have.
#[test]
fn streams_of_long_rows_are_restored_and_copied() {
    let server = Fixture::new();
    let mut client = server.client();
    let (value, name) = ("v".repeat(20_000), "n".repeat(300));
    for n in 1..=300 {
        let id = format!("{n}-1");
        client.call(&["XADD", "entries", &id, "f", &value]);
    }
    client.call(&["XADD", "consumers", "1-1", "f", "v"]);
    client.check(&[("XGROUP CREATE consumers g 0", "+OK")]);
    let consumer = |n: u32| {
        let name = format!("{name}{n}");
        encode(&["XGROUP", "CREATECONSUMER", "consumers", "g", &name])
    };
    let all: Vec<u8> = (0..6_000).flat_map(consumer).collect();
    client.send(&all);
    (0..6_000).for_each(|_| assert_eq!(show(&client.answer()), ":1"));
    let full: &[&str] = &["XRANGE @ - +", "XINFO GROUPS @"];
    check_copies(&mut client, &[("entries", full), ("consumers", full)]);
    client.check(&[("COPY entries e", ":1"), ("COPY consumers c", ":1")]);
    for (key, copy) in [("entries", "e"), ("consumers", "c")] {
        for command in full {
            let of = |name: &str| command.replace('@', name);
            assert!(client.run(&of(copy)) == client.run(&of(key)), "{key}");
        }
    }
    client.check(&[("COPY consumers d", ":1"), ("XADD d 2-1 f v", "\"2-1\"")]);
}

#[test]
fn a_large_list_replaces_a_value_in_a_transaction() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    fill(&mut client, 20_000);
    let payload = dumped(&mut client, "l");
    client.check(&[("MULTI", "+OK"), ("SET h v", "+QUEUED")]);
    assert_eq!(
        restored(&mut client, "h", &payload, &[b"REPLACE"]),
        "+QUEUED"
    );
    client.check(&[
        ("LLEN h", "+QUEUED"),
        ("EXEC", "[+OK +OK :20000]"),
        ("LINDEX h -1", "\"e19999\""),
    ]);
}

/// A string is longer than what is held in memory: it comes and goes chunk by chunk.
#[test]
fn long_strings_are_dumped_and_restored() {
    let server = Fixture::new();
    let mut client = server.client();
    let mut random = fastrand::Rng::with_seed(1);
    let text: Vec<u8> = (0..30_000_000).map(|_| random.u8(..)).collect();
    client.call::<&[u8]>(&[b"SET", b"long", &text]);
    let payload = dumped(&mut client, "long");
    assert_eq!(payload.len(), text.len() + 16);
    assert_eq!(payload, sealed(&payload[..payload.len() - 10], 10));
    assert_eq!(restored(&mut client, "copy", &payload, &[]), "+OK");
    assert!(client.call(&["GET", "copy"]) == Answer::Bulk(text.clone()));
    // Patches lie over the chunks of one.
    client.check(&[("SETRANGE copy 20000000 patched", ":30000000")]);
    let patched = dumped(&mut client, "copy");
    assert_eq!(&patched[20_000_006..20_000_013], b"patched");
    assert_eq!(
        restored(&mut client, "long", &patched, &[b"REPLACE"]),
        "+OK"
    );
    client.check(&[
        ("GETRANGE long 20000000 20000006", "\"patched\""),
        ("STRLEN long", ":30000000"),
        ("OBJECT ENCODING long", "\"raw\""),
    ]);
    let mut damaged = payload;
    damaged[20_000_000] ^= 1;
    let wrong = "-ERR DUMP payload version or checksum are wrong";
    assert_eq!(restored(&mut client, "x", &damaged, &[]), wrong);
    let payload = sealed(&damaged[..30_000_000], 10);
    assert_eq!(
        restored(&mut client, "x", &payload, &[]),
        "-ERR the payload has 30000010 bytes: one that is no plain string may have 8388608 with \
         this max-memory"
    );
    // Its script wants to see it.
    let most = "return #redis.call('DUMP', KEYS[1])";
    let short = &text[..3_000_000];
    client.call::<&[u8]>(&[b"SET", b"shorter", short]);
    assert_eq!(
        show(&client.call(&["EVAL", most, "1", "shorter"])),
        ":3000016"
    );
    client.check(&[("DBSIZE", ":3")]);
}

/// What is too long for memory as it comes, and no string in chunks.
#[test]
fn long_payloads_of_other_kinds_are_read_into_memory() {
    let server = Fixture::new();
    let mut client = server.client();
    let mut content = b"\x01\x80".to_vec();
    content.extend(40_u32.to_be_bytes());
    for n in 0..40_u8 {
        content.push(0x80);
        content.extend(100_000_u32.to_be_bytes());
        content.extend([n; 100_000]);
    }
    assert_eq!(restored(&mut client, "l", &sealed(&content, 9), &[]), "+OK");
    let last = show(&Answer::Bulk(vec![39; 100_000]));
    client.check(&[("LLEN l", ":40"), ("LINDEX l 39", &last)]);
    content[1] = 0x81;
    let bad = "-ERR Bad data format";
    assert_eq!(restored(&mut client, "m", &sealed(&content, 9), &[]), bad);
    // Three bytes of LZF are 264.
    let mut packed = b"\x00\xc3\x80".to_vec();
    packed.extend(300_002_u32.to_be_bytes());
    packed.push(0x80);
    packed.extend((100_000_u32 * 264 + 1).to_be_bytes());
    packed.extend(b"\0a");
    (0..100_000).for_each(|_| packed.extend(b"\xe0\xff\0"));
    assert_eq!(
        restored(&mut client, "m", &sealed(&packed, 9), &[]),
        "-ERR the value of the payload takes more than 8388608 bytes of memory when it is \
         expanded: more max-memory would make room"
    );
    client.check(&[("EXISTS m", ":0")]);
}

#[test]
fn fields_keep_their_deadlines() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("HSET h a 1 b 2 c 3", ":3"),
        ("HPEXPIREAT h 9999999999999 FIELDS 1 a", "[:1]"),
        ("HPEXPIREAT h 9999999990000 FIELDS 1 b", "[:1]"),
    ]);
    let payload = dumped(&mut client, "h");
    // Only versions that know deadlines of fields take it.
    assert_eq!(payload[payload.len() - 10..payload.len() - 8], [12, 0]);
    assert_eq!(restored(&mut client, "i", &payload, &[]), "+OK");
    client.check(&[
        (
            "HPEXPIRETIME i FIELDS 3 a b c",
            "[:9999999999999 :9999999990000 :-1]",
        ),
        ("HGETALL i", "[\"a\" \"1\" \"b\" \"2\" \"c\" \"3\"]"),
        ("HPERSIST h FIELDS 2 a b", "[:1 :1]"),
    ]);
    let payload = dumped(&mut client, "h");
    assert_eq!(payload[payload.len() - 10..payload.len() - 8], [10, 0]);
    // As Redis 7.4 writes a short one: a listpack of fields, values and deadlines; the first one
    // has expired.
    let mut content = vec![25];
    content.extend(1_u64.to_le_bytes());
    content.extend(b"\x21\x21\0\0\0\x06\0\x81a\x02\x01\x01\x01\x01\x81b\x02\x02\x01");
    content.extend(b"\xf4\xff\x9f\xca\x17\x72\x08\0\0\x09\xff");
    let length = u8::try_from(content.len() - 10).unwrap();
    content[9] = length;
    content[10] = length;
    assert_eq!(
        restored(&mut client, "j", &sealed(&content, 12), &[]),
        "+OK"
    );
    client.check(&[
        ("HGETALL j", "[\"b\" \"2\"]"),
        ("HPEXPIRETIME j FIELDS 2 a b", "[:-2 :9286118449151]"),
    ]);
}

#[test]
fn a_hash_whose_fields_have_expired_is_no_key() {
    let server = Fixture::new();
    let mut client = server.client();
    let mut content = vec![24];
    content.extend(1_u64.to_le_bytes());
    content.extend(b"\x01\x01\x01f\x01v");
    client.check(&[("SET k v", "+OK")]);
    let payload = sealed(&content, 12);
    assert_eq!(restored(&mut client, "none", &payload, &[]), "+OK");
    assert_eq!(restored(&mut client, "k", &payload, &[b"REPLACE"]), "+OK");
    client.check(&[("EXISTS none k", ":0")]);
}

#[test]
fn times_to_live_count_from_now_or_are_deadlines() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("SET k v", "+OK"),
        ("EXPIRE k 1000", ":1"),
        ("RPUSH l a", ":1"),
    ]);
    let (k, l) = (dumped(&mut client, "k"), dumped(&mut client, "l"));
    let mut restore = |key: &[u8], ttl: &[u8], payload: &[u8], rest: &[u8]| {
        let mut command = vec![b"RESTORE", key, ttl, payload];
        command.extend(
            rest.split(|byte| *byte == b' ')
                .filter(|word| !word.is_empty()),
        );
        show(&client.call(&command))
    };
    assert_eq!(restore(b"k2", b"0", &k, b""), "+OK");
    assert_eq!(restore(b"k3", b"100000000", &k, b"idletime 5"), "+OK");
    assert_eq!(
        restore(b"l3", b"9999999999999", &l, b"ABSTTL FREQ 255"),
        "+OK"
    );
    assert_eq!(restore(b"l4", b"1", &l, b"absttl"), "+OK");
    assert_eq!(
        restore(b"l", b"1", &k, b"absttl"),
        "-BUSYKEY Target key name already exists."
    );
    assert_eq!(restore(b"l", b"1", &k, b"absttl replace"), "+OK");
    assert_eq!(
        restore(b"n", b"-1", &k, b""),
        "-ERR Invalid TTL value, must be >= 0"
    );
    assert_eq!(
        restore(b"n", b"9223372036854775807", &k, b""),
        "-ERR Invalid TTL value, must be >= 0"
    );
    assert_eq!(
        restore(b"n", b"0", &k, b"freq 5 idletime 5"),
        "-ERR syntax error"
    );
    client.check(&[
        ("TTL k2", ":-1"),
        ("TTL k3", ":100000"),
        ("PEXPIRETIME l3", ":9999999999999"),
        ("EXISTS l l4 n", ":0"),
    ]);
    thread::sleep(Duration::from_millis(1));
    assert_eq!(restored(&mut client, "soon", &k, &[]), "+OK");
    client.check(&[("PEXPIRE soon 1", ":1")]);
}

#[test]
fn others_hear_of_a_restored_key() {
    let server = Fixture::new();
    let (mut client, mut waiter) = (server.client(), server.client());
    let (mut reader, mut events) = (server.client(), server.client());
    client.check(&[
        ("CONFIG SET notify-keyspace-events KEA", "+OK"),
        ("RPUSH l a b", ":2"),
        ("XADD x 5-5 f v", "\"5-5\""),
        ("SET w 1", "+OK"),
    ]);
    let (l, x) = (dumped(&mut client, "l"), dumped(&mut client, "x"));
    events.check(&[(
        "PSUBSCRIBE __keyevent*__:*",
        "[\"psubscribe\" \"__keyevent*__:*\" :1]",
    )]);
    waiter.send(b"BLPOP queue 0\r\n");
    reader.send(b"XREAD BLOCK 0 STREAMS log 0\r\n");
    while !client
        .text("INFO clients")
        .contains("blocked_clients:2\r\n")
    {
        thread::sleep(Duration::from_millis(5));
    }
    let mut watcher = server.client();
    watcher.check(&[("WATCH w", "+OK"), ("MULTI", "+OK"), ("PING", "+QUEUED")]);
    assert_eq!(restored(&mut client, "queue", &l, &[]), "+OK");
    assert_eq!(show(&waiter.answer()), "[\"queue\" \"a\"]");
    assert_eq!(restored(&mut client, "log", &x, &[]), "+OK");
    assert_eq!(
        show(&reader.answer()),
        "[[\"log\" [[\"5-5\" [\"f\" \"v\"]]]]]"
    );
    assert_eq!(restored(&mut client, "w", &l, &[b"REPLACE"]), "+OK");
    watcher.check(&[("EXEC", "nil")]);
    client.check(&[("LRANGE w 0 -1", "[\"a\" \"b\"]"), ("LLEN queue", ":1")]);
    let pattern = "\"pmessage\" \"__keyevent*__:*\"";
    for (event, key) in [
        ("restore", "queue"),
        ("lpop", "queue"),
        ("restore", "log"),
        ("restore", "w"),
    ] {
        let shown = format!("[{pattern} \"__keyevent@0__:{event}\" \"{key}\"]");
        assert_eq!(show(&events.answer()), shown);
    }
}

#[test]
fn a_transaction_of_pando_begin_restores_too() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    fill(&mut client, 1_000);
    for n in 1..700 {
        client.call(&["XADD", "x", &format!("{n}-1"), "f", "v"]);
    }
    let (l, x) = (dumped(&mut client, "l"), dumped(&mut client, "x"));
    client.check(&[("PANDO BEGIN", "+OK")]);
    assert_eq!(restored(&mut client, "l2", &l, &[]), "+OK");
    assert_eq!(restored(&mut client, "x2", &x, &[]), "+OK");
    assert_eq!(dumped(&mut client, "l2"), l);
    client.check(&[
        ("LLEN l2", ":1000"),
        ("PANDO COMMIT", "+OK"),
        ("XLEN x2", ":699"),
    ]);
    assert_eq!(dumped(&mut client, "x2"), x);
}

/// Each payload is damaged in each of its bytes, with a sum that is right.
#[test]
fn damaged_payloads_are_refused_or_are_values() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("RPUSH l a 1", ":2"),
        ("SADD s a 1", ":2"),
        ("ZADD z 1.5 a", ":1"),
        ("HSET h f v", ":1"),
        ("HPEXPIREAT h 9999999999999 FIELDS 1 f", "[:1]"),
        ("SET t text", "+OK"),
        ("XADD x 1-1 f v", "\"1-1\""),
        ("XGROUP CREATE x g 0", "+OK"),
    ]);
    client.run("XREADGROUP GROUP g c STREAMS x >");
    for key in ["l", "s", "z", "h", "t", "x"] {
        let payload = dumped(&mut client, key);
        let content = &payload[..payload.len() - 10];
        for place in 0..content.len() {
            for byte in [
                0,
                1,
                0x7f,
                0x80,
                0xc3,
                0xff,
                content[place] ^ 1,
                content[place] ^ 0x20,
            ] {
                let mut damaged = content.to_vec();
                damaged[place] = byte;
                let reply = restored(&mut client, "damaged", &sealed(&damaged, 12), &[b"REPLACE"]);
                match &reply[..] {
                    "+OK" => {
                        // It may have expired.
                        let again = client.call(&["DUMP", "damaged"]);
                        let is_value = matches!(again, Answer::Bulk(_) | Answer::Null);
                        assert!(is_value, "{damaged:?}");
                    }
                    "-ERR Bad data format" => {}
                    other => assert!(
                        other.starts_with("-ERR the value of the payload takes more"),
                        "{damaged:?}: {other}"
                    ),
                }
            }
        }
        for end in 0..content.len() {
            let cut = restored(&mut client, "cut", &sealed(&content[..end], 12), &[]);
            assert_eq!(cut, "-ERR Bad data format", "{key} {end}");
        }
    }
    // Elements that are there twice, none at all, a score that is no number, kinds that are not
    // there: modules, and those of release candidates.
    for content in [
        &b"\x02\x02\x01a\x01a"[..],
        b"\x04\x02\x01f\x01v\x01f\x01w",
        b"\x05\x02\x01a\0\0\0\0\0\0\xf0\x3f\x01a\0\0\0\0\0\0\0\0",
        b"\x01\0",
        b"\x02\0",
        b"\x05\x01\x01a\0\0\0\0\0\0\xf8\x7f",
        b"\x03\x01\x01a\xfd",
        b"\x06\0",
        b"\x07\0",
        b"\x16\0",
        b"\x17\0",
        b"\x1a\0",
        b"\xf5\0",
        b"",
    ] {
        let reply = restored(&mut client, "bad", &sealed(content, 12), &[]);
        assert_eq!(reply, "-ERR Bad data format", "{content:?}");
    }
    client.check(&[("EXISTS bad cut", ":0")]);
}
