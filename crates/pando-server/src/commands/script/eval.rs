//! EVAL: a command that runs a script, which calls commands.
//!
//! The script runs from its beginning whenever the command does (decision 009): after a wait for a
//! page, with its reads played back, and after a conflict. Nothing that it did remains: its writes
//! are those of the command's transaction, its variables are gone. The clock that it sees is that
//! of its first run.
//!
//! As in Redis, a script that fails keeps what it had written before. One that is ended, by SCRIPT
//! KILL or since it took too long or too much memory, has written nothing.

use std::cell::{Cell, RefCell};

use pando_resp::{parse_integer, text_of};
use pando_sync::Arc;
use pando_sync::time::{Duration, Instant, SystemTime, now};

use super::call::Caller;
use super::shebang;
use crate::context::patience::{Leaves, RUNS_MAX, STAY_MAX};
use crate::context::{Command, Context, Flags, Group, Interrupted, Keys, Kind, Run, replies};
use crate::data::functions::{
    DESCRIPTION_BYTES_MAX, FunctionRow, LIBRARY_FUNCTIONS_MAX, NAME_BYTES_MAX, body_of,
};
use crate::figures::error_codes::code_of;
use crate::figures::slow_log::kept;
use crate::lua::{
    Chunk, Ending, Entry, Failure, LibraryLimits, Limits, Machine, Outcome, hex, sha1_of,
};
use crate::script_cache::{Habit, Script, ScriptName};
use crate::shared::Shared;

thread_local! {
    /// The state of Lua of this loop; `None` before its first script, and while one runs.
    static MACHINE: RefCell<Option<Box<Machine>>> = const { RefCell::new(None) };
}

/// What errors call a script, and a library of functions.
const SCRIPT_CHUNK: &str = "@user_script";
pub(in crate::commands) const LIBRARY_CHUNK: &str = "@user_function";

const OF_LIBRARIES: LibraryLimits = LibraryLimits {
    functions_max: LIBRARY_FUNCTIONS_MAX,
    name_bytes_max: NAME_BYTES_MAX,
    description_bytes_max: DESCRIPTION_BYTES_MAX,
};

/// What is run.
#[derive(Debug, Clone, Copy)]
pub(in crate::commands) enum Subject<'s> {
    Script(&'s Script),
    Function {
        name: &'s [u8],
        row: &'s FunctionRow,
        /// Set if the library that `row` names has another text; then nothing has run.
        is_other: &'s Cell<bool>,
    },
}

impl Subject<'_> {
    fn no_writes(self) -> bool {
        match self {
            Self::Script(script) => script.no_writes,
            Self::Function { row, .. } => row.no_writes(),
        }
    }

    /// It says how it runs, and does not say that it only reads.
    fn claims_writes(self) -> bool {
        match self {
            Self::Script(script) => script.has_shebang && !script.no_writes,
            Self::Function { row, .. } => !row.no_writes(),
        }
    }

    fn entry(&self) -> Entry<'_> {
        match self {
            Self::Script(_) => Entry::Script,
            Self::Function { name, .. } => Entry::Function(name),
        }
    }

    /// Tells it from others.
    fn name(&self) -> &[u8] {
        match self {
            Self::Script(script) => &script.name,
            Self::Function { name, .. } => name,
        }
    }

    /// The command whose subcommand KILL ends it.
    fn container(self) -> &'static str {
        match self {
            Self::Script(_) => "SCRIPT",
            Self::Function { .. } => "FUNCTION",
        }
    }
}

/// Names a library among what is compiled: scripts are named by their SHA-1 alone.
pub(in crate::commands) fn library_key(code_name: &ScriptName) -> Vec<u8> {
    [b"library ", &code_name[..]].concat()
}

const FLAGS: Flags = Flags::NOSCRIPT.and(Flags::NO_MANDATORY_KEYS);

