//! Tests of `pando salvage`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::running::pando;
use crate::tools::{damage_leaf, store};

fn run(directory: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = pando(directory).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn what_is_lost_is_told_and_the_rest_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    store(here);
    let (code, out, err) = run(here, &["salvage", "store", "whole", "--max-memory=16m"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("table 'bench': 3000 rows"), "{out}");
    assert!(out.contains("Nothing is lost."), "{out}");
    let data = damage_leaf(&here.join("store"));
    let (code, out, err) = run(here, &["verify", "store"]);
    assert!(code == 3 && err.contains("pando salvage"), "{out}{err}");
    let salvage = ["salvage", "store", "new/one", "--json", "--max-memory=16m"];
    let (code, out, err) = run(here, &salvage);
    assert!(
        code == 3 && err.contains("new/one has everything else"),
        "{out}{err}"
    );
    let report = json(&out);
    let lost = report["lost"].as_array().unwrap();
    assert!(lost.len() == 1 && lost[0]["table"] == "bench", "{out}");
    let rows = report["tables"][0]["rows"].as_u64().unwrap();
    assert!((2900..3000).contains(&rows), "{rows}");
    assert_eq!(report["whole"], false);
    let (code, out, _) = run(here, &["verify", "new/one", "--json"]);
    assert_eq!(code, 0, "{out}");
    assert_eq!(json(&out)["stat"]["tables"][0]["entries"], rows);
    assert_eq!(
        fs::read(here.join("store/data")).unwrap(),
        data,
        "salvage only reads the damaged store"
    );
}

#[test]
fn a_new_store_needs_a_place_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    store(here);
    fs::create_dir(here.join("full")).unwrap();
    fs::write(here.join("full/file"), b"something").unwrap();
    for (new, what) in [
        ("full", "full: holds 'file'"),
        ("store", "lies in the damaged store"),
        ("store/new", "lies in the damaged store"),
        ("full/file", "is no directory"),
    ] {
        let (code, _, err) = run(here, &["salvage", "store", new]);
        assert!(code == 1 && err.contains(what), "{new}: {err}");
    }
    // A file system of its own has one from the beginning.
    fs::create_dir_all(here.join("mounted/lost+found")).unwrap();
    let (code, out, err) = run(here, &["salvage", "store", "mounted", "--max-memory=16m"]);
    assert!(code == 0 && out.contains("Nothing is lost."), "{out}{err}");
    let (code, _, err) = run(here, &["salvage", "nothing", "new"]);
    assert!(code == 1 && err.contains("does not exist"), "{err}");
    let (code, _, err) = run(here, &["salvage", "full", "new"]);
    assert!(
        code == 1 && err.contains("full: there is no store"),
        "{err}"
    );
    assert!(!here.join("new").exists(), "nothing is made");
    let (code, _, err) = run(here, &["salvage", "store", "new", "--max-memory=1m"]);
    assert!(code == 1 && err.contains("at least"), "{err}");
    assert!(!here.join("new").exists(), "nothing is made");
}
