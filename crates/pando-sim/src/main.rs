//! Command line of the harness: repeats one case, or runs as many as requested.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use pando_device::faulty::Random;
use pando_sim::crash::{self, CrashCase, CrashCounts, CrashPoint};
use pando_sim::damage::{DamageCase, DamageCounts};
use pando_sim::failure::{Failure, Result, fail};
use pando_sim::faults::{FaultCase, FaultCounts};
use pando_sim::full;
use pando_sim::full_close;
use pando_sim::full_deletes;
use pando_sim::full_together;
use pando_sim::kill::{self, KillPlan};
use pando_sim::restart::{RestartCase, RestartCounts};
use pando_sim::store::Shape;

const USAGE: &str = "usage:
  pando-sim crash --seed N [--at sync:N|write:N|end] [--steps 200] [--lives 2] [--repeat 1]
  pando-sim sweep [--seed 1] [--seeds 10] [--points 60] [--steps 200] [--lives 2]
  pando-sim matrix [--seed 1] [--crashes 2000] [--points 24] [--steps 200] [--lives 2]
  pando-sim restart [--seed 1] [--cuts 20] [--steps 100] [--repeat 1]
  pando-sim restarts [--seed 1] [--crashes 1000] [--cuts 20] [--steps 100]
  pando-sim fault --case SEED:STAGE:OPERATION:io|full:once|sticky:N [--repeat 1]
  pando-sim faults [--seed 1] [--count 100]
  pando-sim damage [--case SEED:FILE:HARM] [--seed 1] [--count 50] [--repeat 2]
  pando-sim kill --server PATH [--rounds 20] [--seed 1] [--clients 8] [--dir DIR]
  pando-sim full [--seed 1] [--seeds 1] [--step 1]";

/// `--name value` pairs.
struct Flags(Vec<(String, String)>);

impl Flags {
    fn new(words: impl Iterator<Item = String>) -> Result<Self> {
        let words: Vec<String> = words.collect();
        let mut flags = Vec::new();
        for pair in words.chunks(2) {
            match pair {
                [name, value] if name.starts_with("--") => {
                    flags.push((name[2..].to_owned(), value.clone()));
                }
                other => return fail(format!("{other:?} is no flag with a value\n{USAGE}")),
            }
        }
        Ok(Self(flags))
    }

    fn get<T: std::str::FromStr>(&mut self, name: &str, default: T) -> Result<T> {
        let Some(index) = self.0.iter().position(|(known, _)| known == name) else {
            return Ok(default);
        };
        let (_, value) = self.0.swap_remove(index);
        let wrong = |_| Failure::new(format!("--{name} {value}: not understood\n{USAGE}"));
        value.parse().map_err(wrong)
    }

    fn end(self) -> Result<()> {
        match self.0.first() {
            Some((name, _)) => fail(format!("--{name} is unknown\n{USAGE}")),
            None => Ok(()),
        }
    }
}

fn crash_case(flags: &mut Flags) -> Result<CrashCase> {
    Ok(CrashCase {
        seed: flags.get("seed", 1)?,
        point: flags.get("at", CrashPoint::End)?,
        steps: flags.get("steps", 200)?,
        lives: flags.get("lives", 2)?,
    })
}

fn crash(mut flags: Flags) -> Result<String> {
    let case = crash_case(&mut flags)?;
    let repeat = flags.get("repeat", 1)?;
    flags.end()?;
    let mut counts = CrashCounts::default();
    for _ in 0..repeat {
        counts.add(case.run()?);
    }
    Ok(format!("{counts:?}"))
}

fn sweep(mut flags: Flags) -> Result<String> {
    let case = crash_case(&mut flags)?;
    let (seeds, points) = (flags.get("seeds", 10)?, flags.get("points", 60)?);
    flags.end()?;
    let mut counts = CrashCounts::default();
    for seed in case.seed..case.seed + seeds {
        counts.add(crash::sweep(CrashCase { seed, ..case }, points, |_| ())?);
        eprintln!("seed {seed}: {counts:?}");
    }
    Ok(format!("{counts:?}"))
}

/// Sweeps one seed after the other, of stores of every shape, until there were enough crashes.
fn matrix(mut flags: Flags) -> Result<String> {
    let case = crash_case(&mut flags)?;
    let (crashes, points) = (flags.get("crashes", 2000)?, flags.get("points", 24)?);
    flags.end()?;
    let mut counts = CrashCounts::default();
    for (seed, shape) in (case.seed..).zip(Shape::ALL.into_iter().cycle()) {
        if counts.crashes >= crashes {
            break;
        }
        let seed = shape.seed(seed);
        counts.add(crash::sweep(CrashCase { seed, ..case }, points, |_| ())?);
    }
    Ok(format!(
        "{} crash points, {} recoveries checked, {} commits",
        counts.crashes, counts.recoveries, counts.commits
    ))
}