const fn evaluating(
    name: &'static str,
    since: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: FLAGS,
        keys: Keys::NONE.and_counted(2),
        group: Group::Scripting,
        kind: Kind::Transaction,
        since,
        complexity: "Depends on the script that is executed.",
        summary,
        ..Command::new(name, -3, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[
    evaluating(
        "eval",
        "2.6.0",
        |context| eval(context, false),
        "Executes a server-side Lua script.",
    ),
    Command {
        flags: FLAGS.and(Flags::READONLY),
        ..evaluating(
            "eval_ro",
            "7.0.0",
            |context| eval(context, true),
            "Executes a read-only server-side Lua script.",
        )
    },
    evaluating(
        "evalsha",
        "2.6.0",
        |context| eval_named(context, false),
        "Executes a server-side Lua script by SHA1 digest.",
    ),
    Command {
        flags: FLAGS.and(Flags::READONLY),
        ..evaluating(
            "evalsha_ro",
            "7.0.0",
            |context| eval_named(context, true),
            "Executes a read-only server-side Lua script by SHA1 digest.",
        )
    },
];

/// Lends the loop's state of Lua to `user`, which returns whether it may be kept.
pub(in crate::commands) fn with_machine<T>(
    context: &mut Context<'_>,
    user: impl FnOnce(&mut Context<'_>, &mut Machine) -> (T, bool),
) -> Result<T, String> {
    let kept = MACHINE.take();
    let mut machine = match kept {
        Some(machine) => machine,
        None => {
            let machine = Machine::new(context.engine().script_bytes_max, OF_LIBRARIES);
            Box::new(machine.map_err(|text| format!("ERR scripts cannot run: {text}"))?)
        }
    };
    let (result, may_stay) = user(context, &mut machine);
    if may_stay && machine.tidy() {
        MACHINE.set(Some(machine));
    }
    Ok(result)
}

/// Returns the script that a text is, if it has no errors.
pub(super) fn compiled(context: &mut Context<'_>, source: &[u8]) -> Result<Arc<Script>, String> {
    let shebang = shebang::parse(source)?;
    let script = Arc::new(Script {
        name: sha1_of(source),
        // The end of the first line stays, so that lines have their numbers.
        body: source[shebang.bytes..].to_vec(),
        no_writes: shebang.no_writes,
        has_shebang: shebang.bytes > 0,
    });
    let generation = context.shared.scripts.generation();
    let result = with_machine(context, |_, machine| {
        let name = (&script.name[..], SCRIPT_CHUNK);
        let compiled = machine.compile(name, &script.body, generation);
        let may_stay = compiled
            .as_ref()
            .err()
            .is_none_or(|text| text != "not enough memory");
        (compiled, may_stay)
    })?;
    match result {
        Ok(_) => Ok(script),
        Err(text) => Err(format!("ERR Error compiling script (new function): {text}")),
    }
}

/// Returns the name that `text` is: forty digits, in any case.
pub(super) fn parsed(text: &[u8]) -> Option<ScriptName> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    };
    let mut name = ScriptName::default();
    if text.len() != 2 * name.len() {
        return None;
    }
    for (byte, digits) in name.iter_mut().zip(text.chunks(2)) {
        *byte = digit(digits[0])? << 4 | digit(digits[1])?;
    }
    Some(name)
}

/// Returns true if the script called `name` is known, and says that it does not write.
pub(crate) fn named_only_reads(shared: &Shared, name: &[u8]) -> bool {
    let known = parsed(name).and_then(|name| shared.scripts.find(&name));
    known.is_some_and(|script| script.no_writes)
}

/// Returns the number of keys, which argument 2 gives; `no_number` is the error if it is none.
pub(in crate::commands) fn keys_of(
    context: &Context<'_>,
    no_number: &'static str,
) -> Result<usize, &'static str> {
    let count = parse_integer(context.argument(2)).ok_or(no_number)?;
    match usize::try_from(count) {
        Ok(count) if count <= context.count() - 3 => Ok(count),
        Ok(_) => Err("ERR Number of keys can't be greater than number of args"),
        Err(_) => Err("ERR Number of keys can't be negative"),
    }
}

