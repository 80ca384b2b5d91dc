//! Errors in a command line, a file or the environment are reported with exit code 1.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

use crate::running::pando;

fn check(command: &mut Command, code: i32, part: &str) {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(code), "{command:?}\n{text}{out}");
    assert!(
        text.contains(part) || (code == 0 && out.contains(part)),
        "{command:?}\n{text}{out}"
    );
}

#[test]
fn help_and_version_are_there_at_every_level() {
    let here = Path::new(".");
    for words in [
        &[][..],
        &["serve"],
        &["stat"],
        &["verify"],
        &["top"],
        &["bench"],
        &["bench", "device"],
        &["bench", "pool"],
        &["bench", "kv"],
        &["bench", "resp"],
        &["bench", "iso"],
        &["bench", "report"],
        &["bench", "ablation"],
    ] {
        check(pando(here).args(words).arg("--help"), 0, "Usage: pando");
        check(
            pando(here).args(words).arg("--version"),
            0,
            env!("CARGO_PKG_VERSION"),
        );
    }
}

#[test]
fn an_address_that_is_given_twice_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let twice = "127.0.0.1:16379 is given twice";
    let words = ["--listen=127.0.0.1:16379"; 2];
    check(pando(here).args(words), 1, twice);
    let words = [
        "--listen=127.0.0.1:16379",
        "--metrics-listen=127.0.0.1:16379",
    ];
    check(pando(here).args(words), 1, twice);
    let words = ["--listen=127.0.0.1:16379", "--listen=0.0.0.0:16379"];
    check(pando(here).args(words), 1, "overlap");
}

#[test]
fn wrong_flags_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    check(pando(here).arg("--max-memroy=1g"), 1, "--max-memory");
    check(pando(here).arg("--max-memory=1m"), 1, "at least 16.0 MiB");
    check(pando(here).arg("--io-backend=uring?"), 1, "uring?");
    check(pando(here).arg("--io-backend=memory"), 1, "libaio, pread,");
    check(pando(here).arg("--durability=sometimes"), 1, "--durability");
    check(pando(here).arg("--listen=nowhere"), 1, "--listen");
    check(pando(here).arg("srve"), 1, "serve");
    check(
        pando(here).args(["--config", "absent.toml"]),
        1,
        "absent.toml",
    );
    check(pando(here).arg("stat"), 1, "<DIR>");
    check(pando(here).args(["stat", "absent"]), 1, "does not exist");
    for (words, why) in [
        (&["recovery", "--log-size", "1k"][..], "--log-size"),
        (&["disk"], "is no layer"),
        (&["ablation", "throttel"], "is no ablation"),
        (&["alloc", "--size", "1g"], "--size"),
    ] {
        check(pando(here).arg("bench").args(words), 1, why);
    }
    check(
        pando(here).args(["bench", "device", "--block-size", "1000"]),
        1,
        "--block-size",
    );
    check(
        pando(here).args(["bench", "pool", "--size", "1m"]),
        1,
        "--size",
    );
    check(
        pando(here).args(["bench", "resp", "--port", "1", "--dir", "x"]),
        1,
        "--dir",
    );
    check(
        pando(here).args(["bench", "kv", "--value-size", "4-64"]),
        1,
        "--value-size",
    );
    check(
        pando(here).args(["bench", "iso", "--threads", "1,0"]),
        1,
        "--threads",
    );
    check(
        pando(here).args(["bench", "kv", "--workloads", "fil"]),
        1,
        "is no workload",
    );
    check(
        pando(here).args(["bench", "kv", "--io-backend", "null"]),
        1,
        "--io-backend: null",
    );
    check(
        pando(here).args(["bench", "kv", "--compression", "zip"]),
        1,
        "--compression",
    );
    assert_eq!(fs::read_dir(here).unwrap().count(), 0, "nothing was made");
}

#[test]
fn page_and_block_sizes_that_are_not_there_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let serve = |flag: &str| {
        let mut command = pando(directory.path());
        command.args(["--listen=127.0.0.1:0", "--max-memory=16m", flag]);
        command
    };
    check(&mut serve("--page-size=5000"), 1, "--page-size");
    check(&mut serve("--block-size=8k"), 1, "--block-size");
}

#[test]
fn wrong_files_and_variables_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    check(pando(here).env("PANDO_THREADS", "none"), 1, "PANDO_THREADS");
    check(
        pando(here).env("PANDO_MAX_MEMRY", "1g"),
        1,
        "PANDO_MAX_MEMORY",
    );
    // A password in Latin-1. Whoever leaves it out finds the wrong number next.
    let password = OsStr::from_bytes(b"p\xe4ss");
    let mut latin = pando(here);
    latin
        .env("PANDO_REQUIREPASS", password)
        .env("PANDO_THREADS", "none");
    check(&mut latin, 1, "PANDO_REQUIREPASS: the value is not UTF-8");
    latin
        .env_remove("PANDO_REQUIREPASS")
        .env("PANDO_SEEDS", password);
    check(&mut latin, 1, "PANDO_THREADS");
    fs::write(here.join("pando.toml"), "max_memroy = '1g'\n").unwrap();
    check(&mut pando(here), 1, "nearest is 'max_memory'");
    fs::write(here.join("other.toml"), "threads = 'x'\n").unwrap();
    check(
        pando(here).args(["--config", "other.toml"]),
        1,
        "threads in other.toml",
    );
}

#[test]
fn a_directory_of_somebody_else_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("letter.txt"), "dear").unwrap();
    let mut command = pando(directory.path());
    command.args(["--dir=.", "--listen=127.0.0.1:0", "--max-memory=16m"]);
    check(&mut command, 1, "letter.txt");
    assert_eq!(
        fs::read_dir(directory.path())
            .unwrap()
            .filter(|file| { file.as_ref().unwrap().file_name() == "letter.txt" })
            .count(),
        1
    );
}
