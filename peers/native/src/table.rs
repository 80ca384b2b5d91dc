//! Engines behind a table of C functions, as `shim.h` says.
//!
//! A [`Store`] may be used by all threads, a [`Worker`] by the one that made it. Bytes that an
//! engine lends are valid during a callback only, which the types of the closures say.

#![expect(unsafe_code, reason = "a C interface")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

const NOT_FOUND: c_int = 0x4000_0000;

#[repr(C)]
#[derive(Clone, Copy)]
struct Slice {
    data: *const c_void,
    bytes: usize,
}

impl Slice {
    fn of(bytes: &[u8]) -> Self {
        Self {
            data: bytes.as_ptr().cast(),
            bytes: bytes.len(),
        }
    }

    /// # Safety
    /// `data` is null, or the bytes are there and do not change for `'a`.
    unsafe fn get<'a>(self) -> Option<&'a [u8]> {
        if self.data.is_null() {
            return None;
        }
        // SAFETY: reserved by the caller.
        Some(unsafe { std::slice::from_raw_parts(self.data.cast(), self.bytes) })
    }
}

#[repr(C)]
struct RawConfig {
    directory: *const c_char,
    cache_bytes: u64,
    direct: u32,
    durable: u32,
    threads: u32,
}

type Read = extern "C" fn(*mut c_void, Slice, Slice);
type ReadAt = extern "C" fn(*mut c_void, usize, Slice);
type Change = extern "C" fn(*mut c_void, Slice) -> Slice;
type OfHandle = unsafe extern "C" fn(*mut c_void) -> c_int;

/// `struct peers_transaction`.
#[repr(C)]
struct Transaction {
    reads: *const Slice,
    read_count: usize,
    keys: *const Slice,
    values: *const Slice,
    put_count: usize,
}

/// `struct peers_engine`.
#[repr(C)]
struct Table {
    open: unsafe extern "C" fn(*const RawConfig, *mut *mut c_void) -> c_int,
    close: OfHandle,
    checkpoint: OfHandle,
    sync: OfHandle,
    begin: unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int,
    end: OfHandle,
    put: unsafe extern "C" fn(*mut c_void, *const Slice, *const Slice, usize) -> c_int,
    get: unsafe extern "C" fn(*mut c_void, Slice, Read, *mut c_void) -> c_int,
    scan: unsafe extern "C" fn(*mut c_void, Slice, usize, Read, *mut c_void, *mut usize) -> c_int,
    update: unsafe extern "C" fn(*mut c_void, Slice, Change, *mut c_void) -> c_int,
    transact: unsafe extern "C" fn(
        *mut c_void,
        *const Transaction,
        ReadAt,
        *mut c_void,
        *mut u64,
    ) -> c_int,
    error: unsafe extern "C" fn(c_int) -> *const c_char,
    version: unsafe extern "C" fn() -> *const c_char,
}

unsafe extern "C" {
    #[cfg(feature = "berkeleydb")]
    static peers_berkeleydb: Table;
    #[cfg(feature = "wiredtiger")]
    static peers_wiredtiger: Table;
}

/// What an engine says is wrong.
#[derive(Debug)]
pub struct Error {
    number: c_int,
    text: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.number)
    }
}

impl std::error::Error for Error {}

type Result<T> = std::result::Result<T, Error>;

impl Table {
    fn check(&self, number: c_int) -> Result<()> {
        if number == 0 {
            return Ok(());
        }
        // SAFETY: both engines answer any number.
        let text = unsafe { (self.error)(number) };
        let text = match text.is_null() {
            true => "unknown error".to_owned(),
            // SAFETY: a string of the engine that ends with 0, read at once.
            false => unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned(),
        };
        Err(Error { number, text })
    }
}

/// What an engine is opened with.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Bytes of its cache.
    pub cache_bytes: u64,
    /// Reads and writes of data go past the page cache.
    pub direct: bool,
    /// A commit returns when it is on disk.
    pub durable: bool,
    /// Most workers at once.
    pub threads: u32,
}

/// An open engine.
pub struct Store {
    table: &'static Table,
    /// Not null until it is closed; from `open` of the table.
    store: *mut c_void,
}

// SAFETY: an environment of Berkeley DB with DB_THREAD, and a connection of WiredTiger, may be
// used by any thread; the shims keep nothing else in a store.
unsafe impl Send for Store {}
// SAFETY: as for Send: by several threads at once, too.
unsafe impl Sync for Store {}

