//! A state of Lua, and a run of a script in it.
//!
//! A state belongs to one thread, which runs one script at a time. What a run may take is bounded:
//!
//! - its memory, by the allocator of the state. A state that had too little is dropped.
//! - its time: a hook looks at the clock after a thousand instructions. It does not look
//!   inside functions of C: the sandbox does, before those that may take long, and searches long
//!   texts with functions of its own ([`strings`]).
//! - the machine's stack, which functions of C take that call Lua: `check_stack` of the sandbox.
//!
//! A run ends early when a command has to wait, when it takes too long, or when it is killed
//! ([`Ending`]). From then on each hook, each `redis.call` and whatever catches errors (the
//! sandbox has them all) raises an error again, and the result of the run does not count.

use std::rc::Rc;

use mlua::{
    Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value, VmState,
};
use pando_resp::Version;

use super::guard::{Ending, Failure, Guard, Limits};
use super::native::until_zero;
use super::unbounded::Unbounded;
use super::{json, message_pack, numbers, redis, strings, structure};

/// Instructions between two looks at the clock: some microseconds, but for instructions that call
/// functions of C which take long.
const INSTRUCTIONS_PER_LOOK: u32 = 1000;
/// Number of compiled scripts that a state keeps.
const COMPILED_MAX: usize = 500;
/// Bytes that a string of Lua takes in a table, beside its own.
const STRING_BYTES: usize = 64;

/// What a run calls: `redis.call` with its arguments in the protocol version that the script has
/// chosen. Returns `None` if the run has to end.
pub(crate) type Call<'a> =
    &'a mut dyn FnMut(&Lua, Asked, MultiValue) -> mlua::Result<Option<MultiValue>>;

/// What is run of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    /// The chunk is a script.
    Script,
    /// The chunk is a library, which registers its functions; the one with this name is called.
    Function(&'a [u8]),
    /// The chunk is a library, which registers its functions: they are what it returns.
    Library,
}

/// Bounds of what a library registers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LibraryLimits {
    pub(crate) functions_max: usize,
    pub(crate) name_bytes_max: usize,
    pub(crate) description_bytes_max: usize,
}

/// What a script asks the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The command is not run: the question is whether it may be.
    pub(crate) only_checks: bool,
    /// Version of the reply.
    pub(crate) version: Version,
}

/// How a run has ended.
pub(crate) enum Outcome {
    Returned(Value),
    Failed(Failure),
    Ended(Ending),
    /// There was not enough memory: the state must not be used any more.
    NoMemory,
}

/// A state of Lua.
pub(crate) struct Machine {
    lua: Lua,
    guard: Rc<Guard>,
    load: Function,
    run: Function,
    call_function: Function,
    register: Function,
    memory_max: usize,
    /// Compiled scripts, by name. They are kept by Lua, since it has room for some thousands of
    /// references from outside only, which arguments of `redis.call` need.
    compiled: Table,
    compiled_count: usize,
    /// The name of the one that was asked for last, and that one.
    last: Option<(Box<[u8]>, Function)>,
    /// The script cache was emptied this often when they were compiled.
    generation: u64,
}

/// The text of an error that came out of the state.
fn text_of(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } => text_of(cause),
        mlua::Error::MemoryError(_) => "not enough memory".to_owned(),
        mlua::Error::RuntimeError(text) => text.lines().next().unwrap_or_default().to_owned(),
        other => other.to_string(),
    }
}

fn shown(text: &LuaString) -> String {
    String::from_utf8_lossy(until_zero(&text.as_bytes())).into_owned()
}

/// Returns the text of an error that a script has raised with `value`.
fn raised(value: &Value) -> String {
    let text = match value {
        Value::Table(table) => {
            return match table.raw_get::<Value>("err") {
                Ok(Value::String(text)) => shown(&text),
                _ => "ERR unknown error".to_owned(),
            };
        }
        Value::String(text) => shown(text),
        Value::Error(error) => text_of(error),
        Value::Nil => "nil".to_owned(),
        Value::Boolean(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        other => format!("({})", other.type_name()),
    };
    format!("ERR {text}")
}

/// Returns the chunk and line of the script's innermost function that runs.
fn place(lua: &Lua) -> Option<(String, usize)> {
    for level in 1.. {
        let found = lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let chunk = source.source.as_deref().unwrap_or_default();
            let is_own = source.what != "C" && chunk != "=sandbox";
            is_own.then(|| (chunk.to_owned(), debug.current_line().unwrap_or(0)))
        });
        match found {
            None => return None,
            Some(None) => {}
            Some(place) => return place,
        }
    }
    None
}

