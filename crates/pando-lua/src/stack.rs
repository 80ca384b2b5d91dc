//! The stack of a state of Lua, by which values come and go.
#![expect(unsafe_code, reason = "calls the interface of Lua, which is C")]

use std::ffi::c_int;
use std::marker::PhantomData;

use mlua::ffi;

/// A value of Lua that is kept from run to run.
pub type Kept = mlua::RegistryKey;

/// A value on the stack, as far as it can be looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum View<'a> {
    /// Nothing, also behind the last value.
    Nil,
    /// True or false.
    Boolean(bool),
    /// A number: all are floats.
    Number(f64),
    /// The bytes of a string.
    Bytes(&'a [u8]),
    /// A table.
    Table,
    /// A function, a coroutine, or an object of C.
    Other,
}

/// The values that a function of Lua has, by their places from 1 on.
///
/// What changes it may raise an error of Lua, for lack of memory for example: that unwinds as a
/// panic does.
#[derive(Debug)]
pub struct Stack<'a> {
    state: *mut ffi::lua_State,
    of: PhantomData<&'a mut ()>,
}

impl Stack<'_> {
    /// Returns the stack of `state`.
    ///
    /// # Safety
    /// The state lives as long as the stack, and only this changes its values meanwhile. Whoever
    /// gets a `&mut` of it is inside of a call that Lua protects.
    pub(crate) unsafe fn new(state: *mut ffi::lua_State) -> Self {
        Self {
            state,
            of: PhantomData,
        }
    }

    /// Returns the number of values, which is the place of the last one.
    #[must_use]
    pub fn top(&self) -> i32 {
        // SAFETY: the state lives.
        unsafe { ffi::lua_gettop(self.state) }
    }

    /// Looks at a value.
    ///
    /// # Panics
    /// There is no such place.
    #[must_use]
    #[inline]
    pub fn view(&self, place: i32) -> View<'_> {
        assert!(place > 0, "places begin with 1");
        // SAFETY: Lua takes any place above 0: behind the last value there is none.
        match unsafe { ffi::lua_type(self.state, place) } {
            ffi::LUA_TNIL | ffi::LUA_TNONE => View::Nil,
            ffi::LUA_TBOOLEAN => {
                // SAFETY: the value is there.
                let value = unsafe { ffi::lua_toboolean(self.state, place) };
                View::Boolean(value != 0)
            }
            // SAFETY: the value is there, and a number.
            ffi::LUA_TNUMBER => View::Number(unsafe { ffi::lua_tonumber(self.state, place) }),
            ffi::LUA_TSTRING => View::Bytes(self.bytes(place)),
            ffi::LUA_TTABLE => View::Table,
            _ => View::Other,
        }
    }

    /// Returns the bytes of the string at `place`.
    #[inline]
    fn bytes(&self, place: i32) -> &[u8] {
        let mut length = 0;
        // SAFETY: the value is a string, so nothing is made or converted.
        let bytes = unsafe { ffi::lua_tolstring(self.state, place, &raw mut length) };
        // SAFETY: the string has these bytes, and does not move. It lives as long as it is on the
        // stack: who takes it off needs a `&mut` of it.
        unsafe { std::slice::from_raw_parts(bytes.cast(), length) }
    }

    /// Makes room for one value.
    #[inline]
    fn reserve(&mut self) {
        // SAFETY: the state lives.
        if unsafe { ffi::lua_checkstack(self.state, 1) } == 0 {
            self.overflow();
        }
    }

    #[cold]
    fn overflow(&mut self) -> ! {
        let text = b"stack overflow";
        // SAFETY: Lua keeps some places for errors. If memory is what is missing, this raises
        // that.
        unsafe { ffi::lua_pushlstring(self.state, text.as_ptr().cast(), text.len()) };
        // SAFETY: a call that Lua protects is around this, and the value is there.
        unsafe { ffi::lua_error(self.state) }
    }

    /// Panics if nothing is at `place`.
    #[inline]
    fn check(&self, place: i32) {
        assert!((1..=self.top()).contains(&place), "no value is there");
    }

    #[inline]
    fn check_table(&self, place: i32) {
        // SAFETY: Lua takes any place above 0, and the first question is whether it is.
        let is_table = place > 0 && unsafe { ffi::lua_type(self.state, place) } == ffi::LUA_TTABLE;
        assert!(is_table, "no table is there");
    }

    /// Takes off all values behind the first `count`.
    ///
    /// # Panics
    /// There are fewer.
    #[inline]
    pub fn truncate(&mut self, count: i32) {
        assert!((0..=self.top()).contains(&count), "there are fewer values");
        // SAFETY: the stack has so many.
        unsafe { ffi::lua_settop(self.state, count) };
    }

    /// Puts a value of the same state on top that was kept.
    #[inline]
    pub fn push_kept(&mut self, kept: &Kept) {
        self.reserve();
        // SAFETY: there is room. A key of another state finds something else, or nothing.
        unsafe { ffi::lua_rawgeti_(self.state, ffi::LUA_REGISTRYINDEX, kept.id()) };
    }

    /// Puts nil on top.
    #[inline]
    pub fn push_nil(&mut self) {
        self.reserve();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushnil(self.state) };
    }

    /// Puts a boolean on top.
    #[inline]
    pub fn push_boolean(&mut self, value: bool) {
        self.reserve();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushboolean(self.state, c_int::from(value)) };
    }

    /// Puts a number on top.
    #[inline]
    pub fn push_number(&mut self, value: f64) {
        self.reserve();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushnumber(self.state, value) };
    }

    /// Puts a string on top.
    #[inline]
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.reserve();
        // SAFETY: there is room, and the bytes are copied; of none, Lua reads none.
        unsafe { ffi::lua_pushlstring_(self.state, bytes.as_ptr().cast(), bytes.len()) };
    }

    /// Puts an empty table on top, with room for that many elements and pairs.
    #[inline]
    pub fn push_table(&mut self, elements: usize, pairs: usize) {
        self.reserve();
        let room = |count: usize| c_int::try_from(count).unwrap_or(c_int::MAX);
        // SAFETY: there is room.
        unsafe { ffi::lua_createtable(self.state, room(elements), room(pairs)) };
    }

    /// Takes the value on top into the table at `table`, as its element `place`.
    ///
    /// # Panics
    /// There is no table, or no value above it.
    #[inline]
    pub fn set_element(&mut self, table: i32, place: i32) {
        self.check_table(table);
        assert!(self.top() > table, "no value is above the table");
        // SAFETY: the table and the value are there.
        unsafe { ffi::lua_rawseti_(self.state, table, place) };
    }

    /// Takes a key and its value, which is on top, into the table at `table`.
    ///
    /// # Panics
    /// There is no table, or no two values above it.
    #[inline]
    pub fn set_pair(&mut self, table: i32) {
        self.check_table(table);
        assert!(self.top() > table + 1, "no two values are above the table");
        // SAFETY: the table, the key and the value are there.
        unsafe { ffi::lua_rawset(self.state, table) };
    }

    /// Puts element `place` of the table at `table` on top.
    ///
    /// # Panics
    /// There is no table.
    #[inline]
    pub fn push_element(&mut self, table: i32, place: i32) {
        self.check_table(table);
        self.reserve();
        // SAFETY: the table is there, and room.
        unsafe { ffi::lua_rawgeti_(self.state, table, place) };
    }

    /// Puts what the table at `table` has for `key` on top.
    ///
    /// # Panics
    /// There is no table.
    #[inline]
    pub fn push_field(&mut self, table: i32, key: &str) {
        self.check_table(table);
        self.push_bytes(key.as_bytes());
        // SAFETY: the table and the key are there.
        unsafe { ffi::lua_rawget_(self.state, table) };
    }

    /// Takes the key on top, and puts the next key of the table at `table` and its value there; of
    /// nil, the first. Returns false, and puts nothing there, behind the last.
    ///
    /// # Panics
    /// There is no table, or no value above it.
    #[inline]
    pub fn next(&mut self, table: i32) -> bool {
        self.check_table(table);
        assert!(self.top() > table, "no key is above the table");
        self.reserve();
        // SAFETY: the table, the key and room are there.
        unsafe { ffi::lua_next(self.state, table) != 0 }
    }

    /// Puts a copy of the value at `place` on top.
    ///
    /// # Panics
    /// No value is there.
    #[inline]
    pub fn push_copy(&mut self, place: i32) {
        self.check(place);
        self.reserve();
        // SAFETY: the value is there, and room.
        unsafe { ffi::lua_pushvalue(self.state, place) };
    }

    /// Moves the value on top to `place`.
    ///
    /// # Panics
    /// No value is there.
    #[inline]
    pub fn insert(&mut self, place: i32) {
        self.check(place);
        // SAFETY: the place is there, and a value on top.
        unsafe { ffi::lua_insert(self.state, place) };
    }

    /// Returns the bytes that all of the state takes, to a kibibyte.
    #[must_use]
    pub fn used_memory(&self) -> usize {
        // SAFETY: the state lives; this counts, and collects nothing.
        let kibibytes = unsafe { ffi::lua_gc(self.state, ffi::LUA_GCCOUNT, 0) };
        usize::try_from(kibibytes).unwrap_or(0) * 1024
    }

    /// Frees what nobody refers to.
    pub fn collect(&mut self) {
        // SAFETY: the state lives, and a call that Lua protects is around this.
        unsafe { ffi::lua_gc(self.state, ffi::LUA_GCCOLLECT, 0) };
    }
}
