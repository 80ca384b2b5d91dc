//! A while in which a state of Lua is not held to its bound of memory.
//!
//! While it is, `mlua` makes each string, table and function in a call that Lua protects, which
//! costs more than all else it does. What is made here is short, and made by the server: it may
//! exceed the bound by its own length, and whatever the script takes next meets the bound again.

use mlua::Lua;

/// Bytes of what is made in such a while, at most.
pub(crate) const SHORT_BYTES: usize = 64 * 1024;

/// Ends the while when it is dropped.
pub(crate) struct Unbounded<'a> {
    lua: &'a Lua,
    memory_max: usize,
}

impl<'a> Unbounded<'a> {
    /// Begins, if no more than [`SHORT_BYTES`] are made. Returns `None` if more are.
    pub(crate) fn begin(lua: &'a Lua, bytes: usize) -> Option<Self> {
        if bytes > SHORT_BYTES {
            return None;
        }
        let memory_max = lua.set_memory_limit(0).ok()?;
        Some(Self { lua, memory_max })
    }
}

impl Drop for Unbounded<'_> {
    fn drop(&mut self) {
        let is_set = self.lua.set_memory_limit(self.memory_max);
        assert!(is_set.is_ok(), "a state that had a bound can have one");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_holds_before_and_afterwards() {
        let lua = Lua::new();
        let bound = lua.used_memory() + 4096;
        lua.set_memory_limit(bound).unwrap();
        let too_long = vec![b'x'; 8192];
        assert!(lua.create_string(&too_long).is_err());
        assert!(Unbounded::begin(&lua, SHORT_BYTES + 1).is_none());
        assert!(
            lua.create_string(&too_long).is_err(),
            "it is too much to begin"
        );
        let unbounded = Unbounded::begin(&lua, too_long.len()).unwrap();
        let made = lua.create_string(&too_long).unwrap();
        drop(unbounded);
        assert!(lua.used_memory() > bound);
        assert!(lua.create_string(b"another one").is_err());
        drop(made);
    }
}
