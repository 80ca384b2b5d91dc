//! The sandbox's own searches beside those of LuaJIT: the same results, and the same errors.

use std::rc::Rc;

use fastrand::Rng;
use mlua::{Function, Lua, Table, Value};

use super::guard::Guard;
use super::machine::native_functions;

/// Pieces of patterns; of texts those without a meaning.
const PIECES: [&str; 44] = [
    "a", "b", ".", "%a", "%d", "%s", "%W", "%z", "%g", "%.", "[ab]", "[^a]", "[a-c]", "[%a_]",
    "[]]", "[^]]", "[a-]", "[%", "[", "]", "(", ")", "()", "(", ")", "*", "+", "-", "?", "*", "-",
    "^", "$", "%", "%b()", "%bab", "%b", "%f[%w]", "%f[^a]", "%f", "%1", "%2", "%0", "\0",
];
const TEXTS: [&str; 12] = [
    "a", "b", "c", "(", ")", "_", " ", "1", "\0", "aa", "ab", ".",
];
const REPLACEMENTS: [&str; 10] = ["x", "%0", "%1", "%2", "%", "%%", "%a", "<%1%0>", "", "%9"];

/// Calls both, directly and from a line of the script, and returns what differs.
const COMPARE: &str = r#"
local name, s, p, x, y = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local function results(f)
  local out, x = {}, x
  local function note(...)
    out[#out + 1] = select('#', ...)
    for place = 1, select('#', ...) do
      local value = select(place, ...)
      out[#out + 1] = type(value) .. ':' .. tostring(value)
    end
    return ...
  end
  local function called(...)
    local result = f(...) return result
  end
  if name == 'gmatch' then
    note(pcall(f, s, p))
    note(pcall(function()
      local count = 0
      for a, b, c in f(s, p) do
        note(a, b, c)
        count = count + 1
      end
      return count
    end))
    table.remove(out, 3)
    return out
  end
  if x == 'function' then
    x = function(a, b) note(a, b) if b then return b end return a ~= 'a' and a .. '!' end
  elseif x == 'table' then
    x = { a = 'A', b = false, aa = 7, ab = {} }
  elseif x == 'nil' then
    x = nil
  end
  note(pcall(f, s, p, x, y))
  note(pcall(called, s, p, x, y))
  return out
end
local expected, found = results(KEYS[name]), results(string[name])
for place = 1, math.max(#expected, #found) do
  if expected[place] ~= found[place] then
    return tostring(expected[place]) .. ' became ' .. tostring(found[place])
  end
end
return #expected
"#;

/// Returns a function that runs `COMPARE`, where no text is short, so that LuaJIT searches nothing.
fn comparison(lua: &Lua) -> impl Fn(&Table) -> Value {
    let guard = Rc::new(Guard::new());
    let native = native_functions(lua, &guard, 1 << 24).unwrap();
    let strings: Table = native.raw_get("strings").unwrap();
    let none_is_short = lua.create_function(|_, ()| Ok((-1, -1))).unwrap();
    strings.raw_set("lengths", none_is_short).unwrap();
    let yes = lua.create_function(|_, ()| Ok(true)).unwrap();
    native.raw_set("check_stack", yes).unwrap();
    let handle = lua.create_function(|_, text: Value| Ok(text)).unwrap();
    native.raw_set("handle", handle).unwrap();
    let originals = lua.create_table().unwrap();
    let library: Table = lua.globals().raw_get("string").unwrap();
    for pair in library.pairs::<Value, Value>() {
        let (name, function) = pair.unwrap();
        originals.raw_set(name, function).unwrap();
    }
    let sandbox = lua.load(include_str!("sandbox.lua")).set_name("=sandbox");
    sandbox
        .into_function()
        .unwrap()
        .call::<()>(&native)
        .unwrap();
    let load: Function = native.raw_get("load").unwrap();
    let script: Function = load.call((COMPARE, "@compare")).unwrap();
    let run: Function = native.raw_get("run").unwrap();
    move |argv| run.call((&script, &originals, argv)).unwrap()
}

fn text_of(random: &mut Rng, pieces: &[&str], most: usize) -> String {
    let count = random.usize(..=most);
    (0..count)
        .map(|_| pieces[random.usize(..pieces.len())])
        .collect()
}

fn number(random: &mut Rng) -> Value {
    let numbers = [
        1.0,
        2.0,
        0.0,
        -1.0,
        -3.5,
        4.9,
        100.0,
        1e300,
        -1e300,
        4_294_967_298.0,
        f64::NAN,
    ];
    match random.usize(..numbers.len() + 4) {
        place if place < numbers.len() => Value::Number(numbers[place]),
        place if place == numbers.len() => Value::Boolean(true),
        _ => Value::Nil,
    }
}

#[test]
fn searches_find_what_those_of_luajit_find() {
    let lua = Lua::new();
    let compare = comparison(&lua);
    let mut random = Rng::with_seed(7);
    let text = |text: &str| Value::String(lua.create_string(text).unwrap());
    for round in 0..30_000 {
        let name = ["find", "match", "gmatch", "gsub"][round % 4];
        let (s, p) = (
            text_of(&mut random, &TEXTS, 12),
            text_of(&mut random, &PIECES, 7),
        );
        let kind = random.usize(..14);
        let (x, y) = match name {
            "gsub" => {
                let by = match kind {
                    0..10 => text(REPLACEMENTS[kind]),
                    10 => text("function"),
                    11 => text("table"),
                    12 => text("nil"),
                    _ => Value::Number(5.0),
                };
                (by, number(&mut random))
            }
            _ => (number(&mut random), Value::Boolean(kind == 0)),
        };
        let (s, p) = (text(&s), text(&p));
        check(&lua, &compare, [text(name), s, p, x, y]);
    }
}

/// Calls both with these arguments behind the name.
fn check(lua: &Lua, compare: &impl Fn(&Table) -> Value, argv: [Value; 5]) {
    let table = lua.create_table().unwrap();
    for (place, value) in argv.iter().enumerate() {
        table.raw_set(place + 1, value).unwrap();
    }
    let found = compare(&table);
    let is_same = matches!(found, Value::Integer(_) | Value::Number(_));
    assert!(is_same, "{argv:?}: {found:?}");
}

#[test]
fn the_bounds_of_patterns_are_those_of_luajit() {
    let lua = Lua::new();
    let compare = comparison(&lua);
    let text = |text: &str| Value::String(lua.create_string(text).unwrap());
    for count in (30..36).chain(195..205) {
        for piece in ["a?", "()", "(a)", "(", "a*", "a-"] {
            let (s, p) = (text(&"a".repeat(300)), text(&piece.repeat(count)));
            for name in ["find", "match", "gsub"] {
                let by = if name == "gsub" {
                    text("x")
                } else {
                    Value::Nil
                };
                let argv = [text(name), s.clone(), p.clone(), by, Value::Number(2.0)];
                // A fourth argument of `find` that is true means that it has no pattern.
                let argv = match name {
                    "find" => [&argv[..4], &[Value::Nil]].concat(),
                    _ => argv.to_vec(),
                };
                check(&lua, &compare, argv.try_into().unwrap());
            }
        }
    }
}
