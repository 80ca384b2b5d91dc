//! PANDO PROFILE: commands report where they spent their time.

use std::collections::BTreeMap;

use pando_server::ServerOptions;

use crate::client::{Client, show};
use crate::fixture::{Fixture, open_on_disk, open_small, options};

/// Returns the profile of the last command, with its fields as text.
fn last(client: &mut Client) -> BTreeMap<String, String> {
    let pando_resp::Answer::Array(fields) = client.call(&["PANDO", "PROFILE", "GET"]) else {
        panic!("PANDO PROFILE GET replies pairs");
    };
    let pairs = fields.chunks(2);
    let text = |of: &pando_resp::Answer| show(of).trim_matches('"').to_owned();
    pairs.map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

#[test]
fn a_durable_write_shows_its_commit_and_the_wait_for_the_log() {
    let server = Fixture::opened_by(options(), open_on_disk);
    let mut client = server.client();
    client.check(&[
        (
            "PANDO PROFILE GET",
            "-ERR profiles are off on this connection: PANDO PROFILE ON",
        ),
        ("PANDO PROFILE ON", "+OK"),
        ("PANDO PROFILE GET", "[]"),
        ("PANDO PROFILE LOUD", "-ERR syntax error"),
        ("SET key value", "+OK"),
    ]);
    let profile = last(&mut client);
    assert_eq!(profile["command"], "set");
    assert!(
        profile["waits"].contains("\"durable\" [:1 :"),
        "{profile:?}"
    );
    for step in ["prepare", "lock", "check", "append", "apply"] {
        let part = format!("\"{step}\" [:1 :");
        assert!(profile["commit"].contains(&part), "{step}: {profile:?}");
    }
    // One run is the command, and the other one is its commit.
    assert_eq!(profile["runs"], ":2", "{profile:?}");
    client.check(&[("GET key", "\"value\"")]);
    let profile = last(&mut client);
    assert_eq!((&*profile["command"], &*profile["runs"]), ("get", ":1"));
    assert_eq!((&*profile["waits"], &*profile["commit"]), ("[]", "[]"));
    client.check(&[
        ("CONFIG GET save", "[\"save\" \"\"]"),
        ("PANDO PROFILE OFF", "+OK"),
        (
            "PANDO PROFILE GET",
            "-ERR profiles are off on this connection: PANDO PROFILE ON",
        ),
    ]);
}

#[test]
fn a_read_from_disk_shows_the_pages_that_it_waited_for() {
    let options = ServerOptions {
        durability: pando_server::Durability::None,
        ..options()
    };
    let server = Fixture::opened_by(options, open_small);
    let mut client = server.client();
    let value = "v".repeat(900);
    for number in 0..2000 {
        client.call(&["SET", &format!("key:{number}"), &value]);
    }
    client.check(&[("PANDO PROFILE ON", "+OK")]);
    let mut seen = false;
    for number in 0..2000 {
        client.call(&["GET", &format!("key:{number}")]);
        let profile = last(&mut client);
        let waits = &profile["waits"];
        let Some((_, rest)) = waits.split_once("\"page\" [:") else {
            assert_eq!(profile["runs"], ":1", "{profile:?}");
            continue;
        };
        seen = true;
        let (count, rest) = rest.split_once(" :").unwrap();
        let (us, _) = rest.split_once(']').unwrap();
        let number = |text: &str| text.trim_start_matches(':').parse::<u64>().unwrap();
        assert!(number(count) >= 1 && number(&profile["runs"]) > number(count));
        let elapsed = number(&profile["elapsed_us"]);
        assert!(number(us) <= elapsed, "{profile:?}");
    }
    assert!(seen, "nothing had to be read");
}
