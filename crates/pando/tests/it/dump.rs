//! Tests of `pando dump` and `pando load`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pando_resp::Answer;
use pando_sync::thread;
use pando_sync::time::Duration;
use serde_json::Value;

use crate::running::{Running, pando};
use crate::tools::{damage_leaf, store};

/// Runs the program with `input` as its standard input.
fn run(here: &Path, arguments: &[&str], input: &[u8]) -> (i32, Vec<u8>, String) {
    let mut child = pando(here)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = thread::scope(|scope| {
        // It may end before it has read all.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    });
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), output.stdout, err)
}

/// Starts a server in `here/name`.
fn serve(here: &Path, name: &str) -> Running {
    Running::start(here, &["--dir", name])
}

/// Makes a store with something of every type, some of it large, in `here/store`.
fn fill(here: &Path) {
    assert!(filled(here).stop("INT").success());
}

/// As [`fill`]; returns the server, which still runs.
fn filled(here: &Path) -> Running {
    let server = serve(here, "store");
    let mut client = server.client();
    let large = "x".repeat(6 << 20);
    let function = "#!lua name=lib\nredis.register_function('seven', function() return 7 end)";
    for command in [
        &["SET", "text", "one\r\n\u{e9}"][..],
        &["SET", "large", &large],
        &["SETEX", "soon", "1000", "gone"],
        &["APPEND", "large", "end"],
        &["RPUSH", "list", "a", "b", "c"],
        &["XADD", "stream", "1-1", "field", "value"],
        &["XGROUP", "CREATE", "stream", "group", "0"],
        &[
            "XREADGROUP",
            "GROUP",
            "group",
            "me",
            "STREAMS",
            "stream",
            ">",
        ],
        &["PFADD", "distinct", "a", "b"],
        &["FUNCTION", "LOAD", function],
        &["SELECT", "3"],
        &["SET", "elsewhere", "3"],
        &["SELECT", "0"],
    ] {
        let answer = client.call(command).unwrap();
        assert!(!matches!(answer, Answer::Error(_)), "{command:?}");
    }
    for number in 0..2000 {
        let element = format!("element {number}");
        client.call(&["SADD", "set", &element]).unwrap();
        client.call(&["HSET", "hash", &element, &element]).unwrap();
        client
            .call(&["ZADD", "sorted", &number.to_string(), &element])
            .unwrap();
    }
    server
}

/// The bytes of all files in `directory`.
fn files_of(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for path in [directory.to_owned(), directory.join("log")] {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                files.insert(path.clone(), fs::read(path).unwrap());
            }
        }
    }
    files
}

/// As it is found on a snapshot of a file system, which the dump must not change.
#[test]
fn the_store_of_a_killed_server_is_dumped_and_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let server = filled(here);
    let dump = ["dump", "store", "--read-only"];
    let (code, _, err) = run(here, &dump, b"");
    assert!(code == 2 && err.contains("in use"), "{code} {err}");
    server.stop("KILL");
    let store = here.join("store");
    let before = files_of(&store);
    assert!(before.len() > 5, "{:?}", before.keys());
    let (code, text, err) = run(here, &dump, b"");
    assert!(code == 0 && err.contains("34 tables with"), "{code} {err}");
    assert!(files_of(&store) == before);
    let (code, recovered, err) = run(here, &["dump", "store"], b"");
    assert_eq!(code, 0, "{err}");
    assert!(text == recovered, "one that has changed it has the same");
    assert!(files_of(&store) != before);
}

#[test]
fn a_server_goes_on_with_what_was_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fill(here);
    let (code, text, err) = run(here, &["dump", "store"], b"");
    assert!(code == 0 && err.contains("34 tables with"), "{code} {err}");
    let (code, out, err) = run(here, &["load", "new/copy", "--json"], &text);
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(report["tables"].as_array().unwrap().len(), 34);
    let (code, _, err) = run(here, &["verify", "new/copy", "--rows"], b"");
    assert_eq!(code, 0, "{err}");
    let server = serve(here, "new/copy");
    let mut client = server.client();
    for (command, expected) in [
        (&["GET", "text"][..], "one\r\n\u{e9}"),
        (&["GETRANGE", "large", "6291450", "-1"], "xxxxxxend"),
        (&["STRLEN", "large"], "6291459"),
        (&["LINDEX", "list", "1"], "b"),
        (&["LLEN", "list"], "3"),
        (&["HGET", "hash", "element 1999"], "element 1999"),
        (&["SISMEMBER", "set", "element 1234"], "1"),
        (&["SCARD", "set"], "2000"),
        (&["ZRANK", "sorted", "element 1500"], "1500"),
        (&["PFCOUNT", "distinct"], "2"),
        (&["FCALL", "seven", "0"], "7"),
        (&["DBSIZE"], "9"),
    ] {
        let answer = match client.call(command).unwrap() {
            Answer::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
            Answer::Integer(number) => number.to_string(),
            other => panic!("{command:?}: {other:?}"),
        };
        assert_eq!(answer, expected, "{command:?}");
    }
    let pending = client.call(&["XPENDING", "stream", "group"]).unwrap();
    let Answer::Array(pending) = pending else {
        panic!("{pending:?}");
    };
    let first = Answer::Bulk(b"1-1".to_vec());
    assert_eq!(pending[..2], [Answer::Integer(1), first]);
    assert!(server.stop("INT").success());
}

