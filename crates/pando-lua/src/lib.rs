//! Runs of scripts in a state of Lua, by Lua's own interface: one protected call for a run.
//!
//! `mlua` makes and owns the state. What it does for each value that it hands over (a reference, a
//! protected call, a check) costs more than a short script itself; so the way of a run, of its
//! calls and of its values lies here, and everything else stays with `mlua` (decision 098).
//!
//! [`Gate`] runs a function of Lua, and is what `redis.call` is for the script; [`Run`] is what
//! the caller of a run does in it; [`Stack`] is where values come from and go to.
//!
//! # Why this is sound
//!
//! - **Errors of Lua unwind** through functions of Rust as a panic does, and run their
//!   destructors: LuaJIT raises them by the unwinder of the system (decision 084), all that is
//!   called here is `C-unwind`, and without unwinding this does not compile. Only a protected call
//!   catches them: the one of the run, or one in the script. So a `&mut Stack`, which can raise,
//!   is handed out inside of such a call alone; what may not raise gets a `&Stack`, which only
//!   looks.
//! - **Panics do not reach Lua**: that of [`Run::call`], which runs commands, is kept and goes on
//!   behind the run. One in the conversion of values ends the process: LuaJIT drops an exception
//!   that is not its own, which Rust refuses.
//! - **A run is borrowed once**: its address is in the state while it runs, and whoever takes it
//!   takes it away. A call that finds none raises an error.
//! - **Strings stay where they are** while they are borrowed: they lie on the stack, whose borrow
//!   ends before anything is taken off it, and Lua moves no strings.

#[cfg(panic = "abort")]
compile_error!("errors of Lua unwind through functions of Rust: this needs `panic = \"unwind\"`");

mod gate;
#[cfg(test)]
mod gate_tests;
mod stack;

pub use gate::{Functions, Gate, IS_COUNTED, Run, RunError, Which};
pub use stack::{Kept, Stack, View};
