//! A run of a function of Lua, and the functions by which it calls back.
#![expect(unsafe_code, reason = "is called by Lua, which is C")]

use std::any::Any;
use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use mlua::{Function, Lua, ffi};

use crate::stack::{Kept, Stack, View};

/// The error that ends a run. What catches errors in the script is to look whether it is ended.
const ENDING: &[u8] = b"the script is ended";
/// Field of the error of a call, as Redis has it: the figures of errors have it already, should
/// the script end with it.
pub const IS_COUNTED: &str = "ignore_error_stats_update";

/// The function by which a script calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// An error of the call is one of the script.
    Call,
    /// An error of the call is what it returns.
    ProtectedCall,
    /// The question is whether a call is allowed.
    Check,
}

/// What Rust does in a run.
pub trait Run {
    /// Pushes a function and its arguments on the empty stack: what is run.
    fn begin(&mut self, stack: &mut Stack<'_>);

    /// Answers a call with these arguments. Returns false if the run has to end; otherwise
    /// [`Run::reply`] comes next. Nothing in it runs anything in the state: the script may have
    /// called from a coroutine.
    fn call(&mut self, which: Which, arguments: &Stack<'_>) -> bool;

    /// Pushes the reply of the last call, one value, on the empty stack. Returns false if it is
    /// the text of an error.
    fn reply(&mut self, stack: &mut Stack<'_>) -> bool;

    /// Takes what the function has returned, which is the only value.
    fn end(&mut self, stack: &mut Stack<'_>);
}

/// How a run has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunError {
    /// The text of the error, if it is one.
    pub text: Option<String>,
    /// Lua has raised it for lack of memory. A script may raise an error with the same text.
    pub lacks_memory: bool,
}

/// A run under way.
struct Running<'a> {
    run: &'a mut dyn Run,
    /// What a call has panicked with.
    panic: Option<Box<dyn Any + Send>>,
}

/// What the functions of a state have as their upvalue: an object of Lua, which lives as long as
/// they do.
struct Shared {
    /// The run under way; null if there is none, and while somebody has taken it.
    running: Cell<*mut Running<'static>>,
    /// A run is under way, whoever has it.
    is_active: Cell<bool>,
    /// The place of the function that is called behind each run.
    after: Cell<c_int>,
}

/// Puts a run back that was taken.
struct Taken<'a> {
    shared: &'a Shared,
    running: *mut Running<'static>,
}

impl<'a> Taken<'a> {
    /// Takes the run under way; `None` if there is none.
    fn begin(shared: &'a Shared) -> Option<Self> {
        let running = shared.running.replace(ptr::null_mut());
        (!running.is_null()).then_some(Self { shared, running })
    }

    fn running(&mut self) -> &mut Running<'static> {
        // SAFETY: the address was not null, so it is that of a run whose [`Gate::run`] has not
        // returned; and it was taken away, so nobody else has it.
        unsafe { &mut *self.running }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.shared.running.set(self.running);
    }
}

/// The functions that a script calls back by.
#[derive(Debug)]
pub struct Functions {
    /// [`Which::Call`].
    pub call: Function,
    /// [`Which::ProtectedCall`].
    pub protected_call: Function,
    /// [`Which::Check`].
    pub check: Function,
}

/// What runs functions in a state of Lua.
#[derive(Debug)]
pub struct Gate {
    /// Keeps the state.
    lua: Lua,
    /// The thread of Lua in which runs begin.
    state: *mut ffi::lua_State,
    /// Lives as long as `enter`, which refers to it.
    shared: *const Shared,
    /// The function of C that is a run.
    enter: Kept,
    /// What is called with an error, where it is raised.
    handler: Kept,
    /// Keeps what is called behind each run.
    _after: Kept,
}

impl Gate {
    /// Returns the gate of a state, and the functions by which its scripts call.
    ///
    /// # Errors
    /// There is not enough memory; or this is called in a coroutine, which may end before the gate
    /// does.
    pub fn new(lua: &Lua) -> mlua::Result<(Self, Functions)> {
        let (of_state, of_shared) = (Cell::new(ptr::null_mut()), Cell::new(ptr::null()));
        let is_main = Cell::new(false);
        let make = |state: *mut ffi::lua_State| {
            of_state.set(state);
            // SAFETY: the state lives, and there is room.
            is_main.set(unsafe { ffi::lua_pushthread(state) } == 1);
            // SAFETY: the thread is on top.
            unsafe { ffi::lua_settop(state, -2) };
            // SAFETY: `exec_raw` protects this, and has room for some values.
            of_shared.set(unsafe { push_functions(state) });
        };
        // SAFETY: what is called keeps the stack in order and has no destructors.
        let made = unsafe { lua.exec_raw::<(Function, Function, Function, Function)>((), make) };
        let (enter, call, protected_call, check) = made?;
        if !is_main.get() {
            return Err(mlua::Error::runtime("runs begin in the main thread of Lua"));
        }
        let nothing = || lua.create_registry_value(mlua::Value::Nil);
        let gate = Self {
            lua: lua.clone(),
            state: of_state.get(),
            shared: of_shared.get(),
            enter: lua.create_registry_value(enter)?,
            handler: nothing()?,
            _after: nothing()?,
        };
        let functions = Functions {
            call,
            protected_call,
            check,
        };
        Ok((gate, functions))
    }

