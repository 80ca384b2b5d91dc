//! Runs the program as people do: with a process for each engine and with records in a file.

use std::path::Path;
use std::process::{Command, Output};

use pando_peers::ENGINES;
use serde_json::Value;

fn peers(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pando-peers"))
        .args(arguments)
        .output()
        .unwrap()
}

fn records(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn rounds_alternate_between_engines_and_each_turn_is_a_record() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.jsonl");
    let output = peers(&[
        "--workloads",
        "fillseq,readrandom,readwhilewriting",
        "--num",
        "500",
        "--max-memory",
        "64m",
        "--threads",
        "1,2",
        "--rounds",
        "2",
        "--json",
        json.to_str().unwrap(),
    ]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let engines: Vec<_> = ENGINES
        .iter()
        .filter(|kind| kind.is_built())
        .map(|kind| kind.name)
        .collect();
    let records = records(&json);
    assert_eq!(records.len(), engines.len() * (1 + 2 * 2 * 2));
    for (at, record) in records.iter().enumerate() {
        let turn = at / engines.len();
        let first = if turn >= 5 { 1 } else { 0 };
        assert_eq!(record["engine"], engines[(at + first) % engines.len()]);
        assert_eq!(record["round"], first + 1);
        let workload = match turn {
            0 => "fillseq",
            1 | 2 | 5 | 6 => "readrandom",
            _ => "readwhilewriting",
        };
        assert_eq!(record["workload"], workload);
        let threads = if turn == 0 || turn % 2 == 1 { 1 } else { 2 };
        assert_eq!(record["threads"], threads, "{record}");
        assert_eq!(record["max_memory"], 64 << 20);
        assert!(record["settings"]["version"].is_string());
        assert_eq!(record["settle_s"].is_number(), turn == 0);
        assert!(record.get("without_goal").is_none());
    }
}

/// An engine that relies on the page cache and runs outside of a control group gets a record that
/// says why it has no goal.
#[test]
fn what_leans_on_the_page_cache_and_is_not_held_has_no_goal() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.jsonl");
    let leaning = ENGINES
        .iter()
        .find(|kind| kind.is_built() && kind.leans_on_page_cache);
    let Some(kind) = leaning else {
        return;
    };
    let engines = format!("pandodb,{}", kind.name);
    let output = peers(&[
        "--engines",
        &engines,
        "--workloads",
        "readrandom",
        "--num",
        "20000",
        "--value-size",
        "1000",
        "--duration",
        "100ms",
        "--max-memory",
        "16m",
        "--cgroup",
        dir.path().to_str().unwrap(),
        "--json",
        json.to_str().unwrap(),
    ]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("without a goal"), "{text}");
    let records = records(&json);
    assert!(records[0].get("without_goal").is_none());
    let why = records[1]["without_goal"].as_str().unwrap();
    assert!(why.contains("is no control group"), "{why}");
}

#[test]
fn an_engine_that_fails_is_left_out_and_the_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let broken = ENGINES
        .iter()
        .filter(|kind| kind.is_built())
        .nth(1)
        .map_or("pandodb", |kind| kind.name);
    std::fs::create_dir(dir.path().join(broken)).unwrap();
    std::fs::write(dir.path().join(broken).join("x"), "x").unwrap();
    let json = dir.path().join("out.jsonl");
    let output = peers(&[
        "--dir",
        dir.path().to_str().unwrap(),
        "--workloads",
        "fillseq",
        "--num",
        "100",
        "--max-memory",
        "64m",
        "--json",
        json.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(4));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("is not empty"), "{text}");
    let built = ENGINES.iter().filter(|kind| kind.is_built()).count();
    assert_eq!(records(&json).len(), built - 1);
    // A directory that the user named is kept.
    assert!(broken == "pandodb" || dir.path().join("pandodb/superblock").exists());
}

#[test]
fn options_that_make_no_sense_are_refused_with_code_1() {
    for arguments in [
        &["--engines", "leveldb"][..],
        &["--workloads", "fillsec"],
        &["--workloads", "deleterandom"],
        &["--num", "0"],
        &["--threads", "0"],
        &["--nonsense"],
        &["--max-memory", "1x"],
    ] {
        let output = peers(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
    assert!(peers(&["--help"]).status.success());
}
