//! Each engine has a process of its own: processor time and disk are its own then, a limit of
//! memory holds it alone, and it goes alone when it is killed.
//!
//! The two talk in lines of JSON: the child says `ready` with its settings, then answers each
//! order with a record or an error, until its input ends.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child as Process, ChildStdin, ChildStdout, Command, Stdio};

use pando_bench::{Error, Result, Workload};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cgroup;
use crate::engines::EngineKind;
use crate::options::{Options, failed};
use crate::screen::{Progress, line};
use crate::session::{Held, Session, Turn};

/// What a child is started with.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// Name of an [`EngineKind`].
    pub(crate) engine: String,
    /// Directory of its store, empty or absent.
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    /// Group that the child joins before it opens anything.
    pub(crate) cgroup: Option<PathBuf>,
    /// Most bytes of that group; None without one.
    pub(crate) memory_max: Option<u64>,
    /// Why nothing holds the engine to its memory, though something should.
    pub(crate) without_goal: Option<String>,
}

/// What a child is told to do.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    workload: String,
    threads: usize,
    round: u64,
}

/// What a child answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ready(Value),
    Record(Value),
    Error(String),
}

fn say(answer: &Answer) {
    let text = serde_json::to_string(answer).expect("all keys are strings");
    line(&text);
}

/// The whole life of a child; `text` is its [`Start`].
///
/// # Errors
/// Those of the engine: they have been answered, too.
pub(crate) fn serve(text: &str) -> Result<()> {
    let result = serve_orders(text);
    if let Err(error) = &result {
        say(&Answer::Error(error.to_string()));
    }
    result
}

fn serve_orders(text: &str) -> Result<()> {
    let start: Start = serde_json::from_str(text).map_err(failed("reading the start"))?;
    if let Some(group) = &start.cgroup {
        cgroup::join(group)?;
    }
    let kind = EngineKind::from_name(&start.engine)?;
    let held = Held {
        memory_max: start.memory_max,
        without_goal: start.without_goal,
    };
    let mut session = Session::open(kind, &start.options, start.dir, held)?;
    let settings: std::collections::BTreeMap<_, _> = session.settings().into_iter().collect();
    say(&Answer::Ready(
        serde_json::to_value(settings).expect("all keys are strings"),
    ));
    for order in io::stdin().lock().lines() {
        let order = order.map_err(failed("reading an order"))?;
        let order: Order = serde_json::from_str(&order).map_err(failed("reading an order"))?;
        let turn = Turn {
            workload: Workload::from_name(&order.workload)?,
            threads: order.threads,
            round: order.round,
        };
        let mut progress = Progress::new(kind.name);
        let record = match turn.workload.is_fill() {
            true => session.fill(turn.workload, &mut progress)?,
            false => session.run(turn, &mut progress)?,
        };
        say(&Answer::Record(
            serde_json::to_value(record).expect("all keys are strings"),
        ));
    }
    session.close()
}

/// The process of an engine, seen from the one that started it.
pub(crate) struct Child {
    /// Name of its [`EngineKind`].
    pub(crate) engine: &'static str,
    process: Process,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// What it was set to.
    pub(crate) settings: Value,
}

impl Child {
    /// Starts `program` for the engine of `start`, and waits until that is open.
    pub(crate) fn start(program: &Path, kind: EngineKind, start: &Start) -> Result<Self> {
        let text = serde_json::to_string(start).expect("all keys are strings");
        let during = |what: &str| format!("{}: {what}", kind.name);
        let mut process = Command::new(program)
            .arg("--child")
            .arg(text)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed(during("starting its process")))?;
        let orders = process.stdin.take();
        let answers = process.stdout.take().expect("it was asked for");
        let mut child = Self {
            engine: kind.name,
            process,
            orders,
            answers: BufReader::new(answers),
            settings: Value::Null,
        };
        match child.answer()? {
            Answer::Ready(settings) => child.settings = settings,
            _ => return Err(failed(during("starting"))("an answer to no order")),
        }
        Ok(child)
    }

    /// Gives it a turn; answers with its record.
    pub(crate) fn run(&mut self, turn: Turn) -> Result<Value> {
        let order = Order {
            workload: turn.workload.name().to_owned(),
            threads: turn.threads,
            round: turn.round,
        };
        let text = serde_json::to_string(&order).expect("all keys are strings");
        let orders = self.orders.as_mut().expect("it is open until it is closed");
        // If it is gone, its answer says so better.
        let _ = writeln!(orders, "{text}");
        match self.answer()? {
            Answer::Record(record) => Ok(record),
            _ => Err(failed(self.engine)("an answer that is no record")),
        }
    }

    fn answer(&mut self) -> Result<Answer> {
        let mut text = String::new();
        let bytes = self.answers.read_line(&mut text);
        if bytes.map_err(failed(self.engine))? == 0 {
            let status = self.process.wait().map_err(failed(self.engine))?;
            let what = format!("its process ended ({status}); out of its memory, if by signal 9");
            return Err(failed(self.engine)(what));
        }
        match serde_json::from_str(&text).map_err(failed(self.engine))? {
            Answer::Error(what) => Err(failed(self.engine)(what)),
            answer => Ok(answer),
        }
    }

    /// Lets it close its store and end.
    pub(crate) fn close(mut self) -> Result<()> {
        self.orders = None;
        let status = self.process.wait().map_err(failed(self.engine))?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::Io {
                during: self.engine.to_owned(),
                source: io::Error::other(format!("its process ended with {status}")),
            }),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Its own child and no other; one that has ended is not there to be killed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
