//! EVAL: a command that runs a script, which calls commands.
//!
//! The script runs from its beginning whenever the command does (decision 009): after a wait for a
//! page, with its reads played back, and after a conflict. Nothing that it did remains: its writes
//! are those of the command's transaction, its variables are gone. The clock that it sees is that
//! of its first run.
//!
//! As in Redis, a script that fails keeps what it had written before. One that is ended, by SCRIPT
//! KILL or since it took too long or too much memory, has written nothing.

use std::cell::RefCell;

use mlua::Value;
use pando_resp::parse_integer;
use pando_sync::Arc;
use pando_sync::time::{Duration, SystemTime, now};

use super::call::Caller;
use super::conversion::Reply;
use super::shebang;
use crate::context::overlay::Overlay;
use crate::context::{Command, Context, Flags, Group, Interrupted, Keys, Kind, Run};
use crate::lua::{Ending, Failure, Limits, Machine, Outcome, hex, sha1_of};
use crate::script_cache::{Script, ScriptName};

thread_local! {
    /// The state of Lua of this loop; `None` before its first script, and while one runs.
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

const fn evaluating(
    name: &'static str,
    since: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: Flags::NOSCRIPT,
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
        flags: Flags::NOSCRIPT.and(Flags::READONLY),
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
        flags: Flags::NOSCRIPT.and(Flags::READONLY),
        ..evaluating(
            "evalsha_ro",
            "7.0.0",
            |context| eval_named(context, true),
            "Executes a read-only server-side Lua script by SHA1 digest.",
        )
    },
];