/// Returns the table of all native functions.
pub(super) fn native_functions(
    lua: &Lua,
    guard: &Rc<Guard>,
    memory_max: usize,
) -> mlua::Result<Table> {
    let native = lua.create_table()?;
    let of_question = guard.clone();
    let is_ending = move |_: &Lua, ()| Ok(of_question.ending.get().is_some());
    native.raw_set("is_ending", lua.create_function(is_ending)?)?;
    native.raw_set("redis", redis::table(lua, guard)?)?;
    native.raw_set("math", numbers::table(lua, guard)?)?;
    native.raw_set("cjson", json::table(lua, guard, memory_max)?)?;
    native.raw_set("cmsgpack", message_pack::table(lua, guard, memory_max)?)?;
    native.raw_set("struct", structure::table(lua, guard, memory_max)?)?;
    native.raw_set("strings", strings::table(lua, guard)?)?;
    Ok(native)
}

impl Machine {
    /// Returns a state that takes `memory_max` bytes at most.
    ///
    /// # Errors
    /// The text of what Lua does not allow; for lack of memory, for example.
    pub(crate) fn new(memory_max: usize, of_libraries: LibraryLimits) -> Result<Self, String> {
        Self::build(memory_max, of_libraries).map_err(|error| text_of(&error))
    }