    /// Says what is called with an error of a run, where it is raised, and behind each run that
    /// has returned.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn set_handlers(&mut self, handler: Function, after: Function) -> mlua::Result<()> {
        self.handler = self.lua.create_registry_value(handler)?;
        self._after = self.lua.create_registry_value(after)?;
        self.shared().after.set(self._after.id());
        Ok(())
    }

    fn shared(&self) -> &Shared {
        // SAFETY: it is an object of Lua that `enter` refers to, which the registry keeps.
        unsafe { &*self.shared }
    }

    /// Runs what `run` begins with, to its end.
    ///
    /// # Errors
    /// What it has ended with.
    ///
    /// # Panics
    /// A run is under way; or a call of this one has panicked.
    pub fn run(&self, run: &mut dyn Run) -> Result<(), RunError> {
        let shared = self.shared();
        assert!(!shared.is_active.replace(true), "a run is under way");
        let mut running = Running { run, panic: None };
        shared.running.set((&raw mut running).cast());
        let result = self.enter();
        // Nothing has the address from here on.
        shared.running.set(ptr::null_mut());
        shared.is_active.set(false);
        match running.panic {
            Some(panic) => resume_unwind(panic),
            None => result,
        }
    }

    /// Calls `enter`, protected.
    fn enter(&self) -> Result<(), RunError> {
        let state = self.state;
        // SAFETY: the state lives, and is used by this thread alone, as `Lua` is.
        let base = unsafe { ffi::lua_gettop(state) };
        // SAFETY: as before. It raises nothing.
        if unsafe { ffi::lua_checkstack(state, 3) } == 0 {
            return Err(RunError {
                text: Some("not enough memory".to_owned()),
                lacks_memory: true,
            });
        }
        // SAFETY: there is room.
        unsafe { ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, self.handler.id()) };
        // SAFETY: there is room.
        unsafe { ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, self.enter.id()) };
        // SAFETY: the function is on top, its handler below it.
        let status = unsafe { ffi::lua_pcall(state, 0, 0, base + 1) };
        let result = match status {
            ffi::LUA_OK => Ok(()),
            _ => {
                // SAFETY: nobody else has the stack, and it is only looked at.
                let stack = unsafe { Stack::new(state) };
                let text = match stack.view(base + 2) {
                    View::Bytes(text) => Some(String::from_utf8_lossy(text).into_owned()),
                    _ => None,
                };
                Err(RunError {
                    text,
                    lacks_memory: status == ffi::LUA_ERRMEM,
                })
            }
        };
        // SAFETY: the stack had so many values.
        unsafe { ffi::lua_settop(state, base) };
        result
    }
}

/// Pushes `enter` and the functions by which scripts call. Returns what they share.
///
/// # Safety
/// A call that Lua protects is around this.
unsafe fn push_functions(state: *mut ffi::lua_State) -> *const Shared {
    // SAFETY: as the caller says. An object that Lua makes is aligned for anything in C.
    let shared: *mut Shared = unsafe { ffi::lua_newuserdata(state, size_of::<Shared>()) }.cast();
    let value = Shared {
        running: Cell::new(ptr::null_mut()),
        is_active: Cell::new(false),
        after: Cell::new(0),
    };
    // SAFETY: it is as large as that, and nobody knows it.
    unsafe { shared.write(value) };
    let functions: [ffi::lua_CFunction; 4] = [enter, call, protected_call, check];
    for function in functions {
        // SAFETY: the object is the first value, and there is room.
        unsafe { ffi::lua_pushvalue(state, 1) };
        // SAFETY: its upvalue is on top.
        unsafe { ffi::lua_pushcclosure(state, function, 1) };
    }
    // SAFETY: the object is the first value.
    unsafe { ffi::lua_remove(state, 1) };
    shared
}