fn eval(context: &mut Context<'_>, read_only: bool) -> Run {
    let keys = keys_of(context, replies::NOT_AN_INTEGER)?;
    let name = sha1_of(context.argument(1));
    let script = match context.shared.scripts.find(&name) {
        Some(script) => script,
        None => match compiled(context, context.argument(1)) {
            Ok(script) => {
                let most = context.engine().script_bytes_max;
                // One that has no room in the cache runs all the same.
                let _ = context.shared.scripts.add(script.clone(), false, most);
                script
            }
            Err(text) => return context.fail(&text),
        },
    };
    run(context, Subject::Script(&script), keys, read_only)
}

/// Letters of the name of a script. Others are refused before anything else is looked at.
const NAME_LENGTH: usize = 40;

fn eval_named(context: &mut Context<'_>, read_only: bool) -> Run {
    const UNKNOWN: &str = "NOSCRIPT No matching script. Please use EVAL.";
    if context.argument(1).len() != NAME_LENGTH {
        return context.fail(UNKNOWN);
    }
    let keys = keys_of(context, replies::NOT_AN_INTEGER)?;
    let known = parsed(context.argument(1)).and_then(|name| context.shared.scripts.find(&name));
    match known {
        Some(script) => run(context, Subject::Script(&script), keys, read_only),
        None => context.fail(UNKNOWN),
    }
}

/// Runs a script, or a function; argument 3 is its first key.
pub(in crate::commands) fn run(
    context: &mut Context<'_>,
    subject: Subject<'_>,
    keys: usize,
    read_only: bool,
) -> Run {
    if read_only && subject.claims_writes() {
        return context.fail("ERR Can not execute a script with write flag using *_ro command.");
    }
    let known = &context.shared.scripts;
    if context.is_together && known.has_habit(subject.name(), Habit::Alone) {
        return Err(Interrupted::Yield);
    }
    let scripts = context.progress.scripts.get_or_insert_default();
    let moment = *scripts.moment.get_or_insert_with(|| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.unwrap_or_default()
    });
    // What expires is decided by the clock of the first run, too.
    let own_ms = context.now_ms;
    let first_ms = u64::try_from(moment.as_millis()).unwrap_or(u64::MAX);
    if context.session.interactive.is_none() {
        context.now_ms = first_ms;
    }
    let own_database = context.session.database;
    let read_only = read_only || subject.no_writes();
    let told = context.progress.events.mark();
    let messages = context
        .session
        .subscriptions
        .as_ref()
        .map_or(0, |of| of.changes());
    let lent = with_machine(context, |context, machine| {
        let began = now();
        let run = run_in(context, machine, subject, (keys, read_only), began);
        let waited = machine.take_wait();
        if let Some(scripts) = &mut context.progress.scripts {
            let time = now().duration_since(began).saturating_sub(waited);
            scripts.spend(context.exec_index, time);
            let (known, spent) = (&context.shared.scripts, scripts.spent_by_all());
            match &run.0 {
                Err(Interrupted::Leaves) if spent >= STAY_MAX => {
                    known.note_habit(subject.name(), Habit::Long, true);
                }
                Ok(()) if spent < STAY_MAX / 2 && known.has_habit(subject.name(), Habit::Long) => {
                    known.note_habit(subject.name(), Habit::Long, false);
                }
                _ => {}
            }
            if run.0.is_ok() {
                scripts.returned(matches!(subject, Subject::Function { .. }));
            }
        }
        run
    });
    context.session.database = own_database;
    context.now_ms = own_ms;
    let run = match lent {
        Ok(run) => run,
        Err(text) => context.fail(&text),
    };
    // The next run publishes them, or the script has changed nothing.
    if run.is_err() {
        context.progress.events.truncate(told);
        if let Some(subscriptions) = &mut context.session.subscriptions {
            subscriptions.forget_messages(messages);
        }
    }
    run
}

