//! A while in which a state of Lua is not held to its bound of memory.
//!
//! While it is, `mlua` makes each string, table and function in a call that Lua protects, which
//! costs more than all else it does. What is made here is short, made by the server, and fits: else
//! a script that keeps its replies, and needs nothing else, would never meet its bound.

use mlua::Lua;

/// Bytes of what is made in such a while, at most.
pub(crate) const SHORT_BYTES: usize = 64 * 1024;

/// Ends the while when it is dropped.
pub(crate) struct Unbounded<'a> {
    lua: &'a Lua,
    memory_max: usize,
}

impl<'a> Unbounded<'a> {
    /// Begins, if no more than [`SHORT_BYTES`] are made, and the state has room for them. Returns
    /// `None` otherwise.
    pub(crate) fn begin(lua: &'a Lua, bytes: usize) -> Option<Self> {
        if bytes > SHORT_BYTES {
            return None;
        }
        let memory_max = lua.set_memory_limit(0).ok()?;
        let begun = Self { lua, memory_max };
        // Dropped, it sets the bound again.
        (lua.used_memory() + bytes <= memory_max).then_some(begun)
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
    fn what_fits_is_made_and_the_bound_stays() {
        let lua = Lua::new();
        let bound = lua.used_memory() + 16384;
        lua.set_memory_limit(bound).unwrap();
        let too_long = vec![b'x'; 32768];
        assert!(lua.create_string(&too_long).is_err());
        assert!(Unbounded::begin(&lua, SHORT_BYTES + 1).is_none());
        assert!(Unbounded::begin(&lua, too_long.len()).is_none(), "no room");
        assert!(lua.create_string(&too_long).is_err(), "the bound is there");
        let unbounded = Unbounded::begin(&lua, 4096).unwrap();
        let made = lua.create_string(&too_long[..4096]).unwrap();
        drop(unbounded);
        assert!(lua.create_string(&too_long).is_err(), "it is there again");
        drop(made);
    }

    /// Who keeps all that is made in such whiles meets the bound.
    #[test]
    fn many_short_pieces_do_not_exceed_the_bound() {
        let lua = Lua::new();
        let bound = lua.used_memory() + (1 << 20);
        lua.set_memory_limit(bound).unwrap();
        let mut kept = Vec::new();
        for number in 0..1000_u32 {
            let mut piece = vec![b'x'; 4096];
            piece[..4].copy_from_slice(&number.to_be_bytes());
            let unbounded = Unbounded::begin(&lua, 2 * piece.len());
            match lua.create_string(&piece) {
                Ok(piece) => kept.push(piece),
                Err(_) => break,
            }
            drop(unbounded);
        }
        assert!((200..260).contains(&kept.len()), "{}", kept.len());
        assert!(lua.used_memory() <= bound);
    }
}
