//! Runs a library, to learn which functions it registers.

use mlua::{LuaString, Table, Value};
use pando_sync::Arc;
use pando_sync::atomic::AtomicU64;
use pando_sync::time::Instant;

use crate::commands::script::eval::{LIBRARY_CHUNK, library_key, with_machine};
use crate::context::{Context, Interrupted};
use crate::data::functions::{Registered, body_of};
use crate::lua::{Limits, Machine, Outcome, sha1_of};

/// Returns a limit of time for code that nobody can kill.
fn limits(until: Instant) -> Limits {
    Limits {
        seed: 0,
        until: Some(until),
        leaves_at: None,
        is_left: None,
        kills: Arc::new(AtomicU64::new(0)),
        kills_before: 0,
    }
}

/// Returns the functions of a list that the sandbox has made; `None` if they take more bytes than a
/// library may. In Lua, equal texts are one.
fn read(list: &Table, bytes_max: usize) -> mlua::Result<Option<Vec<Registered>>> {
    let (mut functions, mut bytes) = (Vec::new(), 0);
    for place in 1..=list.raw_len() {
        let of: Table = list.raw_get(place)?;
        let name: LuaString = of.raw_get("name")?;
        let description: Option<LuaString> = of.raw_get("description")?;
        let flags: Option<u8> = of.raw_get("flags")?;
        bytes += name.as_bytes().len();
        bytes += description.as_ref().map_or(0, |text| text.as_bytes().len());
        if bytes > bytes_max {
            return Ok(None);
        }
        functions.push(Registered {
            name: name.as_bytes().to_vec(),
            description: description.map(|text| text.as_bytes().to_vec()),
            flags: flags.unwrap_or(0),
        });
    }
    functions.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Some(functions))
}

/// Runs it. Returns false with the result if the state must not be used again.
fn register(
    context: &Context<'_>,
    machine: &mut Machine,
    code: &[u8],
    limits: Limits,
) -> (Result<Vec<Registered>, String>, bool) {
    let bytes_max = context.engine().function_bytes_max;
    let generation = context.shared.scripts.generation();
    let key = library_key(&sha1_of(code));
    let compiled = machine.compile((&key, LIBRARY_CHUNK), body_of(code), generation);
    let chunk = match compiled {
        Ok(chunk) => chunk,
        Err(text) => {
            let may_stay = text != "not enough memory";
            return (
                Err(format!("ERR Error compiling function: {text}")),
                may_stay,
            );
        }
    };
    let outcome = machine.register(&chunk, limits);
    let problem = match outcome {
        Outcome::Returned(Value::Table(list)) => match read(&list, bytes_max) {
            Ok(Some(functions)) => return (Ok(functions), true),
            Ok(None) => format!("ERR all descriptions have {bytes_max} bytes at most"),
            Err(error) => format!("ERR {error}"),
        },
        Outcome::Returned(_) => "ERR it has registered nothing".to_owned(),
        Outcome::Failed(failure) => failure.text,
        Outcome::Ended(_) => "ERR FUNCTION LOAD timeout".to_owned(),
        Outcome::NoMemory => {
            let text = "ERR Error registering functions: ERR not enough memory";
            return (Err(text.to_owned()), false);
        }
    };
    (
        Err(format!("ERR Error registering functions: {problem}")),
        true,
    )
}

/// Returns the functions that a library registers, in the order of their names.
pub(super) fn functions_of(
    context: &mut Context<'_>,
    code: &[u8],
    until: Instant,
) -> Result<Vec<Registered>, Interrupted> {
    let functions = with_machine(context, |context, machine| {
        register(context, machine, code, limits(until))
    })??;
    if functions.is_empty() {
        return Err("ERR No functions registered".into());
    }
    Ok(functions)
}
