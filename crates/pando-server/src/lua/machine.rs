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

use std::collections::BTreeMap;
use std::rc::Rc;

use mlua::{Function, HookTriggers, Lua, LuaOptions, LuaString, StdLib, Table, Value, VmState};
use pando_lua::{Functions, Gate, IS_COUNTED, Kept};
use pando_resp::{Arguments, Span};
use pando_sync::time::Duration;

use super::guard::{Ending, Failure, Guard, Limits};
use super::native::until_zero;
use super::running::{Calls, Entry, Running};
use super::{json, message_pack, numbers, redis, strings, structure};

/// Instructions between two looks at the clock: some microseconds, but for instructions that call
/// functions of C which take long.
const INSTRUCTIONS_PER_LOOK: u32 = 1000;
/// Number of compiled scripts that a state keeps.
const COMPILED_MAX: usize = 500;
/// Length of a buffer that is kept.
const BUFFER_BYTES_MAX: usize = 16 * 1024;

/// The error of a script that has found too little memory.
const NO_MEMORY: &str = "ERR not enough memory";

/// Bytes of the arguments of a call, and where each lies.
pub(crate) type Buffers = (Vec<u8>, Vec<Span>);

/// A script or library that is compiled.
pub(crate) type Chunk = Rc<Kept>;

/// Bounds of what a library registers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LibraryLimits {
    pub(crate) functions_max: usize,
    pub(crate) name_bytes_max: usize,
    pub(crate) description_bytes_max: usize,
}

/// How a run has ended.
pub(crate) enum Outcome<T> {
    Returned(T),
    Failed(Failure),
    Ended(Ending),
    /// There was not enough memory: the state must not be used any more.
    NoMemory,
}

