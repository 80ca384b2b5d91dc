//! The page for browsers is well-formed, loads nothing, and contains the numbers of the records.

use std::time::Duration;

use pando_bench::{KvOptions, PoolOptions, Workload, html};
use pandodb::IoBackend;

use crate::notes::Notes;

/// Returns the texts of a page. Checks that its tags are well-formed and closed in order.
fn texts(page: &str) -> Vec<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut texts = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>\n").unwrap();
    while let Some((text, tag)) = rest.split_once('<') {
        check_text(text);
        if !text.trim().is_empty() {
            assert!(!open.is_empty(), "{text} is outside");
            texts.push(text.to_owned());
        }
        let (tag, behind) = tag.split_once('>').unwrap();
        rest = behind;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "before {rest}");
            continue;
        }
        let (inner, is_empty) = match tag.strip_suffix('/') {
            Some(inner) => (inner, true),
            None => (tag, false),
        };
        let (name, attributes) = inner.split_once(' ').unwrap_or((inner, ""));
        assert!(!name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric()));
        check_attributes(attributes);
        if !is_empty {
            open.push(name);
        }
    }
    assert_eq!((open.len(), rest.trim()), (0, ""));
    texts
}

fn check_attributes(attributes: &str) {
    let mut rest = attributes.trim();
    while !rest.is_empty() {
        let (name, behind) = rest.split_once("=\"").unwrap();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
        assert!(name.chars().all(is_name), "{attributes}");
        let (value, behind) = behind.split_once('"').unwrap();
        check_text(value);
        let loads = ["src", "href", "srcset", "action"].contains(&name);
        assert!(!loads && !name.starts_with("on"), "{attributes}");
        rest = behind.trim_start();
    }
}

fn check_text(text: &str) {
    assert!(!text.contains('>'), "{text}");
    for entity in text.split('&').skip(1) {
        let known = ["amp;", "lt;", "gt;", "quot;", "#39;"];
        assert!(known.iter().any(|one| entity.starts_with(one)), "{text}");
    }
}

#[test]
fn a_page_is_well_formed_and_has_the_numbers() {
    let options = KvOptions {
        workloads: vec![Workload::FillSeq, Workload::ReadRandom, Workload::YcsbA],
        num: 2000,
        duration: Some(Duration::from_millis(100)),
        interval: Some(Duration::from_millis(20)),
        max_memory: 16 << 20,
        io_backend: IoBackend::Memory,
        ..KvOptions::default()
    };
    let records = Notes::of(|notes| pando_bench::run(&options, notes)).records;
    let about = [(
        "command",
        "pando <script>alert(1)</script> & 'x' \"y\"".to_owned(),
    )];
    let page = html::page("pando bench <kv>", &about, &records);
    let texts = texts(&page);
    let has = |text: &str| texts.iter().any(|one| one == text);
    assert!(has("pando bench &lt;kv&gt;"));
    for head in ["Workloads", "Latency by percentile", "Settings"] {
        assert!(has(head), "{head}");
    }
    assert!(has("Operations a second over time"));
    for record in &records {
        assert!(has(record.workload) && has(&record.ops.to_string()));
        assert!(has(&format!("{:.0}", record.ops_per_s)), "{record:?}");
    }
    assert!(has("16777216"), "max_memory");
    assert!(has("zipf:0.99") && has("uniform"));
    assert!(!page.contains("<script") && !page.contains("url("));
    assert_eq!(page.matches("<svg").count(), 2);
    // There is a line of percentiles for each workload, and a line over time for each workload with
    // steps.
    let steps = |record: &&pando_bench::Record| record.interval_ops_per_s.is_some();
    let lines = records.len() + records.iter().filter(steps).count();
    assert_eq!(page.matches("<polyline").count(), lines);
    // The only address is the namespace of SVG.
    assert_eq!(
        page.matches("http").count(),
        page.matches("http://www.w3.org/2000/svg").count()
    );
}

#[test]
fn a_page_of_another_layer_or_of_nothing_is_one_too() {
    let options = PoolOptions {
        size_bytes: 4 << 20,
        max_memory: 2 << 20,
        num: 2000,
        ..PoolOptions::default()
    };
    let records = Notes::of(|notes| pando_bench::pool::run(&options, notes)).records;
    let page = html::page("pool", &[], &records);
    assert!(texts(&page).iter().any(|text| text == "hits_per_look"));
    assert_eq!(page.matches("<svg").count(), 1, "no series");
    assert_eq!(texts(&html::page("none", &[], &[])).len(), 5);
}
