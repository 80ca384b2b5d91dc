//! Lives that end in crashes: at every sync point, after any write, and with any part of the
//! unsynced data. Every acknowledged record is recovered, and all recovered records were appended,
//! in order and without a gap.

use fastrand::Rng;
use pando_device::faulty::CrashMode;
use pando_device::{Device, FaultyDevice};
use pando_format::Lsn;
use pando_format::log::RecordKind;
use pando_stats::Statistics;
use pando_sync::{Arc, thread};
use pando_wal::{Acknowledge, Error, Log};

use crate::support::{Records, SEGMENT, append, options, read};

const MODES: [CrashMode; 4] = [
    CrashMode::AllLost,
    CrashMode::AllSurvive,
    CrashMode::RandomSubset,
    CrashMode::TornSectors,
];

/// The facts of a life that are checked after its crash.
struct Life {
    incarnation: u64,
    checkpoint: u64,
    /// All records appended since the life began.
    appended: Records,
    acknowledged: Lsn,
}

impl Life {
    /// Appends, flushes and checkpoints at random, until the device crashes or the steps are done.
    fn live(&mut self, device: &FaultyDevice, random: &mut Rng) -> Result<(), Error> {
        let options = options(3, self.incarnation, self.checkpoint);
        let log = Log::open(device.clone(), options, Arc::new(Statistics::new()))?;
        log.make_all_files()?;
        for step in 0..60_u8 {
            let large = random.u64(..6) == 0;
            let bytes = random.u64(..if large { 15_000 } else { 700 }) as usize;
            let Some(reservation) = log.try_reserve(bytes)? else {
                self.flush(&log)?;
                self.checkpoint(&log);
                continue;
            };
            let payload = vec![step; bytes];
            let lsn = log.append(
                reservation,
                RecordKind::Batch,
                Acknowledge::WhenDurable,
                &payload,
            );
            log.mark_applied(lsn);
            self.appended.push((lsn, payload));
            if random.u64(..3) == 0 {
                self.flush(&log)?;
                if random.u64(..4) == 0 {
                    self.checkpoint(&log);
                }
            }
        }
        self.flush(&log)
    }

    fn flush<D: Device>(&mut self, log: &Log<D>) -> Result<(), Error> {
        log.flush_now()?;
        self.acknowledged = log.durable();
        Ok(())
    }

    fn checkpoint<D: Device>(&mut self, log: &Log<D>) {
        self.checkpoint = self.acknowledged.0;
        log.truncate_below(self.acknowledged);
    }

    /// Checks which records have survived, and begins the next life.
    fn recover(&mut self, device: &FaultyDevice, context: &str) {
        let (records, end) = match read(device, self.incarnation, self.checkpoint) {
            Ok(found) => found,
            Err(error) => panic!("{context}: {error}"),
        };
        let mut expected = self.appended.clone();
        expected.retain(|(lsn, _)| lsn.0 > self.checkpoint);
        let acknowledged = expected.iter().filter(|(lsn, _)| *lsn <= self.acknowledged);
        assert!(records.len() >= acknowledged.count(), "{context}: lost");
        assert!(records.len() <= expected.len(), "{context}: too many");
        assert_eq!(records, expected[..records.len()], "{context}");
        self.incarnation += 1;
        self.checkpoint = end.restart.0;
        self.acknowledged = end.restart;
        self.appended.clear();
    }
}

/// Runs three lives, each with a crash where `plan` puts it.
fn check(seed: u64, mode: CrashMode, plan: impl Fn(&FaultyDevice, &mut Rng)) {
    let mut random = Rng::with_seed(seed * 2 + 1);
    let mut device = FaultyDevice::new(seed);
    let mut life = Life {
        incarnation: 1,
        checkpoint: 0,
        appended: Vec::new(),
        acknowledged: Lsn(0),
    };
    for number in 0..3 {
        plan(&device, &mut random);
        if life.live(&device, &mut random).is_ok() {
            device.crash_now();
        }
        device = device.after_crash(seed ^ number, mode);
        life.recover(&device, &format!("seed {seed}, {mode:?}, life {number}"));
    }
}

#[test]
fn every_sync_point_of_a_life_may_be_its_last() {
    for mode in MODES {
        for point in 1..30 {
            check(point, mode, |device, _| device.crash_at_sync(point));
        }
    }
}

#[test]
fn a_crash_after_any_write_leaves_a_prefix() {
    for mode in MODES {
        for seed in 1..40 {
            check(seed, mode, |device, random| {
                device.crash_after_writes(1 + random.u64(..30));
            });
        }
    }
}

#[test]
fn a_flush_over_two_segments_is_durable_in_both() {
    let device = FaultyDevice::new(1);
    let mut options = options(3, 1, 0);
    options.buffer_bytes = 512 << 10;
    let log = Log::open(device.clone(), options, Default::default()).unwrap();
    log.make_all_files().unwrap();
    let records = (1..7_u8).map(|number| {
        let payload = vec![number; 15_000];
        (append(&log, &payload), payload)
    });
    let expected: Records = records.collect();
    assert!(expected[5].0.0 > SEGMENT);
    log.flush_now().unwrap();
    device.crash_now();
    let after = device.after_crash(1, CrashMode::AllLost);
    assert_eq!(read(&after, 1, 0).unwrap().0, expected);
}

#[test]
fn committers_that_a_crash_interrupts_keep_what_they_were_told() {
    for seed in 1..12 {
        let device = FaultyDevice::new(seed);
        let log = Log::open(device.clone(), options(4, 1, 0), Default::default()).unwrap();
        log.make_all_files().unwrap();
        device.crash_at_sync(device.sync_points() + 1 + seed);
        let log = Arc::new(log);
        let committers: Vec<_> = (0..8_u8)
            .map(|number| {
                let log = log.clone();
                thread::spawn(move || {
                    let mut told = Vec::new();
                    for round in 0_u8.. {
                        let Ok(Some(reservation)) = log.try_reserve(2) else {
                            break;
                        };
                        let payload = [number, round];
                        let lsn = log.append(
                            reservation,
                            RecordKind::Batch,
                            Acknowledge::WhenDurable,
                            &payload,
                        );
                        log.mark_applied(lsn);
                        if log.wait_durable(lsn).is_err() {
                            break;
                        }
                        told.push((lsn, payload.to_vec()));
                    }
                    told
                })
            })
            .collect();
        let mut told: Records = Vec::new();
        for committer in committers {
            told.extend(committer.join().unwrap());
        }
        for mode in MODES {
            let (records, _) = read(&device.after_crash(seed, mode), 1, 0).unwrap();
            for commit in &told {
                assert!(records.contains(commit), "{commit:?} is lost, seed {seed}");
            }
        }
    }
}