/// Returns the chunk of `subject`; else the result of [`run_in`].
fn chunk_of(
    context: &mut Context<'_>,
    machine: &mut Machine,
    subject: Subject<'_>,
) -> Result<Chunk, (Run, bool)> {
    let generation = context.shared.scripts.generation();
    let (compiled, what) = match subject {
        Subject::Script(script) => {
            let name = (&script.name[..], SCRIPT_CHUNK);
            let compiled = machine.compile(name, &script.body, generation);
            (compiled, "script (new function)")
        }
        Subject::Function { row, is_other, .. } => {
            let key = library_key(&row.code_name);
            if let Some(chunk) = machine.compiled(&key, generation) {
                return Ok(chunk);
            }
            let library = match context.library(&row.library) {
                Ok(library) => library.filter(|of| sha1_of(&of.code) == row.code_name),
                Err(interrupted) => return Err((Err(interrupted), true)),
            };
            let Some(library) = library else {
                is_other.set(true);
                return Err((Err(Interrupted::Torn), true));
            };
            let name = (&key[..], LIBRARY_CHUNK);
            let compiled = machine.compile(name, body_of(&library.code), generation);
            (compiled, "function")
        }
    };
    compiled.map_err(|text| {
        let text = format!("ERR Error compiling {what}: {text}");
        (context.fail(&text), false)
    })
}

/// Runs the script in a state of Lua. Returns false with the result if the state must not be used
/// again.
fn run_in(
    context: &mut Context<'_>,
    machine: &mut Machine,
    subject: Subject<'_>,
    (keys, read_only): (usize, bool),
    began: Instant,
) -> (Run, bool) {
    let chunk = match chunk_of(context, machine, subject) {
        Ok(chunk) => chunk,
        Err(result) => return result,
    };
    let arguments = context.arguments;
    let limit_ms = context.shared.settings.script_ms();
    let limits = limits(context, subject, limit_ms, began);
    // What an EXEC around it has changed, and what the script changes.
    let mut of_exec = context.data().overlay.take();
    let mut own = std::mem::take(&mut context.data().scratch.overlay);
    let overlay = of_exec.as_deref_mut().unwrap_or(&mut own);
    let out_start = context.out.len();
    let mut caller = Caller::new(
        context,
        overlay,
        (read_only, machine.guard()),
        machine.lend(),
    );
    let outcome = machine.run(
        (&chunk, subject.entry()),
        (arguments, keys),
        limits,
        &mut caller,
    );
    let (interrupted, is_too_long) = (caller.interrupted.take(), caller.is_too_long);
    if let Outcome::Failed(failure) = &outcome
        && failure.is_counted
    {
        caller.pass_on(code_of(format!("-{}", failure.text).as_bytes()));
    }
    let needs_own_commit = caller.needs_own_commit;
    machine.give_back(caller.buffers);
    own.reset();
    let data = context.data();
    (data.overlay, data.scratch.overlay) = (of_exec, own);
    let has_returned = matches!(outcome, Outcome::Returned(()));
    note_alone(context, subject, (needs_own_commit, has_returned));
    if !has_returned {
        context.out.truncate(out_start);
    }
    match outcome {
        Outcome::Returned(()) if is_too_long => (Err(Interrupted::ReplyTooLong), true),
        Outcome::Returned(()) => (context.check_reply(), true),
        Outcome::Failed(failure) => (context.fail(&described(&failure, subject)), true),
        Outcome::Ended(Ending::Interrupted) => {
            let interrupted = interrupted.unwrap_or(Interrupted::Yield);
            (Err(perhaps_leaving(context, interrupted)), true)
        }
        Outcome::Ended(Ending::Leaves) => (Err(Interrupted::Leaves), true),
        Outcome::Ended(Ending::Killed) => {
            let container = subject.container();
            let text = format!("ERR Script killed by user with {container} KILL.");
            (Err(Interrupted::Ended(text)), true)
        }
        Outcome::Ended(Ending::TimeOver) => {
            let text = format!(
                "ERR the script was ended after {limit_ms} ms, and has changed nothing: it must \
                 do less, or lua-time-limit must be longer"
            );
            (Err(Interrupted::Ended(text)), true)
        }
        Outcome::Ended(Ending::NoMemory) | Outcome::NoMemory => (no_memory(context), false),
    }
}

