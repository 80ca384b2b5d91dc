//! Tests of `stat`, `verify` and `bench` on directories.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::running::{Running, pando};

/// Makes a store with some entries.
pub(crate) fn store(directory: &Path) {
    let flags = [
        "--workloads=fillrandom",
        "--num=3000",
        "--dir=store",
        "--max-memory=16m",
    ];
    let bench = pando(directory)
        .args(["bench", "kv"])
        .args(flags)
        .output()
        .unwrap();
    assert_eq!(
        bench.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&bench.stderr)
    );
}

/// Flips a bit of a leaf of the store's data; returns the data then.
pub(crate) fn damage_leaf(store: &Path) -> Vec<u8> {
    let path = store.join("data");
    let mut data = fs::read(&path).unwrap();
    let is_leaf = |page: &[u8]| page[8..13] == [16, 0, 0, 0, 1];
    let leaf = data.chunks_exact_mut(4096).rfind(|page| is_leaf(page));
    leaf.unwrap()[3000] ^= 4;
    fs::write(path, &data).unwrap();
    data
}

fn run(directory: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = pando(directory).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn a_sound_store_is_measured_and_verified() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    store(here);
    let (code, out, _) = run(here, &["stat", "store"]);
    assert_eq!(code, 0);
    assert!(out.contains("bench") && out.contains("3000"), "{out}");
    let (code, out, _) = run(here, &["stat", "store", "--json"]);
    let stat: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &stat["tables"][0]["entries"]),
        (0, &Value::from(3000))
    );
    let (code, out, err) = run(here, &["verify", "store"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("No damage found"), "{out}");
    let (code, out, _) = run(here, &["verify", "store", "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["sound"]), (0, &Value::Bool(true)));
}

#[test]
fn rows_of_collections_are_compared_when_asked() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    store(here);
    let (code, out, err) = run(here, &["verify", "store", "--rows"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("0 large collections with 0 rows"), "{out}");
    let (code, out, err) = run(here, &["verify", "store", "--rows", "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(report["sound"], true);
    assert_eq!(report["rows"]["problems"], 0, "{out}");
    let db = pandodb::Db::open(here.join("store")).unwrap();
    let keys = db.table("db/0/keys").unwrap();
    keys.put(b"k", b"\xff is no row").unwrap();
    drop(keys);
    db.close().unwrap();
    let (code, out, err) = run(here, &["verify", "store", "--rows"]);
    assert_eq!(code, 3, "{out}{err}");
    assert!(out.contains("db/0") && err.contains("1 rows"), "{out}{err}");
    let (code, out, _) = run(here, &["verify", "store", "--rows", "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["sound"]), (3, &Value::Bool(true)), "{out}");
    assert_eq!(report["rows"]["problems"], 1, "{out}");
    let (code, _, _) = run(here, &["verify", "store"]);
    assert_eq!(code, 0, "pages and records are sound");
    // A large store needs more memory than there is by default.
    let (code, _, err) = run(here, &["verify", "store", "--rows", "--max-memory", "much"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("--max-memory: 'much' is no size"), "{err}");
    let little = ["verify", "store", "--rows", "--json", "--max-memory", "1m"];
    let (code, out, err) = run(here, &little);
    assert!(code == 1 && err.contains("at least"), "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&report["sound"], &report["rows"]),
        (&Value::Bool(true), &Value::Null)
    );
    let (code, _, err) = run(here, &["verify", "store", "--rows", "--max-memory", "64m"]);
    assert_eq!(code, 3, "{err}");
}

/// Who keeps the report in a file learns that it is not whole.
#[cfg(target_os = "linux")]
#[test]
fn a_report_that_cannot_be_written_is_a_failure() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    store(here);
    let full = fs::File::options().write(true).open("/dev/full");
    let mut stat = pando(here);
    stat.args(["stat", "store", "--json"]).stdout(full.unwrap());
    let output = stat.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{err}");
    assert!(err.contains("standard output: No space left"), "{err}");
}

/// A log file on a full disk is both outputs: nothing can be told, but by the exit code.
#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_error_changes_no_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    store(here);
    for (arguments, code) in [(["stat", "store"], 4), (["stat", "nothing"], 1)] {
        let full = || fs::File::options().write(true).open("/dev/full").unwrap();
        let mut stat = pando(here);
        let status = stat.args(arguments).stdout(full()).stderr(full()).status();
        assert_eq!(status.unwrap().code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn a_store_of_a_newer_format_is_a_matter_of_usage() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    store(here);
    let path = here.join("store/superblock");
    let mut slots = fs::read(&path).unwrap();
    for slot in [0, 4096] {
        slots[slot + 8] = 200;
    }
    fs::write(&path, slots).unwrap();
    for arguments in [
        &["verify", "store"][..],
        &["stat", "store"],
        &["serve", "--dir", "store", "--listen", "127.0.0.1:0"],
    ] {
        let (code, _, err) = run(here, arguments);
        assert_eq!(code, 1, "{arguments:?}: {err}");
        for part in ["version 200", "up to version 3"] {
            assert!(err.contains(part), "{err}");
        }
    }
}

#[test]
fn the_levels_of_a_tree_add_up_to_its_table() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    store(here);
    let (code, out, err) = run(here, &["stat", "store", "--tree", "--json"]);
    assert_eq!(code, 0, "{err}");
    let stat: Value = serde_json::from_str(&out).unwrap();
    let table = &stat["tables"][0];
    let levels = table["tree"].as_array().unwrap();
    assert_eq!(levels.len() as u64, table["levels"].as_u64().unwrap());
    let leaves = &levels[0];
    assert_eq!(leaves["keys"], 3000);
    assert_eq!(leaves["pages"], table["pages"][0]);
    let fill = leaves["fill"].as_array().unwrap();
    let by_fill: u64 = fill.iter().map(|pages| pages.as_u64().unwrap()).sum();
    assert_eq!((fill.len(), &Value::from(by_fill)), (10, &leaves["pages"]));
    // Every node except the root is a child of exactly one node.
    for (below, above) in levels.iter().zip(&levels[1..]) {
        assert_eq!(below["pages"], above["keys"]);
    }
    assert!(
        leaves["prefix_saved_bytes"].as_u64().unwrap() > 3000,
        "{leaves}"
    );
    let (_, out, _) = run(here, &["stat", "store", "--tree"]);
    assert!(
        out.contains("leaves by fill") && out.contains(" 90 to 100 %"),
        "{out}"
    );
    let (_, out, _) = run(here, &["stat", "store", "--json"]);
    assert!(
        !out.contains("keys_min"),
        "the tree is printed without --tree: {out}"
    );
}

#[test]
fn damage_is_found_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    store(here);
    // Flips a byte in the middle of every page of the data file.
    let path = here.join("store/data");
    let mut data = fs::read(&path).unwrap();
    data.iter_mut()
        .skip(2048)
        .step_by(4096)
        .for_each(|byte| *byte ^= 0xff);
    fs::write(&path, data).unwrap();
    let (code, out, err) = run(here, &["verify", "store"]);
    assert_eq!(code, 3, "{out}{err}");
    assert!(out.contains("page") || err.contains("page"), "{out}{err}");
    let (code, out, _) = run(here, &["verify", "store", "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["sound"]), (3, &Value::Bool(false)));
    assert!(!report["damages"].as_array().unwrap().is_empty());
    let (code, _, err) = run(here, &["stat", "store"]);
    assert_eq!(code, 3, "{err}");
}

#[test]
fn one_damaged_page_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    store(here);
    let path = here.join("store/data");
    let sound = fs::read(&path).unwrap();
    // Some blocks hold no page of the checkpoint; damage there has no effect.
    let named = (0..20).any(|tried| {
        let mut data = sound.clone();
        data[(tried + 10) * 4096 + 2048] ^= 0xff;
        fs::write(&path, data).unwrap();
        let (code, out, err) = run(here, &["verify", "store"]);
        assert!(code == 0 || code == 3, "{out}{err}");
        code == 3 && out.contains("page") && err.contains("damage in ")
    });
    assert!(named);
}

#[test]
fn a_missing_store_is_a_matter_of_usage_and_missing_files_are_damage() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    store(here);
    fs::create_dir(here.join("empty")).unwrap();
    let tools = |dir| {
        [
            vec!["stat", dir],
            vec!["verify", dir],
            vec!["verify", "--rows", dir],
            vec!["compact", dir],
            vec!["salvage", dir, "new"],
        ]
    };
    for tool in tools("empty") {
        let (code, out, err) = run(here, &tool);
        assert_eq!((code, &out[..]), (1, ""), "{tool:?} {err}");
        assert_eq!(err, "pando: empty: there is no store in it\n", "{tool:?}");
    }
    for name in ["data", "superblock"] {
        fs::remove_file(here.join("store").join(name)).unwrap();
        for tool in tools("store") {
            let (code, out, err) = run(here, &tool);
            assert_eq!(code, 3, "{tool:?} {out}{err}");
            let what = format!("pando: {name} is damaged: the file is missing");
            assert!(err.contains(&what), "{tool:?} {err}");
        }
        let (_, out, _) = run(here, &["verify", "store", "--json"]);
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(report["sound"], false, "{out}");
    }
    assert!(!here.join("new").exists());
}

#[test]
fn the_store_of_a_server_can_be_looked_at_when_it_has_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &[]);
    server.expect("SET key value", "+OK\r\n");
    server.stop("TERM");
    let (code, out, err) = run(directory.path(), &["verify", "pando-data"]);
    assert_eq!(code, 0, "{out}{err}");
    let (_, out, _) = run(directory.path(), &["stat", "pando-data", "--json"]);
    let stat: Value = serde_json::from_str(&out).unwrap();
    let tables = stat["tables"].as_array().unwrap();
    let keys = tables
        .iter()
        .find(|table| table["name"] == "db/0/keys")
        .unwrap();
    assert_eq!(keys["entries"], 1);
}

#[test]
fn records_are_lines_of_json_in_the_order_of_the_workloads() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let arguments = [
        "bench",
        "kv",
        "--num=2k",
        "--workloads=fillseq,readrandom,readseq",
        "--json=out.jsonl",
    ];
    // `2k` is a size, and --num is a count.
    assert_eq!(run(here, &arguments).0, 1);
    let arguments: Vec<&str> = arguments
        .iter()
        .map(|word| {
            if *word == "--num=2k" {
                "--num=2000"
            } else {
                word
            }
        })
        .chain(["--cache-size=16m", "--statistics", "--io-backend=memory"])
        .collect();
    let (code, out, err) = run(here, &arguments);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains("fillseq") && out.contains("page_reads"),
        "{out}"
    );
    let text = fs::read_to_string(here.join("out.jsonl")).unwrap();
    let records: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names: Vec<_> = records
        .iter()
        .map(|record| record["workload"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["fillseq", "readrandom", "readseq"]);
    for record in &records {
        for field in [
            "variant",
            "threads",
            "ops_per_s",
            "p50_us",
            "p99_us",
            "p999_us",
            "io_backend",
        ] {
            assert!(!record[field].is_null(), "{field} in {record}");
        }
        assert_eq!(record["max_memory"], 16 << 20);
        assert_eq!(record["io_backend"], "memory");
    }
}

/// Runs a layer with tiny inputs. Returns its records.
fn records(here: &Path, words: &[&str]) -> Vec<Value> {
    let mut arguments = vec!["bench"];
    arguments.extend(words);
    arguments.extend(["--json=records.jsonl", "--html=page.html"]);
    let (code, out, err) = run(here, &arguments);
    assert_eq!(code, 0, "{out}{err}");
    let page = fs::read_to_string(here.join("page.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains(words[0]));
    let text = fs::read_to_string(here.join("records.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

#[test]
fn an_ablation_writes_a_record_for_each_variant() {
    let directory = tempfile::tempdir().unwrap();
    let words = ["ablation", "pending", "--num=2000", "--rounds=1"];
    let words = [
        &words[..],
        &["--size=4m", "--max-memory=2m", "--queue-depth=8"],
    ]
    .concat();
    let records = records(directory.path(), &words);
    let variants: Vec<_> = records.iter().map(|record| &record["variant"]).collect();
    assert_eq!(variants, ["boxed", "pooled", "ours"]);
    assert!(records.iter().all(|record| record["ablation"] == "pending"));
    assert_eq!(records[2]["speed_to_ours"], 1.0);
}

#[test]
fn each_layer_writes_records() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let device = ["device", "--size=1m", "--workloads=randread,seqwrite"];
    let device = [&device[..], &["--queue-depth=4", "--dir=data"]].concat();
    let pool = ["pool", "--num=5000", "--size=4m", "--max-memory=2m"];
    let kv = ["kv", "--num=2000", "--max-memory=16m", "--batch=32"];
    let kv = [&kv[..], &["--workloads=fillseq,multireadrandom"]].concat();
    let resp = ["resp", "--num=2000", "--max-memory=16m", "--pipeline=8"];
    let everywhere = ["variant", "threads", "ops_per_s", "p50_us", "p99_us"];
    let iso = [
        "iso",
        "--num=1000",
        "--max-memory=16m",
        "--threads=1,2",
        "--rounds=1",
    ];
    let snapshots = [
        "--threads=1",
        "--old-snapshot=none,young",
        "--workloads=overwrite",
    ];
    let snapshots = [&iso[..3], &snapshots, &iso[4..]].concat();
    let cases: [(&[&str], &[&str], &[&str]); 6] = [
        (&device, &["randread", "seqwrite"], &["block_size_bytes"]),
        (&pool, &["null", "memory"], &["page_size", "max_memory"]),
        (
            &kv,
            &["fillseq", "multireadrandom"],
            &["max_memory", "page_reads_per_op", "queue_depth"],
        ),
        (
            &resp,
            &["set", "get"],
            &["pipeline", "page_reads_per_op", "queue_depth"],
        ),
        (&iso, &["readrandom"; 4], &["speed_to_one_thread"]),
        (
            &snapshots,
            &["overwrite"; 2],
            &["speed_to_first_variant", "old_version_bytes_max"],
        ),
    ];
    for (words, workloads, fields) in cases {
        let records = records(here, words);
        let names: Vec<_> = records.iter().map(|record| &record["workload"]).collect();
        assert_eq!(names, workloads, "{words:?}");
        for (record, field) in records
            .iter()
            .flat_map(|record| everywhere.iter().chain(fields).map(move |f| (record, f)))
        {
            assert!(!record[field].is_null(), "{words:?}: {field} in {record}");
        }
        assert!(
            records
                .iter()
                .all(|record| record["io_backend"].is_string())
        );
    }
    assert!(here.join("data/bench-device.dat").exists(), "it stays");
}

#[test]
fn the_allocator_has_a_record_for_each_state() {
    let directory = tempfile::tempdir().unwrap();
    let words = ["alloc", "--size=8g", "--num=2000", "--threads=1,2"];
    let records = records(directory.path(), &words);
    let states: Vec<_> = records
        .iter()
        .map(|record| {
            let number = |name: &str| record[name].as_u64().unwrap();
            let fragmented = record["fragmented"].as_bool().unwrap();
            (fragmented, number("fill_percent"), number("threads"))
        })
        .collect();
    let mut expected = Vec::new();
    for fragmented in [false, true] {
        for fill in [10, 50, 90, 99] {
            expected.extend([1, 2].map(|threads| (fragmented, fill, threads)));
        }
    }
    assert_eq!(states, expected);
    for record in &records {
        assert_eq!(record["workload"], "alloc");
        for field in ["p50_ns", "p999_ns", "ops_per_s"] {
            assert!(record[field].is_number(), "{field} in {record}");
        }
    }
    let words = ["ablation", "alloc", "--size=8g", "--num=2000"];
    let words = [&words[..], &["--rounds=1", "--threads=1"]].concat();
    let records = self::records(directory.path(), &words);
    let of = |workload: &str| {
        let records = records.iter();
        records
            .filter(|record| record["workload"] == workload)
            .count()
    };
    // `alloc` has 3 variants in 8 states; `overwrite` has 3 variants on fragmented and on
    // contiguous space.
    assert_eq!((of("alloc"), of("overwrite")), (24, 6));
    assert_eq!(records[0]["ablation"], "alloc");
    let words = [&words[..], &["--workloads=overwrite"]].concat();
    assert_eq!(self::records(directory.path(), &words).len(), 6);
}
