//! The coherence audit: which cache lines move between cores, and which structure owns them.
//!
//! Built with `--cfg pando_audit`, every atomic access of a thread that called `enter_core` is
//! reported to a model of cache-line ownership (the sharing part of MESI: a line is either shared
//! by the cores that read it or owned by the one that wrote it last). A *transfer* is an access
//! that would have to fetch the line from another core. Structures name their memory once with
//! [`name`]; a transfer is booked to the name, so that a broken promise is reported by structure.
//!
//! Without the cfg [`name`] does nothing and costs nothing, and the rest does not exist.
//! The model counts sharing only: capacity misses, and plain (non-atomic) memory, are not seen.

/// Says that the memory of `value` belongs to the structure called `structure`.
///
/// Call it once the value lies where it will stay (in a `Box`, an `Arc`, a mapping).
#[inline]
pub fn name<T: ?Sized>(structure: &'static str, value: &T) {
    #[cfg(pando_audit)]
    model::name(
        structure,
        std::ptr::from_ref(value).addr(),
        size_of_val(value),
    );
    #[cfg(not(pando_audit))]
    let _ = (structure, value);
}

#[cfg(pando_audit)]
pub use model::{Transfers, enter_core, leave_core, simulated_core, take_transfers};

#[cfg(pando_audit)]
mod model {
    use std::cell::Cell;
    use std::collections::{BTreeMap, HashMap};
    use std::sync::Mutex;

    const LINE_BYTES: usize = 64;
    /// Names that are looked at before an address counts as unnamed.
    const NESTED_MAX: usize = 64;

    thread_local! {
        static CORE: Cell<Option<u32>> = const { Cell::new(None) };
    }

    #[derive(Default)]
    struct Line {
        /// Bit per core that holds a valid copy.
        holders: u64,
        /// The one holder may write without asking.
        exclusive: bool,
    }

    #[derive(Default)]
    struct Model {
        names: BTreeMap<usize, (usize, &'static str)>,
        lines: HashMap<usize, Line>,
        transfers: BTreeMap<&'static str, u64>,
    }

    static MODEL: Mutex<Option<Model>> = Mutex::new(None);

    /// Line transfers since the last [`take_transfers`], by structure.
    pub type Transfers = BTreeMap<&'static str, u64>;

    /// The calling thread runs on simulated core `core` (0 to 63) from here on.
    pub fn enter_core(core: u32) {
        assert!(core < 64, "the audit models at most 64 cores");
        CORE.set(Some(core));
    }

    /// The calling thread is not counted any more.
    pub fn leave_core() {
        CORE.set(None);
    }

    /// The simulated core of the calling thread.
    pub fn simulated_core() -> Option<u32> {
        CORE.get()
    }

    /// Returns the counts and starts again from zero; ownership of lines is kept.
    pub fn take_transfers() -> Transfers {
        with(|model| std::mem::take(&mut model.transfers))
    }

    fn with<R>(f: impl FnOnce(&mut Model) -> R) -> R {
        let mut guard = MODEL
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        f(guard.get_or_insert_with(Model::default))
    }

    pub(super) fn name(structure: &'static str, start: usize, bytes: usize) {
        if bytes > 0 {
            with(|model| model.names.insert(start, (start + bytes, structure)));
        }
    }

    pub(super) fn report(address: usize, write: bool) {
        let Some(core) = CORE.get() else { return };
        with(|model| {
            let bit = 1_u64 << core;
            let line = model.lines.entry(address / LINE_BYTES).or_default();
            let cold = line.holders == 0;
            let transfer = if write {
                let owned = line.holders == bit && line.exclusive;
                let alone = line.holders == bit;
                *line = Line {
                    holders: bit,
                    exclusive: true,
                };
                !(owned || alone || cold)
            } else {
                let held = line.holders & bit != 0;
                line.holders |= bit;
                line.exclusive &= line.holders == bit;
                !(held || cold)
            };
            if transfer {
                // The innermost of the structures that hold the address: what is named inside
                // another one starts later.
                let mut before = model.names.range(..=address).rev().take(NESTED_MAX);
                let structure = before
                    .find(|(_, (end, _))| address < *end)
                    .map_or("unnamed", |(_, (_, structure))| *structure);
                *model.transfers.entry(structure).or_default() += 1;
            }
        });
    }
}

#[cfg(pando_audit)]
pub(crate) mod atomic {
    //! `std`'s atomics, each access reported.

    use super::model::report;
    pub use std::sync::atomic::{Ordering, fence};

    macro_rules! audited {
        ($name:ident, $inner:ty, $value:ty) => {
            /// The atomic of `std`, each access reported to the audit.
            #[derive(Debug, Default)]
            #[repr(transparent)]
            pub struct $name($inner);

            #[expect(missing_docs, reason = "the methods of std's atomic, one for one")]
            impl $name {
                pub const fn new(value: $value) -> Self {
                    Self(<$inner>::new(value))
                }
                fn seen(&self, write: bool) {
                    report(std::ptr::from_ref(self).addr(), write);
                }
                pub fn load(&self, order: Ordering) -> $value {
                    self.seen(false);
                    self.0.load(order)
                }
                pub fn store(&self, value: $value, order: Ordering) {
                    self.seen(true);
                    self.0.store(value, order);
                }
                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    self.seen(true);
                    self.0.swap(value, order)
                }
                pub fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.seen(true);
                    self.0.compare_exchange(current, new, success, failure)
                }
                pub fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.seen(true);
                    self.0.compare_exchange_weak(current, new, success, failure)
                }
                pub fn get_mut(&mut self) -> &mut $value {
                    self.0.get_mut()
                }
                pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                    self.seen(true);
                    self.0.fetch_or(value, order)
                }
                pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                    self.seen(true);
                    self.0.fetch_and(value, order)
                }
            }
        };
    }

    macro_rules! audited_arithmetic {
        ($name:ident, $value:ty) => {
            #[expect(missing_docs, reason = "the methods of std's atomic, one for one")]
            impl $name {
                pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                    self.seen(true);
                    self.0.fetch_add(value, order)
                }
                pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                    self.seen(true);
                    self.0.fetch_sub(value, order)
                }
                pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                    self.seen(true);
                    self.0.fetch_max(value, order)
                }
                pub fn fetch_min(&self, value: $value, order: Ordering) -> $value {
                    self.seen(true);
                    self.0.fetch_min(value, order)
                }
                pub fn fetch_update(
                    &self,
                    set: Ordering,
                    fetch: Ordering,
                    f: impl FnMut($value) -> Option<$value>,
                ) -> Result<$value, $value> {
                    self.seen(true);
                    self.0.fetch_update(set, fetch, f)
                }
            }
        };
    }

    audited!(AtomicBool, std::sync::atomic::AtomicBool, bool);
    audited!(AtomicU8, std::sync::atomic::AtomicU8, u8);
    audited!(AtomicU32, std::sync::atomic::AtomicU32, u32);
    audited!(AtomicU64, std::sync::atomic::AtomicU64, u64);
    audited!(AtomicI64, std::sync::atomic::AtomicI64, i64);
    audited!(AtomicUsize, std::sync::atomic::AtomicUsize, usize);
    audited_arithmetic!(AtomicU8, u8);
    audited_arithmetic!(AtomicU32, u32);
    audited_arithmetic!(AtomicU64, u64);
    audited_arithmetic!(AtomicI64, i64);
    audited_arithmetic!(AtomicUsize, usize);
}