/// Returns what the functions of this state share.
///
/// # Safety
/// `state` is that of a function of [`push_functions`], which runs as long as the result is used.
unsafe fn shared<'a>(state: *mut ffi::lua_State) -> &'a Shared {
    // SAFETY: the function has this upvalue.
    let shared = unsafe { ffi::lua_touserdata(state, ffi::lua_upvalueindex(1)) };
    // SAFETY: it is the object that was made with them, which lives as long as they do.
    unsafe { &*shared.cast::<Shared>() }
}

/// Raises an error with a text.
///
/// # Safety
/// `state` is that of a function which Lua has called, and nothing in the frames up to that has to
/// be dropped.
unsafe fn raise(state: *mut ffi::lua_State, text: &[u8]) -> ! {
    // SAFETY: the room of the arguments is there.
    unsafe { ffi::lua_settop(state, 0) };
    // SAFETY: a function of C has room for 20 values.
    unsafe { ffi::lua_pushlstring(state, text.as_ptr().cast(), text.len()) };
    // SAFETY: the value is there.
    unsafe { ffi::lua_error(state) }
}

/// A run: pushes a function, calls it, and takes what it returns.
unsafe extern "C-unwind" fn enter(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua has called this, with what it was made with.
    let shared = unsafe { shared(state) };
    // SAFETY: Lua protects this, and nobody else changes these values.
    let mut stack = unsafe { Stack::new(state) };
    let Some(mut taken) = Taken::begin(shared) else {
        // SAFETY: nothing is to be dropped.
        unsafe { raise(state, ENDING) }
    };
    taken.running().run.begin(&mut stack);
    drop(taken);
    let arguments = stack.top() - 1;
    assert!(arguments >= 0, "a run begins with a function");
    // SAFETY: the function and its arguments are on the stack.
    unsafe { ffi::lua_call(state, arguments, 1) };
    // SAFETY: a function of C has room for 20 values, and one was left.
    unsafe { ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, shared.after.get()) };
    // SAFETY: the function is on top.
    unsafe { ffi::lua_call(state, 0, 0) };
    if let Some(mut taken) = Taken::begin(shared) {
        taken.running().run.end(&mut stack);
    }
    0
}

unsafe extern "C-unwind" fn call(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua has called this.
    unsafe { answer(state, Which::Call) }
}

unsafe extern "C-unwind" fn protected_call(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua has called this.
    unsafe { answer(state, Which::ProtectedCall) }
}

unsafe extern "C-unwind" fn check(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua has called this.
    unsafe { answer(state, Which::Check) }
}

/// Answers a call of the script.
///
/// # Safety
/// `state` is that of a function of [`push_functions`], which Lua has called.
unsafe fn answer(state: *mut ffi::lua_State, which: Which) -> c_int {
    // SAFETY: as the caller says.
    let shared = unsafe { shared(state) };
    // SAFETY: Lua protects this, and nobody else changes these values.
    let mut stack = unsafe { Stack::new(state) };
    if !goes_on(shared, which, &stack) {
        // SAFETY: nothing is to be dropped.
        unsafe { raise(state, ENDING) }
    }
    stack.truncate(0);
    let is_value = {
        let Some(mut taken) = Taken::begin(shared) else {
            return 0;
        };
        taken.running().run.reply(&mut stack)
    };
    assert_eq!(stack.top(), 1, "a reply is one value");
    if is_value {
        return 1;
    }
    let is_caught = which == Which::ProtectedCall;
    stack.push_table(0, 2);
    stack.insert(1);
    stack.push_bytes(b"err");
    stack.insert(2);
    stack.set_pair(1);
    // Nothing was called that would have been counted.
    if which != Which::Check {
        stack.push_bytes(IS_COUNTED.as_bytes());
        stack.push_boolean(true);
        stack.set_pair(1);
    }
    if is_caught {
        return 1;
    }
    // SAFETY: the value is there, and nothing is to be dropped.
    unsafe { ffi::lua_error(state) }
}

/// Has the run answer a call. Returns false if it has to end.
fn goes_on(shared: &Shared, which: Which, stack: &Stack<'_>) -> bool {
    let Some(mut taken) = Taken::begin(shared) else {
        return false;
    };
    let running = taken.running();
    if running.panic.is_some() {
        return false;
    }
    // Nothing in it raises an error of Lua: it has no state that it could change.
    match catch_unwind(AssertUnwindSafe(|| running.run.call(which, stack))) {
        Ok(goes_on) => goes_on,
        Err(panic) => {
            running.panic = Some(panic);
            false
        }
    }
}