/// Notes whether the script calls commands that may not share a commit.
fn note_alone(context: &Context<'_>, subject: Subject<'_>, (needs, has_returned): (bool, bool)) {
    let known = &context.shared.scripts;
    // One that ended early may have called it later.
    let is_known = needs || has_returned;
    if is_known && needs != known.has_habit(subject.name(), Habit::Alone) {
        known.note_habit(subject.name(), Habit::Alone, needs);
    }
}

/// Returns how a run ends that is `interrupted`: one that waits for a page, and is the last of many
/// that did, is not to be repeated on this loop.
fn perhaps_leaving(context: &mut Context<'_>, interrupted: Interrupted) -> Interrupted {
    let scripts = context.progress.scripts.as_ref();
    let is_late = scripts.is_some_and(|of| of.runs() >= RUNS_MAX);
    let is_early = context.data().leaves == Leaves::Early;
    match &interrupted {
        Interrupted::Pending(pending) if pending.is_for_page() && is_late && is_early => {
            Interrupted::Leaves
        }
        _ => interrupted,
    }
}

/// Returns what the next run of the script, which begins now, may take.
fn limits(
    context: &mut Context<'_>,
    subject: Subject<'_>,
    limit_ms: u64,
    begins: Instant,
) -> Limits {
    let (shared, local, arguments) = (context.shared, context.local, context.arguments);
    let scripts = context.progress.scripts.get_or_insert_default();
    // Of another call of the same script, these bits of the clock are others.
    let moment = scripts.moment.unwrap_or_default();
    let (kills, kills_before) = match subject {
        Subject::Script(_) => scripts.running(|| shared.scripts.begin()).kills(),
        Subject::Function { name, .. } => {
            let begin = || {
                let command = kept(arguments, |_| false);
                shared
                    .functions
                    .begin(shared.number_of(local), name, command)
            };
            scripts.running_function(begin).kills()
        }
    };
    scripts.begin_run();
    let left = Duration::from_millis(limit_ms).saturating_sub(scripts.spent(context.exec_index));
    let may_stay = match shared.scripts.has_habit(subject.name(), Habit::Long) {
        true => Duration::ZERO,
        false => STAY_MAX.saturating_sub(scripts.spent_by_all()),
    };
    let data = context.data();
    let leaves_at = (data.leaves != Leaves::Never).then(|| begins + may_stay);
    let patience = data.patience.as_ref();
    Limits {
        leaves_at,
        is_left: patience.map(|of| Arc::clone(&of.sleeper.is_left)),
        seed: moment.subsec_nanos() ^ u32::try_from(moment.as_secs() & 0xffff_ffff).unwrap_or(0),
        // 0, and what no clock reaches, is no limit.
        until: (limit_ms > 0).then(|| begins.checked_add(left)).flatten(),
        kills,
        kills_before,
    }
}

fn no_memory(context: &Context<'_>) -> Run {
    let most = context.engine().script_bytes_max;
    let text = format!(
        "ERR not enough memory: the script was ended, and has changed nothing; the scripts of an \
         event loop have {most} bytes"
    );
    Err(Interrupted::Ended(text))
}

/// Returns the error reply of a script that has failed. The place is not known if the error came
/// from what a `return` has called, since that has taken the place of the function around it.
fn described(failure: &Failure, subject: Subject<'_>) -> String {
    let text = &failure.text;
    let (name, chunk) = match subject {
        Subject::Script(script) => (hex(&script.name), SCRIPT_CHUNK),
        Subject::Function { name, .. } => (text_of(name), LIBRARY_CHUNK),
    };
    match &failure.place {
        Some((chunk, line)) => format!("{text} script: {name}, on {chunk}:{line}."),
        None => format!("{text} script: {name}, on {chunk}."),
    }
}
