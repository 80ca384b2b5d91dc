//! A run under way: what it begins with, and what its calls go by.

use pando_lua::{Kept, Run, Stack, Which};
use pando_resp::{Arguments, Version};

use super::guard::{Ending, Guard};

/// The argument that is the first key.
const KEYS: usize = 3;

/// What is run of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    /// The chunk is a script.
    Script,
    /// The chunk is a library, which registers its functions; the one with this name is called.
    Function(&'a [u8]),
}

/// What a script asks the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The command is not run: the question is whether it may be.
    pub(crate) only_checks: bool,
    /// Version of the reply.
    pub(crate) version: Version,
}

/// Who answers the calls of a run.
pub(crate) trait Calls {
    /// Answers a call. Returns false if the run has to end; else [`Calls::reply`] comes next.
    fn call(&mut self, asked: Asked, arguments: &Stack<'_>) -> bool;

    /// Returns whether the last call took so long that the clock is to be looked at: the hook does
    /// not see calls.
    fn was_long(&self) -> bool;

    /// Pushes the reply of the last call. Returns false if it is the text of an error.
    fn reply(&mut self, stack: &mut Stack<'_>) -> bool;

    /// Takes what the script has returned, which is the only value. It has chosen this version.
    fn returned(&mut self, chosen: Version, stack: &mut Stack<'_>);
}

/// Ends the run when it is dropped, unless it was done: an error of Lua that a script can catch, or
/// a panic, has cut something off that must not count.
struct Ends<'a> {
    guard: &'a Guard,
    ending: Option<Ending>,
}

impl<'a> Ends<'a> {
    fn unless_done(guard: &'a Guard, ending: Ending) -> Self {
        let ending = Some(ending);
        Self { guard, ending }
    }

    fn done(mut self) {
        self.ending = None;
    }
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if let Some(ending) = self.ending {
            self.guard.end(ending);
        }
    }
}

/// A run of a script or function.
pub(super) struct Running<'a> {
    pub(super) guard: &'a Guard,
    /// The function of the sandbox, the chunk that it runs, and what of it.
    pub(super) what: (&'a Kept, &'a Kept, Entry<'a>),
    /// Of the command: argument 3 is the first key.
    pub(super) arguments: Arguments<'a>,
    /// Number of keys.
    pub(super) keys: usize,
    pub(super) calls: &'a mut dyn Calls,
}

/// Pushes a table of strings; nil for none, since Lua makes an empty one at less cost.
fn push_strings<'a>(stack: &mut Stack<'_>, strings: impl Iterator<Item = &'a [u8]>, count: usize) {
    if count == 0 {
        return stack.push_nil();
    }
    stack.push_table(count, 0);
    let table = stack.top();
    for (place, string) in (1..).zip(strings) {
        stack.push_bytes(string);
        stack.set_element(table, place);
    }
}

impl Run for Running<'_> {
    fn begin(&mut self, stack: &mut Stack<'_>) {
        let (function, chunk, entry) = self.what;
        stack.push_kept(function);
        stack.push_kept(chunk);
        if let Entry::Function(name) = entry {
            stack.push_bytes(name);
        }
        let (arguments, keys) = (self.arguments, self.keys);
        push_strings(stack, arguments.from(KEYS).take(keys), keys);
        let count = arguments.len() - KEYS - keys;
        push_strings(stack, arguments.from(KEYS + keys), count);
    }

    fn call(&mut self, which: Which, arguments: &Stack<'_>) -> bool {
        let asked = Asked {
            only_checks: which == Which::Check,
            version: self.guard.version.get(),
        };
        let ends = Ends::unless_done(self.guard, Ending::Interrupted);
        let goes_on = self.guard.ending.get().is_none()
            && self.calls.call(asked, arguments)
            && !(self.calls.was_long() && self.guard.look());
        if goes_on {
            ends.done();
        }
        goes_on
    }

    fn reply(&mut self, stack: &mut Stack<'_>) -> bool {
        // The command has had its effect: a script must not go on as if it had failed.
        let ends = Ends::unless_done(self.guard, Ending::NoMemory);
        let is_value = self.calls.reply(stack);
        ends.done();
        is_value
    }

    fn end(&mut self, stack: &mut Stack<'_>) {
        // The result of a run that was ended does not count.
        if self.guard.ending.get().is_none() {
            self.calls.returned(self.guard.version.get(), stack);
        }
    }
}
