//! Tests of reads through the pool alone, without a tree.

use pando_bench::pool::run;
use pando_bench::{Error, PoolOptions, PoolWorkload};

use crate::notes::Notes;

fn tiny() -> PoolOptions {
    PoolOptions {
        size_bytes: 4 << 20,
        max_memory: 1 << 20,
        queue_depth: 16,
        num: 20_000,
        ..PoolOptions::default()
    }
}

#[test]
fn each_operation_is_one_read_of_a_page() {
    for threads in [1, 3] {
        for page_bytes in [4096, 16384] {
            let options = PoolOptions {
                threads,
                page_bytes,
                queue_depth: if page_bytes == 4096 { 16 } else { 8 },
                ..tiny()
            };
            let notes = Notes::of(|notes| run(&options, notes));
            for (record, workload) in notes.records.iter().zip(PoolWorkload::ALL) {
                assert_eq!(record.workload, workload.name());
                assert_eq!(record.ops, 20_000);
                // Reads that are in flight when the count is reached are finished, and counted as
                // well.
                let reads = record.page_reads_per_op.unwrap();
                assert!((1.0..1.01).contains(&reads), "{record:?}");
                let hits = record.hits_per_look.unwrap();
                assert!(
                    (0.05..0.5).contains(&hits),
                    "a quarter of the pages fits: {record:?}"
                );
            }
        }
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let wrong: [fn(&mut PoolOptions); 5] = [
        |options| options.page_bytes = 5000,
        |options| options.queue_depth = 0,
        |options| options.max_memory = 64 << 10,
        |options| options.size_bytes = 1 << 20,
        |options| options.threads = 100,
    ];
    for change in wrong {
        let mut options = tiny();
        change(&mut options);
        let error = run(&options, &mut Notes::default()).unwrap_err();
        assert!(matches!(error, Error::Option { .. }), "{error}");
    }
}
