//! Tests of runs, with a state that has nothing of the server.

use std::panic::{AssertUnwindSafe, catch_unwind};

use mlua::{Function, Lua};

use crate::{Gate, Kept, Run, RunError, Stack, View, Which};

/// A state whose global functions are those of the gate, and what `source` is there.
fn state(source: &str) -> (Lua, Gate, Kept) {
    let lua = Lua::new();
    let (mut gate, functions) = Gate::new(&lua).unwrap();
    let globals = lua.globals();
    globals.set("call", functions.call).unwrap();
    globals
        .set("protected_call", functions.protected_call)
        .unwrap();
    globals.set("check", functions.check).unwrap();
    lua.load("behind = 0").exec().unwrap();
    let handler: Function = lua
        .load("return function(problem) raised = problem return problem end")
        .eval()
        .unwrap();
    let after: Function = lua
        .load("return function() behind = behind + 1 end")
        .eval()
        .unwrap();
    gate.set_handlers(handler, after).unwrap();
    let function: Function = lua.load(source).into_function().unwrap();
    let kept = lua.create_registry_value(function).unwrap();
    (lua, gate, kept)
}

/// Returns how a run fails that has raised this.
fn failed(text: Option<&str>) -> RunError {
    RunError {
        text: text.map(str::to_owned),
        lacks_memory: false,
    }
}

/// Sums what it is called with, and replies with the sum.
struct Sums<'a> {
    function: &'a Kept,
    arguments: &'a [&'a [u8]],
    sum: f64,
    asked: Vec<Which>,
    returned: Option<String>,
}

impl<'a> Sums<'a> {
    fn new(function: &'a Kept, arguments: &'a [&'a [u8]]) -> Self {
        Self {
            function,
            arguments,
            sum: 0.0,
            asked: Vec::new(),
            returned: None,
        }
    }
}

impl Run for Sums<'_> {
    fn begin(&mut self, stack: &mut Stack<'_>) {
        stack.push_kept(self.function);
        for argument in self.arguments {
            stack.push_bytes(argument);
        }
    }

    fn call(&mut self, which: Which, arguments: &Stack<'_>) -> bool {
        self.asked.push(which);
        for place in 1..=arguments.top() {
            match arguments.view(place) {
                View::Number(number) => self.sum += number,
                View::Bytes(b"panic") => panic!("it is told to"),
                View::Bytes(b"end") => return false,
                _ => self.sum = f64::NAN,
            }
        }
        true
    }

    fn reply(&mut self, stack: &mut Stack<'_>) -> bool {
        if self.sum.is_nan() {
            self.sum = 0.0;
            stack.push_bytes(b"no number");
            return false;
        }
        stack.push_table(1, 1);
        stack.push_number(self.sum);
        stack.set_element(1, 1);
        stack.push_bytes(b"large");
        stack.push_boolean(self.sum > 100.0);
        stack.set_pair(1);
        true
    }

    fn end(&mut self, stack: &mut Stack<'_>) {
        assert_eq!(stack.top(), 1);
        self.returned = Some(format!("{:?}", stack.view(1)));
    }
}

fn bytes(of: &str) -> String {
    format!("{:?}", View::Bytes(of.as_bytes()))
}

#[test]
fn a_run_calls_and_returns() {
    let (lua, gate, function) = state(
        "local a, b = ... local of = call(1, 2) \
         local large = protected_call(1000) check() \
         return a .. b .. of[1] .. large[1] .. tostring(large.large)",
    );
    for number in 1..=3 {
        let mut sums = Sums::new(&function, &[b"x", b"y"]);
        assert_eq!(gate.run(&mut sums), Ok(()));
        assert_eq!(sums.returned, Some(bytes("xy31003true")));
        let asked = [Which::Call, Which::ProtectedCall, Which::Check];
        assert_eq!(sums.asked, asked);
        assert_eq!(lua.globals().get::<i32>("behind").unwrap(), number);
    }
}

#[test]
fn errors_of_calls_are_tables() {
    let (lua, gate, function) = state(
        "local ok, problem = pcall(call, 'x') \
         local other = protected_call('x') \
         local good = call(5) \
         if ok or good[1] ~= 5 or not other.ignore_error_stats_update then return 'wrong' end \
         if problem.err ~= other.err then return 'other' end \
         call('x')",
    );
    let mut sums = Sums::new(&function, &[]);
    assert_eq!(
        gate.run(&mut sums),
        Err(failed(None)),
        "its value is a table"
    );
    assert_eq!(sums.returned, None);
    let raised: mlua::Table = lua.globals().get("raised").unwrap();
    assert_eq!(raised.get::<String>("err").unwrap(), "no number");
    assert_eq!(lua.globals().get::<i32>("behind").unwrap(), 0);
}

#[test]
fn a_run_that_has_to_end_raises_an_error() {
    let (_lua, gate, function) = state("call('end')");
    let mut sums = Sums::new(&function, &[]);
    let ended = Err(failed(Some("the script is ended")));
    assert_eq!(gate.run(&mut sums), ended);
}

