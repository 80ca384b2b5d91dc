//! Tests of `pando compact`.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::running::{Running, pando};

const MIB: u64 = 1 << 20;

fn run(directory: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = pando(directory).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Makes a store that has lost nine of ten keys. Returns the number of keys left, of 116 bytes
/// each.
fn sparse(directory: &Path) -> u64 {
    let bench = |more: &[&str]| {
        let flags = [
            "bench",
            "kv",
            "--dir=store",
            "--max-memory=64m",
            "--num=300000",
        ];
        let (code, _, err) = run(directory, &[&flags[..], more].concat());
        assert_eq!(code, 0, "{err}");
    };
    bench(&["--workloads=fillrandom"]);
    bench(&["--workloads=deleterandom", "--use-existing-db"]);
    entries(directory)
}

fn entries(directory: &Path) -> u64 {
    let (code, out, err) = run(directory, &["stat", "store", "--json"]);
    assert_eq!(code, 0, "{err}");
    let stat: Value = serde_json::from_str(&out).unwrap();
    stat["tables"][0]["entries"].as_u64().unwrap()
}

fn assert_sound(directory: &Path) {
    let (code, out, err) = run(directory, &["verify", "store"]);
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn a_sparse_store_becomes_small_and_stays_whole() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let left = sparse(here);
    let (code, out, err) = run(here, &["compact", "store", "--json", "--max-memory", "64m"]);
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let after = report["disk_bytes_after"].as_u64().unwrap();
    assert!(after <= left * 116 * 3 / 2 + 16 * MIB, "{left}: {report}");
    assert!(
        report["disk_bytes_before"].as_u64().unwrap() > 2 * after,
        "{report}"
    );
    assert_sound(here);
    assert_eq!(entries(here), left);
    let (code, out, _) = run(here, &["compact", "store"]);
    assert_eq!(code, 0);
    assert!(out.contains("on disk"), "{out}");
}

#[test]
fn a_compaction_that_is_killed_is_begun_again() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let left = sparse(here);
    let mut killed = 0;
    for turn in 0..12_u64 {
        let mut child = pando(here)
            .args(["compact", "store", "--max-memory=16m"])
            .spawn()
            .unwrap();
        pando_sync::thread::sleep(Duration::from_millis(15 * (1 + turn)));
        killed += u32::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_sound(here);
    }
    assert!(killed > 3, "{killed}");
    assert_eq!(entries(here), left);
    let (code, _, err) = run(here, &["compact", "store", "--json"]);
    assert_eq!(code, 0, "{err}");
    assert_sound(here);
    assert_eq!(entries(here), left);
}

#[test]
fn what_is_no_store_or_in_use_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let (code, _, err) = run(here, &["compact", "absent"]);
    assert_eq!(code, 1, "{err}");
    std::fs::create_dir(here.join("empty")).unwrap();
    let (code, _, err) = run(here, &["compact", "empty"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("empty: there is no store in it"), "{err}");
    let left = std::fs::read_dir(here.join("empty")).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name != "LOCK"));
    let (code, _, err) = run(here, &["compact", "empty", "--max-memory=much"]);
    assert_eq!(code, 1, "{err}");
    let running = Running::start(here, &["--dir", "store"]);
    let (code, _, err) = run(here, &["compact", "store"]);
    assert_eq!(code, 2, "{err}");
    drop(running);
}

/// Returns the bytes that are used, the number of pages by how they are stored, and how new ones
/// are.
fn stored(directory: &Path) -> (u64, Vec<(String, u64)>, String) {
    let (code, out, err) = run(directory, &["stat", "store", "--json"]);
    assert_eq!(code, 0, "{err}");
    let stat: Value = serde_json::from_str(&out).unwrap();
    let ways = stat["stored"].as_array().unwrap().iter();
    let way = |one: &Value| {
        let name = one["compression"].as_str().unwrap().to_owned();
        (name, one["pages"].as_u64().unwrap())
    };
    let new = stat["compression"].as_str().unwrap().to_owned();
    let used = stat["used_bytes"].as_u64().unwrap();
    (used, ways.map(way).collect(), new)
}

#[test]
fn the_compression_is_kept_unless_another_one_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let bench = |more: &[&str]| {
        let flags = [
            "bench",
            "kv",
            "--dir=store",
            "--max-memory=64m",
            "--num=40000",
            "--value-compress=0.2",
        ];
        let (code, _, err) = run(here, &[&flags[..], more].concat());
        assert_eq!(code, 0, "{err}");
    };
    bench(&[
        "--workloads=fillrandom",
        "--compression=lz4",
        "--page-size=8k",
        "--block-size=512",
    ]);
    bench(&["--workloads=deleterandom", "--use-existing-db"]);
    let left = entries(here);
    let compact = |more: &[&str]| {
        let (code, _, err) = run(here, &[&["compact", "store"], more].concat());
        assert_eq!(code, 0, "{err}");
        assert_sound(here);
        assert_eq!(entries(here), left);
        stored(here)
    };
    let most = |ways: &[(String, u64)], name: &str| {
        let all: u64 = ways.iter().map(|(_, pages)| pages).sum();
        let own = ways.iter().find(|(way, _)| way == name);
        assert!(
            own.is_some_and(|(_, pages)| pages * 10 > all * 9),
            "{ways:?}"
        );
    };
    let (packed, ways, new) = compact(&[]);
    most(&ways, "lz4");
    assert_eq!(new, "lz4");
    let (plain, ways, new) = compact(&["--compression", "none"]);
    assert_eq!((ways.len(), &*ways[0].0, &*new), (1, "none", "none"));
    let (denser, ways, new) = compact(&["--compression", "zstd:7"]);
    most(&ways, "zstd");
    assert_eq!(new, "zstd:7");
    assert!(
        denser <= packed && packed < plain,
        "{denser} {packed} {plain}"
    );
    let (code, out, _) = run(here, &["stat", "store"]);
    assert!(code == 0 && out.contains("new ones zstd:7"), "{out}");
    let (code, _, err) = run(here, &["compact", "absent", "--compression=lz4"]);
    assert_eq!(code, 1, "{err}");
    let (code, _, err) = run(here, &["compact", "store", "--compression", "zip"]);
    assert!(code == 1 && err.contains("'zip': there are none"), "{err}");
}

/// Pages of one block cannot become smaller: that is said before all of them are written again.
#[test]
fn a_compression_without_effect_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let make = [
        "bench",
        "kv",
        "--dir=store",
        "--max-memory=64m",
        "--num=1000",
    ];
    let (code, _, err) = run(here, &[&make[..], &["--workloads=fillrandom"]].concat());
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = run(here, &["compact", "store", "--compression", "lz4"]);
    assert!(
        code == 1 && err.contains("are one block of 4096 bytes"),
        "{err}"
    );
    assert_eq!(stored(here).2, "none", "the store goes on as before");
    let (code, _, err) = run(here, &["compact", "store", "--compression", "none"]);
    assert_eq!(code, 0, "{err}");
    assert_sound(here);
}
