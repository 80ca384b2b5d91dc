//! The library `cjson`. What changes how it works does so until the run ends (`json_settings`).

use std::rc::Rc;

use mlua::{Function, Lua, MultiValue, Table, Value};

use super::guard::Guard;
use super::json_decode::Decoder;
use super::json_encode::{Encoder, Problem};
use super::json_settings::{CHOICES, Choice, Kind};
use super::native::{Native, ended, failed, number, returned, text};

/// Returns a table with the functions.
pub(super) fn table(lua: &Lua, guard: &Rc<Guard>, out_max: usize) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let next: Function = lua.globals().raw_get("next")?;
    let of_encode = guard.clone();
    let encode = move |lua: &Lua, arguments: MultiValue| {
        let (Some(value), 1) = (arguments.front(), arguments.len()) else {
            return failed(lua, "bad argument #1 to 'encode' (expected 1 argument)");
        };
        let mut encoder = Encoder {
            out: Vec::new(),
            out_max,
            next: &next,
            settings: of_encode.json.get(),
        };
        match encoder.encode(value) {
            Ok(()) if of_encode.look_behind(encoder.out.len()) => ended(lua),
            Ok(()) => returned(lua, lua.create_string(&encoder.out)?),
            Err(problem) => told(lua, problem),
        }
    };
    table.raw_set("encode", lua.create_function(encode)?)?;
    let of_decode = guard.clone();
    let decode = move |lua: &Lua, arguments: MultiValue| {
        let (Some(value), 1) = (arguments.front(), arguments.len()) else {
            return failed(lua, "bad argument #1 to 'decode' (expected 1 argument)");
        };
        let Some(text) = text(lua, value)? else {
            let found = value.type_name();
            let text = format!("bad argument #1 to 'decode' (string expected, got {found})");
            return failed(lua, &text);
        };
        match Decoder::new(lua, &text.as_bytes(), of_decode.json.get()).decode() {
            Ok(_) if of_decode.look_behind(text.as_bytes().len()) => ended(lua),
            Ok(value) => returned(lua, value),
            Err(problem) => told(lua, problem),
        }
    };
    table.raw_set("decode", lua.create_function(decode)?)?;
    let mut first = 0;
    for choices in CHOICES.chunk_by(|one, next| one.function == next.function) {
        let places = first..first + choices.len();
        first = places.end;
        let of_choice = guard.clone();
        let set = move |lua: &Lua, arguments: MultiValue| {
            let mut settings = of_choice.json.get();
            let chosen = choose(lua, &mut settings.0[places.clone()], choices, &arguments);
            of_choice.json.set(settings);
            chosen
        };
        table.raw_set(choices[0].function, lua.create_function(set)?)?;
    }
    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    Ok(table)
}

/// Changes settings as the arguments of a function say, and returns what they are then.
fn choose(lua: &Lua, settings: &mut [u32], choices: &[Choice], arguments: &MultiValue) -> Native {
    let refused = |place: usize, why: &str| {
        let name = choices[0].function;
        failed(lua, &format!("bad argument #{place} to '{name}' ({why})"))
    };
    if arguments.len() > choices.len() {
        return refused(choices.len() + 1, "found too many arguments");
    }
    let mut values = vec![Value::Boolean(true)];
    for (place, (Choice { kind, .. }, field)) in (1..).zip(choices.iter().zip(settings)) {
        let value = arguments.get(place - 1).unwrap_or(&Value::Nil);
        match (kind, value) {
            (_, Value::Nil) => {}
            (Kind::Word(_), Value::Boolean(yes)) => *field = u32::from(*yes),
            (Kind::Number(min, max), value) => match number(lua, Some(value))?.map(f64::trunc) {
                Some(number) if (f64::from(*min)..=f64::from(*max)).contains(&number) => {
                    *field = whole(number);
                }
                Some(_) => {
                    return refused(1, &format!("expected integer between {min} and {max}"));
                }
                None => {
                    let why = format!("number expected, got {}", value.type_name());
                    return refused(place, &why);
                }
            },
            (Kind::Word(words), value) => {
                let Some(text) = text(lua, value)? else {
                    let why = format!("string expected, got {}", value.type_name());
                    return refused(place, &why);
                };
                let text = text.to_string_lossy();
                match (0..).zip(*words).find(|(_, word)| **word == text) {
                    Some((at, _)) => *field = at,
                    None => return refused(place, &format!("invalid option '{text}'")),
                }
            }
        }
        values.push(match kind {
            Kind::Word(words) if *field > 1 => Value::String(lua.create_string(words[2])?),
            Kind::Word(_) => Value::Boolean(*field == 1),
            Kind::Number(..) => Value::Number(f64::from(*field)),
        });
    }
    Ok(MultiValue::from_vec(values))
}

/// Returns a number that is whole, and at most the largest integer of C.
fn whole(number: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it was compared with its bounds"
    )]
    let whole = number as u32;
    whole
}

fn told(lua: &Lua, problem: Problem) -> Native {
    match problem {
        Problem::Text(text) => failed(lua, &text),
        Problem::Lua(error) => Err(error),
    }
}