/// A panic of a call goes on behind the run, whatever the script does with the error that it sees;
/// and the next run finds nothing of it.
#[test]
fn panics_do_not_reach_lua() {
    let (lua, gate, function) = state(
        "local ok = pcall(call, 'panic') caught = not ok \
         ended = not pcall(call, 1) return 'it goes on'",
    );
    let mut sums = Sums::new(&function, &[]);
    let panicked = catch_unwind(AssertUnwindSafe(|| gate.run(&mut sums))).unwrap_err();
    assert_eq!(panicked.downcast_ref::<&str>(), Some(&"it is told to"));
    assert_eq!(sums.asked, [Which::Call], "nothing is called after it");
    assert!(lua.globals().get::<bool>("caught").unwrap());
    assert!(lua.globals().get::<bool>("ended").unwrap());
    let again = lua.load("return call(1)[1]").into_function().unwrap();
    let again = lua.create_registry_value(again).unwrap();
    let mut sums = Sums::new(&again, &[]);
    assert_eq!(gate.run(&mut sums), Ok(()));
    assert_eq!(sums.returned.as_deref(), Some("Number(1.0)"));
}

/// Who kept a function finds that nothing runs.
#[test]
fn calls_outside_of_a_run_are_errors() {
    let (lua, gate, function) = state("kept = call");
    assert_eq!(gate.run(&mut Sums::new(&function, &[])), Ok(()));
    drop(gate);
    lua.gc_collect().unwrap();
    let problem = lua.load("kept(1)").exec().unwrap_err();
    assert!(problem.to_string().contains("the script is ended"));
}

/// Pushes strings until there is no memory.
struct Fills<'a> {
    function: &'a Kept,
    /// Dropped when the error unwinds.
    dropped: &'a std::cell::Cell<u32>,
    in_call: bool,
}

struct Counts<'a>(&'a std::cell::Cell<u32>);

impl Drop for Counts<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

impl Fills<'_> {
    fn fill(&mut self, stack: &mut Stack<'_>) {
        let _counts = Counts(self.dropped);
        let place = stack.top() + 1;
        stack.push_table(0, 0);
        for number in 1.. {
            stack.push_bytes(format!("{number:0>10000}").as_bytes());
            stack.set_element(place, number);
        }
    }
}

impl Run for Fills<'_> {
    fn begin(&mut self, stack: &mut Stack<'_>) {
        stack.push_kept(self.function);
        if !self.in_call {
            self.fill(stack);
        }
    }

    fn call(&mut self, _: Which, _: &Stack<'_>) -> bool {
        true
    }

    fn reply(&mut self, stack: &mut Stack<'_>) -> bool {
        match self.in_call {
            true => self.fill(stack),
            false => stack.push_nil(),
        }
        true
    }

    fn end(&mut self, _: &mut Stack<'_>) {}
}

/// Too little memory unwinds through functions of Rust, and runs their destructors; a script may
/// catch it, and call again.
#[test]
fn too_little_memory_ends_the_run_or_is_caught() {
    let (lua, gate, function) = state("return call()");
    lua.set_memory_limit(lua.used_memory() + (1 << 20)).unwrap();
    let dropped = std::cell::Cell::new(0);
    let none = Err(RunError {
        text: Some("not enough memory".to_owned()),
        lacks_memory: true,
    });
    for in_call in [false, true] {
        let mut fills = Fills {
            function: &function,
            dropped: &dropped,
            in_call,
        };
        assert_eq!(gate.run(&mut fills), none);
    }
    assert_eq!(dropped.get(), 2);
    let (lua, gate, function) = state("for i = 1, 3 do assert(not pcall(call)) end done = true");
    lua.set_memory_limit(lua.used_memory() + (1 << 20)).unwrap();
    let mut fills = Fills {
        function: &function,
        dropped: &dropped,
        in_call: true,
    };
    assert_eq!(gate.run(&mut fills), Ok(()));
    assert!(lua.globals().get::<bool>("done").unwrap());
    assert_eq!(dropped.get(), 5);
}

/// A run in the middle of which another one begins.
struct Nests<'a> {
    gate: &'a Gate,
    function: &'a Kept,
}

impl Run for Nests<'_> {
    fn begin(&mut self, stack: &mut Stack<'_>) {
        stack.push_kept(self.function);
    }

    fn call(&mut self, _: Which, _: &Stack<'_>) -> bool {
        let mut inner = Sums::new(self.function, &[]);
        self.gate.run(&mut inner).is_ok()
    }

    fn reply(&mut self, stack: &mut Stack<'_>) -> bool {
        stack.push_nil();
        true
    }

    fn end(&mut self, _: &mut Stack<'_>) {}
}

#[test]
fn runs_do_not_nest() {
    let (_lua, gate, function) = state("return call()");
    let mut nests = Nests {
        gate: &gate,
        function: &function,
    };
    let panicked = catch_unwind(AssertUnwindSafe(|| gate.run(&mut nests)));
    assert!(panicked.is_err(), "the second one is refused");
}

#[test]
fn an_error_that_says_so_is_no_lack_of_memory() {
    let (_lua, gate, function) = state("error('not enough memory', 0)");
    let error = gate.run(&mut Sums::new(&function, &[])).unwrap_err();
    assert_eq!(error, failed(Some("not enough memory")));
}

#[test]
fn a_gate_is_of_the_main_thread_of_its_state() {
    let lua = Lua::new();
    let make = |lua: &Lua, ()| Ok(Gate::new(lua).is_ok());
    let make = lua.create_function(make).unwrap();
    assert!(make.call::<bool>(()).unwrap());
    let coroutine = lua.create_thread(make).unwrap();
    assert!(!coroutine.resume::<bool>(()).unwrap());
}