/// Opens Berkeley DB in a directory that exists.
///
/// # Errors
/// Those of the engine.
#[cfg(feature = "berkeleydb")]
pub fn open_berkeleydb(directory: &Path, config: Config) -> Result<Store> {
    // SAFETY: a constant of the shim, initialized before the program starts.
    let table = unsafe { &peers_berkeleydb };
    Store::open(table, directory, config)
}

/// Opens WiredTiger in a directory that exists.
///
/// # Errors
/// Those of the engine.
#[cfg(feature = "wiredtiger")]
pub fn open_wiredtiger(directory: &Path, config: Config) -> Result<Store> {
    // SAFETY: a constant of the shim, initialized before the program starts.
    let table = unsafe { &peers_wiredtiger };
    Store::open(table, directory, config)
}

impl Store {
    fn open(table: &'static Table, directory: &Path, config: Config) -> Result<Self> {
        let directory = CString::new(directory.as_os_str().as_bytes()).map_err(|_| Error {
            number: 22,
            text: "a path with a byte 0".to_owned(),
        })?;
        let raw = RawConfig {
            directory: directory.as_ptr(),
            cache_bytes: config.cache_bytes,
            direct: config.direct.into(),
            durable: config.durable.into(),
            threads: config.threads,
        };
        let mut store = ptr::null_mut();
        // SAFETY: both pointers are valid during the call.
        table.check(unsafe { (table.open)(&raw, &mut store) })?;
        Ok(Self { table, store })
    }

    /// The engine's name and version.
    pub fn version(&self) -> String {
        // SAFETY: answers a constant string.
        let text = unsafe { (self.table.version)() };
        // SAFETY: such a string ends with 0 and stays.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn sync(&self) -> Result<()> {
        // SAFETY: the store is open.
        self.table.check(unsafe { (self.table.sync)(self.store) })
    }

    /// Writes a checkpoint.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn checkpoint(&self) -> Result<()> {
        // SAFETY: the store is open.
        let code = unsafe { (self.table.checkpoint)(self.store) };
        self.table.check(code)
    }

    /// A worker for the calling thread.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn worker(&self) -> Result<Worker<'_>> {
        let mut worker = ptr::null_mut();
        // SAFETY: the store is open, and the other pointer valid during the call.
        let code = unsafe { (self.table.begin)(self.store, &mut worker) };
        self.table.check(code)?;
        Ok(Worker {
            table: self.table,
            worker,
            store: PhantomData,
        })
    }

    /// Closes it.
    ///
    /// # Errors
    /// Those of the engine; it is closed all the same.
    pub fn close(mut self) -> Result<()> {
        self.close_once()
    }

    fn close_once(&mut self) -> Result<()> {
        let store = std::mem::replace(&mut self.store, ptr::null_mut());
        if store.is_null() {
            return Ok(());
        }
        // SAFETY: it is open, no worker borrows it, and nobody uses the pointer again.
        self.table.check(unsafe { (self.table.close)(store) })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // An error has nobody to go to; `close` reports it.
        let _ = self.close_once();
    }
}

/// What one thread has of a store; the pointer keeps it on that thread.
pub struct Worker<'a> {
    table: &'static Table,
    /// From `begin` of the table.
    worker: *mut c_void,
    store: PhantomData<&'a Store>,
}

type ReadFn<'f> = &'f mut dyn FnMut(&[u8], &[u8]);
type ReadAtFn<'f> = &'f mut dyn FnMut(usize, Option<&[u8]>);
type ChangeFn<'f> = &'f mut dyn for<'b> FnMut(Option<&'b [u8]>, &mut Vec<u8>);

struct Changing<'f> {
    change: ChangeFn<'f>,
    value: Vec<u8>,
}

extern "C" fn read(context: *mut c_void, key: Slice, value: Slice) {
    let context: *mut ReadFn<'_> = context.cast();
    // SAFETY: the context of every call with this function is a `ReadFn` that its caller keeps
    // alive and does not use meanwhile.
    let read = unsafe { &mut *context };
    // SAFETY: the engine keeps the bytes as they are during this call.
    let key = unsafe { key.get() };
    // SAFETY: as for the key.
    let value = unsafe { value.get() };
    read(key.unwrap_or_default(), value.unwrap_or_default());
}

extern "C" fn read_at(context: *mut c_void, at: usize, value: Slice) {
    let context: *mut ReadAtFn<'_> = context.cast();
    // SAFETY: the context of every call with this function is a `ReadAtFn` that its caller keeps
    // alive and does not use meanwhile.
    let read = unsafe { &mut *context };
    // SAFETY: the engine keeps the bytes as they are during this call.
    let value = unsafe { value.get() };
    read(at, value);
}

