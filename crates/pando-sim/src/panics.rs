//! Ends the process when a thread of an engine panics, whatever becomes of its store: one that is
//! poisoned already keeps its first cause, and an opening or a close that fails for another reason
//! tells nobody of the panic.
//!
//! What ends is told with what repeats it: the cases that run, and the last stores that threads of
//! this process have opened. A thread of a test or of a workload that panics is joined by somebody
//! who fails, so it is left alone.

use std::fmt::Write as _;
use std::io::Write as _;
use std::panic::{PanicHookInfo, set_hook, take_hook};

use pando_sync::{Mutex, OnceLock, thread};

/// What the names of all threads of engines and devices begin with.
const ENGINE: &str = "pando-";
/// Number of openings of stores that are remembered.
const OPENINGS: usize = 8;

/// What repeats a panic.
#[derive(Debug, Default)]
struct Running {
    /// Commands of the cases that run.
    cases: Vec<String>,
    /// The last openings of stores: which one, and who has opened it.
    openings: Vec<String>,
}

/// Returns what runs in this process; the first call sees to it that panics are noticed.
fn running() -> &'static Mutex<Running> {
    static RUNNING: OnceLock<Mutex<Running>> = OnceLock::new();
    RUNNING.get_or_init(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            before(panic);
            look_at(panic);
        }));
        Mutex::default()
    })
}

/// Ends the process if an engine's thread panics.
fn look_at(panic: &PanicHookInfo<'_>) {
    let this = thread::current();
    let Some(name) = this.name().filter(|name| name.starts_with(ENGINE)) else {
        return;
    };
    let mut text = format!("the engine's thread {name} panicked");
    if let Some(place) = panic.location() {
        let _ = write!(text, " at {place}");
    }
    let _ = writeln!(text, ": {}", text_of(panic.payload()));
    // The thread may have panicked under any lock but this one.
    let running = running().lock();
    for case in &running.cases {
        let _ = writeln!(text, "  while this ran: {case}");
    }
    for opening in running.openings.iter().rev() {
        let _ = writeln!(text, "  opened before: {opening}");
    }
    // Not `eprintln`, since the test harness would capture it.
    let _ = std::io::stderr().write_all(text.as_bytes());
    std::process::abort();
}

/// Returns the text of a panic.
pub(crate) fn text_of(payload: &(dyn std::any::Any + Send)) -> &str {
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    let text = owned.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a text")
}

/// Ends the process from here on if an engine's thread panics; names `store` as one that the
/// calling thread is about to open.
pub fn watch(store: &str) {
    let this = thread::current();
    let opening = format!("{store} in {}", this.name().unwrap_or("a thread"));
    let mut running = running().lock();
    running.openings.retain(|known| *known != opening);
    let surplus = (running.openings.len() + 1).saturating_sub(OPENINGS);
    running.openings.drain(..surplus);
    running.openings.push(opening);
}

/// A case that runs. If its own thread panics in it, its command is told, too.
#[derive(Debug)]
pub(crate) struct RunningCase(String);

impl RunningCase {
    /// Names `command` as what repeats the case, from here on.
    pub(crate) fn new(command: String) -> Self {
        running().lock().cases.push(command.clone());
        Self(command)
    }
}

impl Drop for RunningCase {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = writeln!(std::io::stderr(), "a panic while this ran: {}", self.0);
        }
        let mut running = running().lock();
        let place = running.cases.iter().position(|case| *case == self.0);
        running.cases.remove(place.expect("it was added once"));
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    use pando_device::FaultyDevice;
    use pando_sync::time::Duration;

    use super::*;
    use crate::store;
    use crate::watchdog::Watchdog;

    /// Set for a process that is to end.
    const CHILD: &str = "PANDO_SIM_PANICS";

    /// Runs the test `name` alone, in a process that knows that it is the child.
    fn child(name: &str) -> Output {
        let program = std::env::current_exe().expect("this program is a file");
        let mut command = Command::new(program);
        command.args(["--exact", name]).env(CHILD, "1");
        command.output().expect("the program starts again")
    }

    /// Runs `body`, which panics, in a thread of that name, and waits for its end.
    fn panic_in(name: &str, body: fn()) {
        let thread = thread::Builder::new().name(name.to_owned());
        let panicked = thread.spawn(body).expect("a thread").join();
        panicked.expect_err("it panicked");
    }

    #[test]
    fn a_panic_of_an_engine_ends_the_process_and_names_the_case_and_the_seed() {
        if std::env::var_os(CHILD).is_some() {
            let _case = Watchdog::new(Duration::from_secs(60), "the command of a case".into());
            let db = store::open(4711, &FaultyDevice::new(1)).expect("it opens");
            panic_in("pando-none", || panic!("text {}", 7 * 6));
            drop(db);
            return;
        }
        let output = child(
            "panics::tests::a_panic_of_an_engine_ends_the_process_and_names_the_case_and_the_seed",
        );
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{told}");
        for part in [
            "the engine's thread pando-none panicked at ",
            ": text 42\n",
            "while this ran: the command of a case\n",
            "seed 4711 in panics::tests::a_panic_of_an_engine",
        ] {
            assert!(told.contains(part), "{part:?} is not in: {told}");
        }
    }

    /// Whoever joins such a thread fails by himself, as a test of which an assertion does not hold.
    #[test]
    fn other_threads_may_panic() {
        if std::env::var_os(CHILD).is_some() {
            let case = RunningCase::new("the command of a case".into());
            panic_in("worker", || panic!("a worker"));
            drop(case);
            return;
        }
        let output = child("panics::tests::other_threads_may_panic");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
    }

    #[test]
    fn a_case_that_panics_is_named() {
        if std::env::var_os(CHILD).is_some() {
            let _case = RunningCase::new("the command of a case".into());
            panic!("a case");
        }
        let output = child("panics::tests::a_case_that_panics_is_named");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{told}");
        let named = "a panic while this ran: the command of a case\n";
        assert!(told.contains(named), "{told}");
    }

    #[test]
    fn the_last_openings_are_remembered() {
        let open = |seed: u64| watch(&format!("seed {seed}"));
        (0..100).for_each(open);
        open(95);
        let running = running().lock();
        assert_eq!(running.openings.len(), OPENINGS);
        assert!(running.openings[OPENINGS - 1].starts_with("seed 95 in "));
    }
}