/// A state of Lua.
pub(crate) struct Machine {
    lua: Lua,
    gate: Gate,
    guard: Rc<Guard>,
    load: Function,
    run: Kept,
    call_function: Kept,
    register: Function,
    forget: Function,
    memory_max: usize,
    /// What is compiled, by name. Lua's registry keeps it: `mlua` has room for some thousands of
    /// references only.
    compiled: BTreeMap<Box<[u8]>, Chunk>,
    /// The name of the one that was asked for last, and that one.
    last: Option<(Box<[u8]>, Chunk)>,
    buffers: Buffers,
    /// There was too little memory to forget what a run has left.
    is_spoilt: bool,
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

/// Returns true if a native function has found too little memory.
fn is_of_memory(error: &mlua::Error) -> bool {
    match error {
        mlua::Error::CallbackError { cause, .. } => is_of_memory(cause),
        other => matches!(other, mlua::Error::MemoryError(_)),
    }
}

fn shown(text: &LuaString) -> String {
    pando_resp::text_of(until_zero(&text.as_bytes()))
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

impl Failure {
    /// Returns that of an error with `value`.
    fn of(value: &Value, place: Option<(String, usize)>) -> Self {
        Self {
            text: raised(value),
            place,
            lacks_memory: matches!(value, Value::Error(error) if is_of_memory(error)),
            is_counted: matches!(value, Value::Table(table)
                if matches!(table.raw_get(IS_COUNTED), Ok(Value::Boolean(true)))),
        }
    }
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
        let (mut gate, functions) = Gate::new(&lua)?;
        let Functions {
            call,
            protected_call,
            check,
        } = functions;
        native.raw_set("call", call)?;
        native.raw_set("pcall", protected_call)?;
        native.raw_set("check", check)?;
        let of_handler = guard.clone();
        let handle = lua.create_function(move |lua, value: Value| {
            let failure = Failure::of(&value, place(lua));
            *of_handler.failure.borrow_mut() = Some(failure);
            Ok(())
        })?;
        native.raw_set("handle", &handle)?;
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
        gate.set_handlers(handle, native.raw_get("after")?)?;
        let kept = |name: &str| lua.create_registry_value(native.raw_get::<Function>(name)?);
        Ok(Self {
            load: native.raw_get("load")?,
            run: kept("run")?,
            call_function: kept("call_function")?,
            register: native.raw_get("register")?,
            forget: native.raw_get("forget")?,
            lua,
            gate,
            guard,
            memory_max,
            compiled: BTreeMap::new(),
            last: None,
            buffers: Buffers::default(),
            is_spoilt: false,
            generation: 0,
        })
    }

    /// Returns a chunk, if it was compiled before.
    pub(crate) fn compiled(&mut self, name: &[u8], generation: u64) -> Option<Chunk> {
        if self.generation != generation || self.compiled.len() >= COMPILED_MAX {
            self.compiled.clear();
            self.last = None;
            self.lua.expire_registry_values();
            self.generation = generation;
        }
        if let Some((last, chunk)) = &self.last
            && **last == *name
        {
            return Some(chunk.clone());
        }
        let (name, chunk) = self.compiled.get_key_value(name)?;
        self.last = Some((name.clone(), chunk.clone()));
        Some(chunk.clone())
    }

    /// Returns a chunk, compiled before or now. `name` tells it from others,
    /// errors call it `chunk`.
    ///
    /// # Errors
    /// What is wrong with the chunk.
    pub(crate) fn compile(
        &mut self,
        (name, chunk): (&[u8], &str),
        body: &[u8],
        generation: u64,
    ) -> Result<Chunk, String> {
        if let Some(chunk) = self.compiled(name, generation) {
            return Ok(chunk);
        }
        let compiled = self.compile_in_lua((name, chunk), body);
        compiled.map_err(|error| text_of(&error))?
    }

    /// As [`compile`](Self::compile), but for errors that are not the chunk's.
    fn compile_in_lua(
        &mut self,
        (name, chunk): (&[u8], &str),
        body: &[u8],
    ) -> mlua::Result<Result<Chunk, String>> {
        let source = self.lua.create_string(body)?;
        Ok(match self.load.call::<(Value, Value)>((source, chunk))? {
            (Value::Function(function), _) => {
                let chunk = Rc::new(self.lua.create_registry_value(function)?);
                self.compiled.insert(name.into(), chunk.clone());
                Ok(chunk)
            }
            (_, Value::String(text)) => Err(pando_resp::text_of(until_zero(&text.as_bytes()))),
            _ => Err("it does not load".to_owned()),
        })
    }

    /// Begins a run. Returns why it must not begin: it was killed while it waited, or an earlier
    /// run took all its time.
    fn begin(&self, limits: Limits) -> Option<Ending> {
        self.guard.begin(limits);
        match self.guard.look() {
            true => self.guard.finish(),
            false => None,
        }
    }

    /// Returns what bounds its runs.
    pub(crate) fn guard(&self) -> Rc<Guard> {
        Rc::clone(&self.guard)
    }

    /// Returns the time for which runs have waited since this was asked last.
    pub(crate) fn take_wait(&self) -> Duration {
        self.guard.waited.take()
    }

    /// Lends buffers for the arguments of calls.
    pub(crate) fn lend(&mut self) -> Buffers {
        std::mem::take(&mut self.buffers)
    }

    /// Takes them back, unless they have become long.
    pub(crate) fn give_back(&mut self, buffers: Buffers) {
        let bytes = buffers.0.capacity() + buffers.1.capacity() * size_of::<Span>();
        if bytes <= BUFFER_BYTES_MAX {
            self.buffers = buffers;
        }
    }

    /// Runs a chunk from its beginning. Its keys are argument 3 of the command and those behind
    /// it.
    pub(crate) fn run(
        &mut self,
        (chunk, entry): (&Chunk, Entry<'_>),
        (arguments, keys): (Arguments<'_>, usize),
        limits: Limits,
        calls: &mut dyn Calls,
    ) -> Outcome<()> {
        if let Some(ending) = self.begin(limits) {
            return Outcome::Ended(ending);
        }
        let function = match entry {
            Entry::Script => &self.run,
            Entry::Function(_) => &self.call_function,
        };
        let mut running = Running {
            guard: &self.guard,
            what: (function, chunk, entry),
            arguments,
            keys,
            calls,
        };
        let result = self.gate.run(&mut running);
        // The hook looks while the next script is compiled, too.
        let ending = self.guard.finish();
        if result.is_err() {
            self.is_spoilt |= self.forget.call::<()>(()).is_err();
        }
        match (ending, result) {
            (Some(ending), _) => Outcome::Ended(ending),
            (None, Ok(())) => Outcome::Returned(()),
            (None, Err(error)) => {
                let text = error.text.as_deref().unwrap_or("unknown error");
                let text = pando_resp::text_of(until_zero(text.as_bytes()));
                self.failed(format!("ERR {text}"), error.lacks_memory)
            }
        }
    }

    /// Runs a library, which registers its functions: they are what it returns.
    pub(crate) fn register(&mut self, chunk: &Chunk, limits: Limits) -> Outcome<Value> {
        if let Some(ending) = self.begin(limits) {
            return Outcome::Ended(ending);
        }
        let result = (self.lua.registry_value::<Function>(chunk))
            .and_then(|function| self.register.call::<(bool, Value)>(function));
        if let Some(ending) = self.guard.finish() {
            return Outcome::Ended(ending);
        }
        match result {
            Ok((true, list)) => Outcome::Returned(list),
            Ok((false, value)) => {
                let failure = Failure::of(&value, None);
                // The sandbox has caught it, so the text alone says it.
                let lacks_memory = failure.text == NO_MEMORY;
                self.failed(failure.text, lacks_memory)
            }
            Err(error) => self.failed(format!("ERR {}", text_of(&error)), is_of_memory(&error)),
        }
    }

    /// Returns how a run has ended with an error, which has `text` if the handler has not run:
    /// that is when memory or stack is missing.
    ///
    /// A script may raise an error with the text of a lack of memory, and the state is sound then.
    /// Coroutines pass on the text of an error alone: such a one counts if little memory is left.
    fn failed<T>(&self, text: String, lacks_memory: bool) -> Outcome<T> {
        let failure = self.guard.failure.take();
        let failure = failure.unwrap_or(Failure {
            text,
            place: None,
            lacks_memory,
            is_counted: false,
        });
        // The handler takes some memory, too.
        let may_lack = matches!(&*failure.text, NO_MEMORY | "ERR error in error handling");
        let is_full = may_lack && self.lua.used_memory() > self.memory_max / 2;
        match lacks_memory || failure.lacks_memory || is_full {
            true => Outcome::NoMemory,
            false => Outcome::Failed(failure),
        }
    }

    /// Tidies up after a run. Returns false if the state must not be kept: it has become too large,
    /// or the next script would find what the last one has left.
    pub(crate) fn tidy(&mut self) -> bool {
        if self.is_spoilt {
            return false;
        }
        if self.lua.used_memory() < self.memory_max / 4 {
            return true;
        }
        let is_collected = self.lua.gc_collect().is_ok();
        is_collected && self.lua.used_memory() < self.memory_max / 2
    }
}
