//! What a workload does.

use pando_device::faulty::Random;

/// What to do.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Decides everything except the schedule.
    pub seed: u64,
    /// Tells the workloads on one store apart.
    pub round: u64,
    /// Number of threads.
    pub threads: usize,
    /// Number of steps of each thread.
    pub steps: usize,
    /// Number of keys of each thread in each table.
    pub keys: u64,
}

impl Plan {
    /// Returns a plan for `seed`, with one to three threads.
    pub fn of_seed(seed: u64, steps: usize) -> Self {
        let mut random = Random::new(seed).part(0x91a5);
        let threads = if random.once_in(2) {
            1
        } else {
            2 + random.index(2)
        };
        Self {
            seed,
            round: 0,
            threads,
            steps: steps / threads,
            keys: 20 + random.below(200),
        }
    }
}