fn restart_case(flags: &mut Flags) -> Result<RestartCase> {
    Ok(RestartCase {
        seed: flags.get("seed", 1)?,
        cuts: flags.get("cuts", 20)?,
        steps: flags.get("steps", 100)?,
    })
}

fn restart(mut flags: Flags) -> Result<String> {
    let case = restart_case(&mut flags)?;
    let repeat = flags.get("repeat", 1)?;
    flags.end()?;
    let mut counts = RestartCounts::default();
    for _ in 0..repeat {
        counts.add(case.run()?);
    }
    Ok(format!("{counts:?}"))
}

/// Runs one seed after the other, of stores of every shape, until the power was cut often enough.
fn restarts(mut flags: Flags) -> Result<String> {
    let case = restart_case(&mut flags)?;
    let crashes = flags.get("crashes", 1000)?;
    flags.end()?;
    let mut counts = RestartCounts::default();
    for (seed, shape) in (case.seed..).zip(Shape::ALL.into_iter().cycle()) {
        if counts.cuts >= crashes {
            break;
        }
        let seed = shape.seed(seed);
        counts.add(RestartCase { seed, ..case }.run()?);
    }
    Ok(format!("{counts:?}"))
}

fn fault(mut flags: Flags) -> Result<String> {
    let case: FaultCase = flags.get("case", String::new())?.parse()?;
    let repeat = flags.get("repeat", 1)?;
    flags.end()?;
    let mut counts = FaultCounts::default();
    for _ in 0..repeat {
        counts.add(case.run()?);
    }
    Ok(format!("{counts:?}"))
}

fn many_faults(mut flags: Flags) -> Result<String> {
    let (seed, count) = (flags.get("seed", 1)?, flags.get("count", 100)?);
    flags.end()?;
    let mut random = Random::new(seed);
    let mut counts = FaultCounts::default();
    for _ in 0..count {
        counts.add(FaultCase::choose(&mut random).run()?);
    }
    Ok(format!("{counts:?}"))
}

fn damage(mut flags: Flags) -> Result<String> {
    let case: String = flags.get("case", String::new())?;
    let (seed, count) = (flags.get("seed", 1)?, flags.get("count", 50)?);
    let repeat = flags.get("repeat", 2)?;
    flags.end()?;
    if !case.is_empty() {
        return Ok(format!("{:?}", case.parse::<DamageCase>()?.run(repeat)?));
    }
    let mut random = Random::new(seed);
    let mut counts = DamageCounts::default();
    for _ in 0..count {
        counts.add(DamageCase::choose(&mut random).run(repeat)?);
    }
    Ok(format!("{counts:?}"))
}

fn kill(mut flags: Flags) -> Result<String> {
    let server = std::env::var("PANDO_SERVER").unwrap_or_else(|_| "target/release/pando".into());
    let place = std::env::temp_dir().join(format!("pando-sim-{}", std::process::id()));
    let plan = KillPlan {
        server: flags.get("server", server.into())?,
        directory: flags.get("dir", place.clone())?,
        rounds: flags.get("rounds", 20)?,
        clients: flags.get("clients", 8)?,
        seed: flags.get("seed", 1)?,
    };
    flags.end()?;
    let counts = kill::run(&plan)?;
    if plan.directory == place {
        // The directory of a failure is kept for inspection.
        let _ = std::fs::remove_dir_all(&place);
        let _ = std::fs::remove_file(place.with_extension("stderr"));
    }
    Ok(format!("{counts:?}"))
}

fn full_disks(mut flags: Flags) -> Result<String> {
    let (seed, seeds) = (flags.get("seed", 1)?, flags.get("seeds", 1)?);
    let step = flags.get("step", 1_u64)?.max(1);
    flags.end()?;
    let mut counts = FaultCounts::default();
    for seed in seed..seed + seeds {
        counts.add(full::fill_disk(seed)?);
        counts.add(full::fill_frames(seed)?);
        counts.add(full::sweep(seed, step)?);
        counts.add(full_deletes::empty(seed)?);
        counts.add(full_together::meet(seed)?);
        for file in full_close::FILES {
            full_close::close(seed, file, true)?;
            full_close::close(seed, file, false)?;
        }
        eprintln!("seed {seed}: {counts:?}");
    }
    Ok(format!("{counts:?}"))
}

fn run() -> Result<String> {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let flags = Flags::new(words)?;
    match command.as_str() {
        "crash" => crash(flags),
        "sweep" => sweep(flags),
        "matrix" => matrix(flags),
        "restart" => restart(flags),
        "restarts" => restarts(flags),
        "fault" => fault(flags),
        "faults" => many_faults(flags),
        "damage" => damage(flags),
        "kill" => kill(flags),
        "full" => full_disks(flags),
        _ => fail(USAGE),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(text) => {
            eprintln!("{text}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
