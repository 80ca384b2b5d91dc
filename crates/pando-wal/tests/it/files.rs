//! The log in real files, which bypass the page cache where they allow that.

use pando_device::DirectoryDevice;
use pando_format::Lsn;
use pando_format::log::RecordKind;
use pando_stats::Statistics;
use pando_sync::{Arc, thread};
use pando_wal::{Acknowledge, FlushMethod, Log};

use crate::support::{append_waiting, options, read};

#[test]
fn committers_and_lives_work_on_files_by_every_flush_method() {
    let directory = tempfile::tempdir().unwrap();
    let (mut start, mut incarnation) = (Lsn(0), 1);
    for method in [
        FlushMethod::Auto,
        FlushMethod::Direct,
        FlushMethod::Buffered,
    ] {
        let device = DirectoryDevice::open_directory(directory.path(), false, 1).unwrap();
        let mut options = options(3, incarnation, start.0);
        options.flush_method = method;
        let statistics = Arc::new(Statistics::new());
        let log = Log::open(device.clone(), options, statistics).unwrap();
        log.make_all_files().unwrap();
        let log = Arc::new(log);
        assert!(!(method == FlushMethod::Buffered && log.is_direct()));
        let committers: Vec<_> = (0..4_u8)
            .map(|number| {
                let log = log.clone();
                thread::spawn(move || {
                    for round in 0..40_usize {
                        let payload = vec![number; 10 + 7 * round];
                        let lsn = append_waiting(&log, &payload).unwrap();
                        log.mark_applied(lsn);
                        log.wait_durable(lsn).unwrap();
                    }
                })
            })
            .collect();
        for committer in committers {
            committer.join().unwrap();
        }
        let lost = log.try_reserve(4).unwrap().unwrap();
        log.append(lost, RecordKind::Batch, Acknowledge::WhenDurable, b"lost");
        drop(log);
        let (records, end) = read(&device, incarnation, start.0).unwrap();
        assert_eq!(records.len(), 160);
        assert!(records.iter().all(|(_, payload)| payload.len() != 4));
        start = end.restart;
        incarnation += 1;
    }
}