/// Lends the loop's state of Lua to `user`, which returns whether it may be kept.
fn with_machine<T>(
    context: &mut Context<'_>,
    user: impl FnOnce(&mut Context<'_>, &mut Machine) -> (T, bool),
) -> Result<T, String> {
    let kept = MACHINE.take();
    let mut machine = match kept {
        Some(machine) => machine,
        None => Machine::new(context.engine().script_bytes_max)
            .map_err(|text| format!("ERR scripts cannot run: {text}"))?,
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
        let compiled = machine.compile(script.name, &script.body, generation);
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
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
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

/// Returns the number of keys, which argument 2 gives.
fn keys_of(context: &Context<'_>) -> Result<usize, &'static str> {
    let count = parse_integer(context.argument(2));
    let count = count.ok_or("ERR value is not an integer or out of range")?;
    match usize::try_from(count) {
        Ok(count) if count <= context.count() - 3 => Ok(count),
        Ok(_) => Err("ERR Number of keys can't be greater than number of args"),
        Err(_) => Err("ERR Number of keys can't be negative"),
    }
}

fn eval(context: &mut Context<'_>, read_only: bool) -> Run {
    let keys = keys_of(context)?;
    let name = sha1_of(context.argument(1));
    let script = match context.shared.scripts.find(&name) {
        Some((script, _)) => script,
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
    run(context, &script, keys, read_only)
}

fn eval_named(context: &mut Context<'_>, read_only: bool) -> Run {
    let keys = keys_of(context)?;
    let known = parsed(context.argument(1)).and_then(|name| context.shared.scripts.find(&name));
    match known {
        Some((script, _)) => run(context, &script, keys, read_only),
        None => context.fail("NOSCRIPT No matching script. Please use EVAL."),
    }
}

fn run(context: &mut Context<'_>, script: &Script, keys: usize, read_only: bool) -> Run {
    if read_only && script.has_shebang && !script.no_writes {
        return context.fail("ERR Can not execute a script with write flag using *_ro command.");
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
    let read_only = read_only || script.no_writes;
    let messages = context
        .session
        .subscriptions
        .as_ref()
        .map_or(0, |of| of.changes());
    let lent = with_machine(context, |context, machine| {
        let began = now();
        let run = run_in(context, machine, script, (keys, read_only));
        if let Some(scripts) = &mut context.progress.scripts {
            scripts.spend(context.exec_index, now().duration_since(began));
            if run.0.is_ok() {
                scripts.returned();
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
    if run.is_err()
        && let Some(subscriptions) = &mut context.session.subscriptions
    {
        subscriptions.forget_messages(messages);
    }
    run
}

/// Runs the script in a state of Lua. Returns false with the result if the state must not be used
/// again.
fn run_in(
    context: &mut Context<'_>,
    machine: &mut Machine,
    script: &Script,
    (keys, read_only): (usize, bool),
) -> (Run, bool) {
    let generation = context.shared.scripts.generation();
    let function = match machine.compile(script.name, &script.body, generation) {
        Ok(function) => function,
        Err(text) => {
            let text = format!("ERR Error compiling script (new function): {text}");
            return (context.fail(&text), false);
        }
    };
    let arguments: Vec<&[u8]> = context.arguments.from(3).collect();
    let limit_ms = context.shared.settings.script_ms();
    let limits = limits(context, limit_ms);
    // What an EXEC around it has changed, and what the script changes.
    let mut of_exec = context.data().overlay.take();
    let mut own = Overlay::default();
    let overlay = of_exec.as_deref_mut().unwrap_or(&mut own);
    let mut caller = Caller::new(context, overlay, read_only);
    let outcome = machine.run(
        &function,
        arguments.split_at(keys),
        limits,
        &mut |lua, asked, of| caller.answer(lua, asked, &of),
    );
    let interrupted = caller.interrupted.take();
    drop(caller);
    context.data().overlay = of_exec;
    match outcome {
        Outcome::Returned(value) => reply(context, machine, &value),
        Outcome::Failed(failure) => (context.fail(&described(&failure, script)), true),
        Outcome::Ended(Ending::Interrupted) => {
            (Err(interrupted.unwrap_or(Interrupted::Yield)), true)
        }
        Outcome::Ended(Ending::Killed) => {
            let text = "ERR Script killed by user with SCRIPT KILL.";
            (Err(Interrupted::Ended(text.to_owned())), true)
        }
        Outcome::Ended(Ending::TimeOver) => {
            let text = format!(
                "ERR the script was ended after {limit_ms} ms, and has changed nothing: it must \
                 do less, or lua-time-limit must be longer"
            );
            (Err(Interrupted::Ended(text)), true)
        }
        Outcome::NoMemory => (no_memory(context), false),
    }
}

/// Returns what the next run of the script may take.
fn limits(context: &mut Context<'_>, limit_ms: u64) -> Limits {
    let scripts = context.progress.scripts.get_or_insert_default();
    // Of another call of the same script, these bits of the clock are others.
    let moment = scripts.moment.unwrap_or_default();
    let running = scripts.running(|| context.shared.scripts.begin());
    let (kills, kills_before) = running.kills();
    let left = Duration::from_millis(limit_ms).saturating_sub(scripts.spent(context.exec_index));
    Limits {
        seed: moment.subsec_nanos() ^ u32::try_from(moment.as_secs() & 0xffff_ffff).unwrap_or(0),
        // 0, and what no clock reaches, is no limit.
        until: (limit_ms > 0).then(|| now().checked_add(left)).flatten(),
        kills,
        kills_before,
    }
}

/// Replies with what the script has returned; the result is that of [`run_in`].
fn reply(context: &mut Context<'_>, machine: &Machine, value: &Value) -> (Run, bool) {
    let mut reply = Reply {
        version: context.session.version,
        chosen: machine.version(),
        out_max: context.reply_start + context.engine().reply_bytes_max,
        out: context.out,
        elements: 0,
    };
    let written = reply.write(value, 0);
    let is_too_long = reply.is_too_long();
    match written {
        _ if is_too_long => (Err(Interrupted::ReplyTooLong), true),
        Ok(()) => (context.check_reply(), true),
        Err(_) => (no_memory(context), false),
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
fn described(failure: &Failure, script: &Script) -> String {
    let (text, name) = (&failure.text, hex(&script.name));
    match &failure.place {
        Some((chunk, line)) => format!("{text} script: {name}, on {chunk}:{line}."),
        None => format!("{text} script: {name}, on @user_script."),
    }
}