extern "C" fn change(context: *mut c_void, old: Slice) -> Slice {
    let context: *mut Changing<'_> = context.cast();
    // SAFETY: the context of every call with this function is a `Changing` that its caller keeps
    // alive and does not use meanwhile.
    let changing = unsafe { &mut *context };
    // SAFETY: the engine keeps the bytes as they are during this call.
    let old = unsafe { old.get() };
    (changing.change)(old, &mut changing.value);
    Slice::of(&changing.value)
}

impl Worker<'_> {
    /// Puts all entries in one transaction.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn put<'e>(&mut self, entries: impl Iterator<Item = (&'e [u8], &'e [u8])>) -> Result<()> {
        let (keys, values): (Vec<_>, Vec<_>) = entries
            .map(|(key, value)| (Slice::of(key), Slice::of(value)))
            .unzip();
        // SAFETY: the worker is alive; the arrays are as long as the count, and they and the bytes
        // they point to stay during the call.
        let code =
            unsafe { (self.table.put)(self.worker, keys.as_ptr(), values.as_ptr(), keys.len()) };
        self.table.check(code)
    }

    /// Calls `each` with `key` and its value, if it exists; true then.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn get(&mut self, key: &[u8], mut each: ReadFn<'_>) -> Result<bool> {
        let context: *mut ReadFn<'_> = &mut each;
        // SAFETY: the worker is alive, the key and the context stay during the call.
        let code = unsafe { (self.table.get)(self.worker, Slice::of(key), read, context.cast()) };
        if code == NOT_FOUND {
            return Ok(false);
        }
        self.table.check(code).map(|()| true)
    }

    /// Calls `each` with at most `limit` entries from `from` on; answers how many.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn scan(&mut self, from: &[u8], limit: usize, mut each: ReadFn<'_>) -> Result<usize> {
        let mut count = 0;
        let context: *mut ReadFn<'_> = &mut each;
        // SAFETY: the worker is alive; key, context and count stay during the call.
        let code = unsafe {
            (self.table.scan)(
                self.worker,
                Slice::of(from),
                limit,
                read,
                context.cast(),
                &mut count,
            )
        };
        self.table.check(code).map(|()| count)
    }

    /// Reads `reads`, calls `each` with the position and the value of each, and puts `entries`, in
    /// one transaction of the strongest isolation that there is. It is repeated, calls included,
    /// until it is committed; answers how often.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn transact<'e>(
        &mut self,
        reads: impl Iterator<Item = &'e [u8]>,
        entries: impl Iterator<Item = (&'e [u8], &'e [u8])>,
        mut each: ReadAtFn<'_>,
    ) -> Result<u64> {
        let reads: Vec<_> = reads.map(Slice::of).collect();
        let (keys, values): (Vec<_>, Vec<_>) = entries
            .map(|(key, value)| (Slice::of(key), Slice::of(value)))
            .unzip();
        let transaction = Transaction {
            reads: reads.as_ptr(),
            read_count: reads.len(),
            keys: keys.as_ptr(),
            values: values.as_ptr(),
            put_count: keys.len(),
        };
        let mut repeats = 0;
        let context: *mut ReadAtFn<'_> = &mut each;
        // SAFETY: the worker is alive; the arrays are as long as the counts, and they, the bytes
        // they point to, the context and the count stay during the call.
        let code = unsafe {
            (self.table.transact)(
                self.worker,
                &transaction,
                read_at,
                context.cast(),
                &mut repeats,
            )
        };
        self.table.check(code).map(|()| repeats)
    }

    /// Replaces the value of `key` by what `make` makes of the old one, in one transaction; it may
    /// be called again when that has to be repeated.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn update(&mut self, key: &[u8], make: ChangeFn<'_>) -> Result<()> {
        let mut changing = Changing {
            change: make,
            value: Vec::new(),
        };
        let context: *mut Changing<'_> = &mut changing;
        // SAFETY: the worker is alive; key and context stay during the call, and the value of the
        // context as `change` left it until the engine has copied it.
        let code =
            unsafe { (self.table.update)(self.worker, Slice::of(key), change, context.cast()) };
        self.table.check(code)
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        // SAFETY: it is alive, and nobody uses the pointer again.
        let code = unsafe { (self.table.end)(self.worker) };
        // An error has nobody to go to, and closing the store would meet it, too.
        let _ = self.table.check(code);
    }
}
