//! Tests of the workloads of the device.

use std::fs;
use std::time::Duration;

use pando_bench::device::run;
use pando_bench::{DeviceOptions, DeviceWorkload, Error};
use pandodb::{Db, IoBackend};

use crate::notes::Notes;

fn tiny() -> DeviceOptions {
    DeviceOptions {
        workloads: DeviceWorkload::ALL.to_vec(),
        size_bytes: 1 << 20,
        queue_depth: 8,
        io_backend: IoBackend::Memory,
        ..DeviceOptions::default()
    }
}

#[test]
fn each_workload_touches_as_many_blocks_as_there_are() {
    for (threads, block_bytes) in [(1, 4096), (3, 4096), (2, 65536), (1, 512)] {
        for io_backend in [IoBackend::Memory, IoBackend::Auto] {
            let options = DeviceOptions {
                threads,
                io_backend,
                block_bytes: match io_backend {
                    IoBackend::Memory => block_bytes,
                    _ => block_bytes.max(4096),
                },
                ..tiny()
            };
            let notes = Notes::of(|notes| run(&options, notes));
            assert_eq!(notes.records.len(), 4);
            for (record, workload) in notes.records.iter().zip(DeviceWorkload::ALL) {
                assert_eq!(record.workload, workload.name());
                assert_eq!(record.ops, (1 << 20) / options.block_bytes as u64);
                assert!(record.ops_per_s > 0.0 && record.p50_us <= record.max_us);
                let json: serde_json::Value = serde_json::from_str(&record.json()).unwrap();
                assert_eq!(json["queue_depth"], 8);
                assert!(json["io_backend"].is_string() && json["cpu_us_per_op"].is_number());
                assert!(json.get("page_size").is_none() && json.get("max_memory").is_none());
            }
        }
    }
}

#[test]
fn a_named_directory_keeps_its_file_and_a_store_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let dir = Some(directory.path().to_owned());
    let db = Db::open(directory.path()).unwrap();
    db.table("t").unwrap().put(b"a", b"b").unwrap();
    db.close().unwrap();
    let file = directory.path().join("bench-device.dat");
    let mut options = DeviceOptions {
        workloads: vec![DeviceWorkload::RandWrite, DeviceWorkload::RandRead],
        io_backend: IoBackend::Auto,
        dir,
        ..tiny()
    };
    Notes::of(|notes| run(&options, notes));
    let first = fs::read(&file).unwrap();
    assert_eq!(first.len(), 1 << 20);
    // A file of the same size is used again, whatever the seed is. Another size is filled again.
    options.workloads = vec![DeviceWorkload::SeqRead];
    options.seed = 2;
    Notes::of(|notes| run(&options, notes));
    assert_eq!(fs::read(&file).unwrap(), first);
    options.size_bytes = 2 << 20;
    Notes::of(|notes| run(&options, notes));
    assert_eq!(fs::metadata(&file).unwrap().len(), 2 << 20);
    let db = Db::open(directory.path()).unwrap();
    assert!(db.table("t").unwrap().contains(b"a").unwrap());
    db.close().unwrap();
}

#[test]
fn a_file_that_is_not_finished_is_filled_again_and_a_damaged_one_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let options = DeviceOptions {
        workloads: vec![DeviceWorkload::SeqRead],
        io_backend: IoBackend::Auto,
        dir: Some(directory.path().to_owned()),
        ..tiny()
    };
    let file = directory.path().join("bench-device.dat");
    fs::write(&file, vec![0; 1 << 20]).unwrap();
    Notes::of(|notes| run(&options, notes));
    let mut bytes = fs::read(&file).unwrap();
    // Block 5 of 256 is not among those that are checked before the run.
    bytes[5 * 4096] ^= 1;
    fs::write(&file, bytes).unwrap();
    let error = run(&options, &mut Notes::default()).unwrap_err();
    assert!(matches!(error, Error::Wrong { .. }), "{error}");
}

#[test]
fn duration_warmup_and_interval_count() {
    let options = DeviceOptions {
        workloads: vec![DeviceWorkload::RandRead],
        duration: Some(Duration::from_millis(200)),
        warmup: Duration::from_millis(30),
        interval: Some(Duration::from_millis(40)),
        ..tiny()
    };
    let notes = Notes::of(|notes| run(&options, notes));
    // A busy machine may skip steps and begin late.
    assert!(notes.steps >= 1 && notes.records[0].elapsed_s >= 0.05);
    assert!(notes.records[0].ops > 256, "more than one pass");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let wrong: [fn(&mut DeviceOptions); 5] = [
        |options| options.block_bytes = 1000,
        |options| options.block_bytes = 0,
        |options| options.queue_depth = 0,
        |options| options.threads = 0,
        |options| options.size_bytes = 4095,
    ];
    for change in wrong {
        let mut options = tiny();
        change(&mut options);
        let error = run(&options, &mut Notes::default()).unwrap_err();
        assert!(matches!(error, Error::Option { .. }), "{error}");
    }
    assert!(DeviceWorkload::from_name("read").is_err());
}
