//! Tests of PANDO DUMP in the program: its file, what `pando load` makes of it, and what is left of
//! it by a process that was killed.

use std::fs;
use std::path::{Path, PathBuf};

use pando_resp::{Answer, Client};
use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::running::{Running, pando};

fn serve(here: &Path, name: &str) -> Running {
    Running::start(here, &["--dir", name, "--durability", "none"])
}

/// Runs a tool, which must succeed.
#[track_caller]
fn run(here: &Path, arguments: &[&str]) {
    let output = pando(here).args(arguments).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {err}");
}

/// Returns a field of INFO persistence.
fn field(client: &mut Client, name: &str) -> Option<String> {
    let Answer::Bulk(info) = client.call(&["INFO", "persistence"]).unwrap() else {
        panic!("no text");
    };
    let info = String::from_utf8(info).unwrap();
    let mut lines = info.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::to_owned)
}

fn start(client: &mut Client) {
    let started = client.call(&["PANDO", "DUMP"]).unwrap();
    assert_eq!(started, Answer::Simple("Background dump started".into()));
}

/// Dumps; returns how that ended.
fn dump(client: &mut Client) -> (String, Option<String>) {
    start(client);
    let began = now();
    while field(client, "dump_in_progress").unwrap() == "1" {
        assert!(
            began.elapsed() < Duration::from_secs(120),
            "it does not end"
        );
        thread::sleep(Duration::from_millis(2));
    }
    let status = field(client, "dump_last_status").unwrap();
    (status, field(client, "dump_last_error"))
}

/// Puts 40 MB, and a key by which a test tells dumps apart.
fn fill(client: &mut Client) {
    for key in 0..400 {
        let value = key.to_string().repeat(100_000 / 3);
        let set = client.call(&["SET", &format!("key {key}"), &value]);
        assert_eq!(set.unwrap(), Answer::Simple("OK".into()));
    }
    client.call(&["SET", "mark", "old"]).unwrap();
}

/// Returns the mark of the store that the dump in `here/store` makes.
fn mark(here: &Path, name: &str) -> Answer {
    run(here, &["load", name, "store/store.dump"]);
    let server = serve(here, name);
    let mut client = server.client();
    assert_eq!(client.call(&["DBSIZE"]).unwrap(), Answer::Integer(401));
    let mark = client.call(&["GET", "mark"]).unwrap();
    assert!(server.stop("TERM").success());
    mark
}

/// Returns where the dump of `here/store` is, and where a half one.
fn files(here: &Path) -> (PathBuf, PathBuf) {
    let store = here.join("store");
    (store.join("store.dump"), store.join("store.dump.half"))
}

#[test]
fn a_server_that_is_killed_leaves_the_dump_from_before() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let (whole, half) = files(here);
    let server = serve(here, "store");
    let mut client = server.client();
    fill(&mut client);
    // It may be done before it is stopped: then once more.
    let text = (0..20).find_map(|_| {
        client.call(&["SET", "mark", "old"]).unwrap();
        assert_eq!(dump(&mut client), ("ok".to_owned(), None));
        let text = fs::read(&whole).unwrap();
        let told = field(&mut client, "dump_file_bytes").unwrap();
        assert_eq!(told, text.len().to_string());
        client.call(&["SET", "mark", "new"]).unwrap();
        client.call(&["SAVE"]).unwrap();
        start(&mut client);
        while fs::metadata(&half).map_or(0, |half| half.len()) < 1 << 20 {
            if field(&mut client, "dump_in_progress").unwrap() == "0" {
                return None;
            }
        }
        server.signal("STOP");
        if half.exists() {
            return Some(text);
        }
        server.signal("CONT");
        None
    });
    let text = text.expect("it was stopped in the middle");
    server.stop("KILL");
    assert!(half.exists());
    assert!(fs::read(&whole).unwrap() == text);
    assert_eq!(mark(here, "one"), Answer::Bulk(b"old".to_vec()));
    // What only reads leaves it; whatever opens the store removes it.
    run(here, &["verify", "store"]);
    assert!(half.exists());
    let server = serve(here, "store");
    assert!(!half.exists());
    let mut client = server.client();
    assert_eq!(
        client.call(&["GET", "mark"]).unwrap(),
        Answer::Bulk(b"new".to_vec())
    );
    assert_eq!(dump(&mut client), ("ok".to_owned(), None));
    assert!(server.stop("TERM").success());
    assert_eq!(mark(here, "two"), Answer::Bulk(b"new".to_vec()));
    run(here, &["verify", "two", "--rows"]);
}

/// Tools take a directory that has dumps, half ones too, as they take any other.
#[test]
fn tools_work_beside_dumps() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let (whole, half) = files(here);
    let server = serve(here, "store");
    let mut client = server.client();
    fill(&mut client);
    assert_eq!(dump(&mut client).0, "ok");
    assert!(server.stop("TERM").success());
    for (tool, removes) in [
        (&["stat", "store"][..], false),
        (&["verify", "store"], false),
        (&["salvage", "store", "salvaged"], false),
        (&["dump", "store", "-o", "text"], true),
        (&["compact", "store"], true),
    ] {
        fs::write(&half, "pando-du").unwrap();
        run(here, tool);
        assert_eq!(half.exists(), !removes, "{tool:?}");
        assert!(whole.exists(), "{tool:?}");
    }
    // The tool and the server write the same rows.
    let rows = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        let from = text.find("\ntable ").unwrap();
        text[from..].to_owned()
    };
    assert!(rows(&whole) == rows(&here.join("text")));
    // A store is loaded into the directory of its dump.
    for entry in fs::read_dir(here.join("store")).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false if path == whole => {}
            false => fs::remove_file(path).unwrap(),
        }
    }
    assert_eq!(mark(here, "store"), Answer::Bulk(b"old".to_vec()));
}

#[test]
fn a_directory_in_the_way_of_a_dump_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let server = serve(here, "store");
    let mut client = server.client();
    for name in ["store.dump", "store.dump.half"] {
        let path = here.join("store").join(name);
        fs::create_dir(&path).unwrap();
        let (status, error) = dump(&mut client);
        let error = error.unwrap();
        assert!(status == "err" && error.contains(name), "{error}");
        assert!(error.contains("move it away"), "{error}");
        let log = server.log();
        assert!(log.iter().any(|line| line.contains("no dump is written")));
        fs::remove_dir(&path).unwrap();
    }
    assert_eq!(dump(&mut client), ("ok".to_owned(), None));
}