    fn build(memory_max: usize, of_libraries: LibraryLimits) -> mlua::Result<Self> {
        let libraries = [
            StdLib::BIT,
            StdLib::MATH,
            StdLib::OS,
            StdLib::STRING,
            StdLib::TABLE,
        ];
        let libraries = libraries
            .into_iter()
            .fold(StdLib::JIT, |all, one| all | one);
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(true))?;
        lua.set_memory_limit(memory_max)?;
        let guard = Rc::new(Guard::new());
        let native = native_functions(&lua, &guard, memory_max)?;
        let of_handler = guard.clone();
        let handle = lua.create_function(move |lua, value: Value| {
            let failure = Failure {
                text: raised(&value),
                place: place(lua),
            };
            *of_handler.failure.borrow_mut() = Some(failure);
            Ok(())
        })?;
        native.raw_set("handle", handle)?;
        let of_hook = guard.clone();
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS_PER_LOOK);
        lua.set_global_hook(triggers, move |_, _| match of_hook.look() {
            true => Err(mlua::Error::runtime("the script is ended")),
            false => Ok(VmState::Continue),
        })?;
        let of_stack = guard.clone();
        let check = move |_: &Lua, ()| Ok(!of_stack.is_deep());
        native.raw_set("check_stack", lua.create_function(check)?)?;
        native.raw_set("functions_max", of_libraries.functions_max)?;
        native.raw_set("name_bytes_max", of_libraries.name_bytes_max)?;
        let description_bytes_max = of_libraries.description_bytes_max;
        native.raw_set("description_bytes_max", description_bytes_max)?;
        let sandbox = lua.load(include_str!("sandbox.lua")).set_name("=sandbox");
        sandbox.into_function()?.call::<()>(&native)?;
        let compiled = lua.create_table()?;
        Ok(Self {
            load: native.raw_get("load")?,
            run: native.raw_get("run")?,
            call_function: native.raw_get("call_function")?,
            register: native.raw_get("register")?,
            lua,
            guard,
            memory_max,
            compiled,
            compiled_count: 0,
            last: None,
            generation: 0,
        })
    }

    /// Returns the function that a chunk is, if it was compiled before.
    pub(crate) fn compiled(&mut self, name: &[u8], generation: u64) -> Option<Function> {
        self.compiled_in_lua(name, generation).ok()?
    }

    fn compiled_in_lua(&mut self, name: &[u8], generation: u64) -> mlua::Result<Option<Function>> {
        if self.generation != generation || self.compiled_count >= COMPILED_MAX {
            self.compiled = self.lua.create_table()?;
            self.compiled_count = 0;
            self.last = None;
            self.generation = generation;
        }
        if let Some((last, function)) = &self.last
            && **last == *name
        {
            return Ok(Some(function.clone()));
        }
        let found = self.compiled.raw_get(self.lua.create_string(name)?)?;
        let Value::Function(function) = found else {
            return Ok(None);
        };
        self.last = Some((name.into(), function.clone()));
        Ok(Some(function))
    }

    /// Returns the function that a chunk is, compiled before or now. `name` tells it from others,
    /// errors call it `chunk`.
    ///
    /// # Errors
    /// What is wrong with the chunk.
    pub(crate) fn compile(
        &mut self,
        (name, chunk): (&[u8], &str),
        body: &[u8],
        generation: u64,
    ) -> Result<Function, String> {
        let compiled = self.compile_in_lua((name, chunk), body, generation);
        compiled.map_err(|error| text_of(&error))?
    }

    /// As [`compile`](Self::compile), but for errors that are not the chunk's.
    fn compile_in_lua(
        &mut self,
        (name, chunk): (&[u8], &str),
        body: &[u8],
        generation: u64,
    ) -> mlua::Result<Result<Function, String>> {
        if let Some(function) = self.compiled_in_lua(name, generation)? {
            return Ok(Ok(function));
        }
        let name = self.lua.create_string(name)?;
        let source = self.lua.create_string(body)?;
        Ok(match self.load.call::<(Value, Value)>((source, chunk))? {
            (Value::Function(function), _) => {
                self.compiled.raw_set(name, &function)?;
                self.compiled_count += 1;
                Ok(function)
            }
            (_, Value::String(text)) => Err(text.to_string_lossy()),
            _ => Err("it does not load".to_owned()),
        })
    }

    /// Runs a chunk from its beginning.
    pub(crate) fn run(
        &mut self,
        (function, entry): (&Function, Entry<'_>),
        (keys, argv): (&[&[u8]], &[&[u8]]),
        limits: Limits,
        call: Call<'_>,
    ) -> Outcome {
        self.guard.begin(limits);
        // It was killed while it waited, or an earlier run took all its time.
        if self.guard.look()
            && let Some(ending) = self.guard.finish()
        {
            return Outcome::Ended(ending);
        }
        let result = self.call_guarded((function, entry), (keys, argv), call);
        // The hook looks while the next script is compiled, too.
        if let Some(ending) = self.guard.finish() {
            return Outcome::Ended(ending);
        }
        let failure = self.guard.failure.take();
        let (text, place) = match (result, failure) {
            (Ok((true, value)), _) => return Outcome::Returned(value),
            (Ok((false, _)), Some(failure)) => (failure.text, failure.place),
            // The handler does not run when memory or stack is missing.
            (Ok((false, value)), None) => (raised(&value), None),
            (Err(error), _) => (format!("ERR {}", text_of(&error)), None),
        };
        // The handler takes some memory, too.
        let has_no_memory = match &*text {
            "ERR not enough memory" => true,
            "ERR error in error handling" => self.lua.used_memory() > self.memory_max / 2,
            _ => false,
        };
        match has_no_memory {
            true => Outcome::NoMemory,
            false => Outcome::Failed(Failure { text, place }),
        }
    }

    fn call_guarded(
        &self,
        (function, entry): (&Function, Entry<'_>),
        (keys, argv): (&[&[u8]], &[&[u8]]),
        call: Call<'_>,
    ) -> mlua::Result<(bool, Value)> {
        let guard = &self.guard;
        let bytes = keys
            .iter()
            .chain(argv)
            .map(|string| string.len() + STRING_BYTES);
        let unbounded = Unbounded::begin(&self.lua, bytes.sum());
        self.lua.scope(|scope| {
            let asked = |lua: &Lua, (only_checks, arguments): (bool, MultiValue)| {
                let version = guard.version.get();
                let asked = Asked {
                    only_checks,
                    version,
                };
                let answer = match guard.ending.get() {
                    Some(_) => None,
                    None => call(lua, asked, arguments)?,
                };
                Ok(answer.unwrap_or_else(|| {
                    guard.end(Ending::Interrupted);
                    MultiValue::from_vec(vec![Value::Nil])
                }))
            };
            let asked = scope.create_function_mut(asked)?;
            let (keys, argv) = (self.strings(keys)?, self.strings(argv)?);
            drop(unbounded);
            match entry {
                Entry::Script => (self.run).call::<(bool, Value)>((asked, function, keys, argv)),
                Entry::Function(name) => {
                    let name = self.lua.create_string(name)?;
                    let call = &self.call_function;
                    call.call::<(bool, Value)>((asked, function, name, keys, argv))
                }
                Entry::Library => self.register.call::<(bool, Value)>(function),
            }
        })
    }

    /// Returns a table of strings; `None` for none, since Lua makes an empty one at less cost.
    fn strings(&self, strings: &[&[u8]]) -> mlua::Result<Option<Table>> {
        if strings.is_empty() {
            return Ok(None);
        }
        let table = self.lua.create_table_with_capacity(strings.len(), 0)?;
        for string in strings {
            table.raw_push(self.lua.create_string(string)?)?;
        }
        Ok(Some(table))
    }

    /// Returns the version of the protocol that the last run has chosen.
    pub(crate) fn version(&self) -> Version {
        self.guard.version.get()
    }

    /// Tidies up after a run. Returns false if the state has become too large to be kept.
    pub(crate) fn tidy(&mut self) -> bool {
        if self.lua.used_memory() < self.memory_max / 4 {
            return true;
        }
        let is_collected = self.lua.gc_collect().is_ok();
        is_collected && self.lua.used_memory() < self.memory_max / 2
    }
}
