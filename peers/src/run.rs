//! A whole run: an engine's process each, a fill each, then rounds that alternate between them.

use std::path::{Path, PathBuf};

use pando_bench::{Error, Result, Workload};

use crate::cgroup::{self, ALLOWANCE_BYTES, Cgroup};
use crate::child::{Child, Start};
use crate::engines::EngineKind;
use crate::options::{Options, failed};
use crate::screen::{Screen, line};
use crate::session::Turn;

/// An engine that takes part. Its process ends before its group is removed.
struct Peer {
    child: Child,
    _group: Option<Cgroup>,
}

/// Runs what `options` ask for; `program` is this program, for the engines' processes.
///
/// An engine that fails is reported and left out of what follows; the others go on.
///
/// # Errors
/// Options that make no sense; the first failure of an engine, when the others have ended.
pub fn run(options: &Options, program: &Path) -> Result<()> {
    options.check()?;
    let kinds = options
        .engines
        .iter()
        .map(|name| EngineKind::from_name(name));
    let kinds: Vec<_> = kinds.collect::<Result<_>>()?;
    let temporary = match options.dir {
        Some(_) => None,
        None => Some(
            tempfile::TempDir::with_prefix("pando-peers-")
                .map_err(failed("making a temporary directory"))?,
        ),
    };
    let dir = match (&temporary, &options.dir) {
        (Some(temporary), _) => temporary.path().to_owned(),
        (None, named) => named.clone().expect("it is named where none is made"),
    };
    let mut run = Run {
        options,
        screen: Screen::new(options.json.as_deref())?,
        peers: Vec::new(),
        first_failure: None,
    };
    for kind in kinds {
        let started = run.start(kind, program, dir.join(kind.name));
        run.keep(started);
    }
    run.screen.head();
    run.fill()?;
    run.rounds()?;
    run.close();
    run.first_failure.map_or(Ok(()), Err)
}

struct Run<'a> {
    options: &'a Options,
    screen: Screen,
    peers: Vec<Peer>,
    first_failure: Option<Error>,
}

impl Run<'_> {
    fn fail(&mut self, error: Error) {
        eprintln!("peers: {error}");
        self.first_failure.get_or_insert(error);
    }

    fn keep(&mut self, started: Result<Peer>) {
        match started {
            Ok(peer) => self.peers.push(peer),
            Err(error) => self.fail(error),
        }
    }

    fn start(&self, kind: EngineKind, program: &Path, dir: PathBuf) -> Result<Peer> {
        let options = self.options;
        let needs_group = kind.leans_on_page_cache && options.is_out_of_memory();
        let memory_max = options.max_memory.saturating_add(ALLOWANCE_BYTES);
        let (group, why) = match needs_group.then(|| cgroup::parent(options.cgroup.as_deref())) {
            None => (None, None),
            Some(Err(why)) => (None, Some(why)),
            Some(Ok(parent)) => match Cgroup::new(&parent, kind.name, memory_max) {
                Ok(group) => (Some(group), None),
                Err(error) => (None, Some(error.to_string())),
            },
        };
        let start = Start {
            engine: kind.name.to_owned(),
            dir,
            options: options.clone(),
            cgroup: group.as_ref().map(|group| group.path().to_owned()),
            memory_max: group.is_some().then_some(memory_max),
            without_goal: why.clone(),
        };
        let child = Child::start(program, kind, &start)?;
        line(&format!("{}: {}", kind.name, child.settings));
        if group.is_some() {
            line(&format!(
                "{}: held to {memory_max} bytes, page cache included",
                kind.name
            ));
        }
        if let Some(why) = why {
            line(&format!(
                "{}: nothing holds its page cache to the budget, so its figures are without a \
                 goal: {why}",
                kind.name
            ));
        }
        Ok(Peer {
            child,
            _group: group,
        })
    }

    /// One thread fills each engine; what is not asked for is in no record.
    fn fill(&mut self) -> Result<()> {
        let workloads = self.options.workloads()?;
        let mut fills: Vec<_> = workloads
            .into_iter()
            .filter(|workload| workload.is_fill())
            .collect();
        let is_asked_for = !fills.is_empty();
        if !is_asked_for {
            fills.push(Workload::FillRandom);
        }
        for workload in fills {
            let turn = Turn {
                workload,
                threads: 1,
                round: 1,
            };
            self.give(turn, 0, is_asked_for)?;
        }
        Ok(())
    }

    fn rounds(&mut self) -> Result<()> {
        let workloads = self.options.workloads()?;
        for round in 1..=self.options.rounds {
            for workload in workloads.iter().filter(|workload| !workload.is_fill()) {
                for threads in &self.options.threads {
                    let turn = Turn {
                        workload: *workload,
                        threads: *threads,
                        round,
                    };
                    // Another one begins in each round, so that none is always first.
                    self.give(turn, (round - 1) as usize, true)?;
                }
            }
        }
        Ok(())
    }

    /// Gives each engine the same turn, beginning with the one at `first`.
    fn give(&mut self, turn: Turn, first: usize, is_recorded: bool) -> Result<()> {
        let count = self.peers.len();
        let mut failures = Vec::new();
        for at in 0..count {
            let at = (at + first) % count;
            match self.peers[at].child.run(turn) {
                Ok(record) if is_recorded => self.screen.record(&record)?,
                Ok(_) => {}
                Err(error) => failures.push((at, error)),
            }
        }
        failures.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        for (at, error) in failures {
            self.peers.remove(at);
            self.fail(error);
        }
        Ok(())
    }

    fn close(&mut self) {
        for peer in std::mem::take(&mut self.peers) {
            if let Err(error) = peer.child.close() {
                self.fail(error);
            }
        }
    }
}
