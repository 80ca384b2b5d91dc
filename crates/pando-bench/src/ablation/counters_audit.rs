//! The ways to count under the coherence audit: cache lines that move for each addition, by way and
//! number of simulated cores. Prints a table; the product's way moves none.
//!
//! Both ways of the core have the same rows, and restartable sequences do not exist here: one of
//! them stands for both. Each core is a thread, and they take turns, one addition each.

use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{audit, thread};

use super::counters::{CountingWay, SharedCounters, TICKED, TICKERS, Work, with};
use super::stats::{RECORDER, record};

const CORES: [u32; 3] = [1, 2, 32];
/// Operations of each core: the first ones fetch what it keeps.
const WARM: u64 = 16;
const COUNTED: u64 = 128;

struct Moving {
    cores: u32,
    is_tick: bool,
}

impl Work for Moving {
    /// Transfers for each operation.
    type Output = f64;

    fn run(self, counters: &impl SharedCounters) -> f64 {
        // Whose turn it is, of all turns of all cores. Not seen: looked at outside of cores.
        let turn = AtomicU64::new(0);
        let cores = u64::from(self.cores);
        let run = |core: u32| {
            for number in 0..WARM + COUNTED {
                // Acquire and Release: one turn after the other.
                while turn.load(Ordering::Acquire) != number * cores + u64::from(core) {
                    thread::yield_now();
                }
                if number == WARM && core == 0 {
                    audit::take_transfers();
                }
                audit::enter_core(core);
                match self.is_tick {
                    true => counters.add(number as usize % TICKED, 1),
                    false => record(counters, 1000 + number),
                }
                audit::leave_core();
                turn.fetch_add(1, Ordering::Release);
            }
        };
        thread::scope(|scope| {
            let run = &run;
            let each = |core| scope.spawn(move || run(core));
            let handles: Vec<_> = (0..self.cores).map(each).collect();
            handles.into_iter().for_each(|one| one.join().unwrap());
        });
        let moved: u64 = audit::take_transfers().values().sum();
        moved as f64 / (COUNTED * cores) as f64
    }
}

#[test]
fn only_counters_of_all_threads_move_lines() {
    println!("\n| lines moved, by cores | {CORES:?} |\n|---|---|");
    for is_tick in [true, false] {
        for way in CountingWay::ALL.into_iter().filter(|way| way.is_here()) {
            let moved = CORES.map(|cores| {
                let work = Moving { cores, is_tick };
                match is_tick {
                    true => with::<TICKERS, _>(way, work).unwrap(),
                    false => with::<RECORDER, _>(way, work).unwrap(),
                }
            });
            let workload = if is_tick { "tick" } else { "measure" };
            println!("| {workload}, {} | {moved:.2?} |", way.names().0);
            assert_eq!(moved[0], 0.0, "nothing moves on one core");
            match way {
                // Each addition fetches what another core wrote.
                CountingWay::Global => assert!(moved[1..].iter().all(|moved| *moved >= 1.0)),
                _ => assert!(moved.iter().all(|moved| *moved == 0.0), "{way:?}"),
            }
        }
    }
}