/// A half one is neither served nor looked at, and another load makes it whole.
#[test]
fn a_load_that_was_killed_is_no_store() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    store(here);
    let (code, text, err) = run(here, &["dump", "store", "-o", "-"], b"");
    assert!(
        code == 0 && err.contains("1 tables with 3000 rows"),
        "{err}"
    );
    // It waits for more when it is killed.
    let mut child = pando(here)
        .args(["load", "copy"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&text[..text.len() - 20]).unwrap();
    while !here.join("copy/superblock").exists() {
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for tool in [
        &[
            "serve",
            "--dir=copy",
            "--listen=127.0.0.1:0",
            "--log-level=off",
        ][..],
        &["stat", "copy"],
        &["verify", "copy"],
        &["compact", "copy"],
        &["dump", "copy"],
        &["salvage", "copy", "new"],
    ] {
        let (code, _, err) = run(here, tool, b"");
        assert!(
            code == 1 && err.contains("load it again"),
            "{tool:?}: {err}"
        );
    }
    let cut_off = &text[..text.len() - 1];
    let (code, _, err) = run(here, &["load", "copy"], cut_off);
    assert!(
        code == 3 && err.contains("no store is made in copy"),
        "{err}"
    );
    let (code, out, err) = run(here, &["load", "copy"], &text);
    let out = String::from_utf8(out).unwrap();
    assert!(
        code == 0 && out.contains("table 'bench': 3000 rows"),
        "{err}"
    );
    let (code, again, _) = run(here, &["dump", "copy"], b"");
    let rows = |text: &[u8]| text[text.len() - 100_000..].to_vec();
    assert!(code == 0 && rows(&again) == rows(&text));
    let (code, _, err) = run(here, &["load", "copy"], &text);
    assert!(
        code == 1 && err.contains("into an empty directory"),
        "{err}"
    );
}

/// A file is replaced by a whole dump, or not at all.
#[test]
fn a_file_is_replaced_by_a_whole_dump() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    store(here);
    let file = here.join("file");
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let dump = ["dump", "store", "--output", "file", "--json"];
    let (code, out, err) = run(here, &dump, b"");
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(report["rows"], 3000, "{report}");
    let whole = fs::read(&file).unwrap();
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o640
    );
    let (code, _, err) = run(here, &["load", "copy", "file", "--compression=lz4"], b"");
    assert_eq!(code, 0, "{err}");
    let (_, out, _) = run(here, &["stat", "copy", "--json"], b"");
    let stat: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(stat["compression"], "lz4");
    // A page that cannot be read ends the dump.
    damage_leaf(&here.join("store"));
    let (code, _, err) = run(here, &["dump", "store", "--output=file"], b"");
    assert!(code == 3 && err.contains("is damaged"), "{code} {err}");
    assert_eq!(fs::read(&file).unwrap(), whole);
    assert_eq!(fs::read_dir(here).unwrap().count(), 3, "nothing is left");
}

#[test]
fn what_cannot_be_read_or_written_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    store(here);
    let (_, text, _) = run(here, &["dump", "store"], b"");
    fs::create_dir(here.join("full")).unwrap();
    fs::write(here.join("full/file"), "something").unwrap();
    for (arguments, code, what) in [
        (&["dump", "nothing"][..], 1, "nothing does not exist"),
        (&["dump", "full"], 1, "full: holds 'file'"),
        (
            &["dump", "store", "--output=no/file"],
            4,
            "no/file: No such file",
        ),
        (
            &["dump", "store", "--output=/dev/full"],
            4,
            "no space is left",
        ),
        (&["dump", "store", "--json"], 1, "--output FILE"),
        (&["dump", "store", "--json", "-o-"], 1, "--output FILE"),
        (&["load", "copy", "nothing"], 1, "nothing: No such file"),
        (&["load", "full"], 1, "full: holds 'file'"),
        (&["load", "full/file"], 4, "full/file"),
        (&["load", "copy", "--max-memory=1m"], 1, "at least"),
    ] {
        let (was, _, err) = run(here, arguments, &text);
        assert!(
            was == code && err.contains(what),
            "{arguments:?}: {was} {err}"
        );
    }
    assert!(!here.join("full/LOCK").exists(), "it was refused");
    let (code, _, err) = run(here, &["load", "copy"], b"SET key value\r\n");
    assert!(code == 3 && err.contains("it is no dump"), "{err}");
    assert!(!here.join("copy").exists(), "nothing is made");
    let server = serve(here, "store");
    let (code, _, err) = run(here, &["dump", "store"], b"");
    assert!(code == 2 && err.contains("in use"), "{err}");
    assert!(err.contains("PANDO DUMP"), "{err}");
    drop(server);
}

/// A limit of the length of files is an error of the write, and not the end by a signal.
#[test]
fn a_load_whose_files_may_not_be_so_long_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    store(here);
    let (_, text, _) = run(here, &["dump", "store"], b"");
    fs::write(here.join("text"), text).unwrap();
    let mut limited = Command::new("sh");
    limited.current_dir(here).arg("-c");
    limited.arg("ulimit -f 64; exec \"$0\" load copy text --max-memory=16m");
    let output = limited.arg(env!("CARGO_BIN_EXE_pando")).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{} {err}", output.status);
    assert!(err.contains("files may not be so long"), "{err}");
}
