//! The coherence audit: counts the cache lines that move between cores, by the structure that owns
//! them.
//!
//! Built with `--cfg pando_audit`, every atomic access of a thread that called `enter_core` is
//! reported to a model of cache-line ownership (the sharing part of MESI: a line is either shared
//! by the cores that read it or owned by the one that wrote it last). A *transfer* is an access
//! that would have to fetch the line from another core. Structures name their memory once with
//! [`name`]; a transfer is counted for that name, so that unexpected sharing is reported by
//! structure.
//!
//! The audit also sees what the standard library shares: each clone and drop of an `Arc` changes
//! its counts (counted for the type), and taking a lock writes its line.
//!
//! Without the cfg, [`name`] does nothing and costs nothing, and the rest does not exist. The model
//! counts only sharing, not capacity misses. Of plain memory it sees only what [`read`] reports:
//! fields that hot paths read, and that must not share a line with anything that others write.
//! Dereferences of an `Arc` and uses of a `CoreLocal` report themselves.

/// Declares that the memory of `value` belongs to the structure called `structure`.
///
/// Call it once the value is at its final address (in a `Box`, an `Arc`, a mapping).
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

/// Reports that the calling thread reads a plain field.
#[inline]
pub fn read<T: ?Sized>(field: &T) {
    #[cfg(pando_audit)]
    {
        let owner = model::Owner::Named("unnamed");
        model::report(std::ptr::from_ref(field).cast::<u8>().addr(), false, owner);
    }
    #[cfg(not(pando_audit))]
    let _ = field;
}

#[cfg(pando_audit)]
pub use model::{Transfers, enter_core, leave_core, simulated_core, take_transfers};

#[cfg(pando_audit)]
mod model {
    use std::cell::Cell;
    use std::cmp::Reverse;
    use std::collections::{BTreeMap, HashMap};
    use std::sync::Mutex;

    const LINE_BYTES: usize = 64;
    /// Maximum number of names that are checked before an address counts as unnamed.
    const NESTED_MAX: usize = 64;

    thread_local! {
        static CORE: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// The owner of an address.
    #[derive(Clone, Copy)]
    pub(crate) enum Owner {
        /// This structure, whatever it lies in.
        Itself(&'static str),
        /// The innermost named structure, or this one if there is none.
        Named(&'static str),
    }

    #[derive(Default)]
    struct Line {
        /// One bit for each core that has a valid copy.
        holders: u64,
        /// The only holder may write without a transfer.
        exclusive: bool,
    }

    #[derive(Default)]
    struct Model {
        /// Names by start and end address; of those with the same start, the longest comes first.
        names: BTreeMap<(usize, Reverse<usize>), &'static str>,
        lines: HashMap<usize, Line>,
        transfers: BTreeMap<&'static str, u64>,
    }

    static MODEL: Mutex<Option<Model>> = Mutex::new(None);

    /// Line transfers since the last [`take_transfers`], by structure.
    pub type Transfers = BTreeMap<&'static str, u64>;

    /// Makes the calling thread run on the simulated core `core` (0 to 63) from now on.
    pub fn enter_core(core: u32) {
        assert!(core < 64, "the audit models at most 64 cores");
        CORE.set(Some(core));
    }

    /// Stops counting the accesses of the calling thread.
    pub fn leave_core() {
        CORE.set(None);
    }

    /// Returns the simulated core of the calling thread.
    pub fn simulated_core() -> Option<u32> {
        CORE.get()
    }

    /// Returns the counts and resets them to zero. Ownership of lines is kept.
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
        if bytes == 0 {
            return;
        }
        let end = start + bytes;
        with(|model| {
            // Names of what was in this memory before are removed. A structure is named before its
            // parts, and the first part may have the same start.
            let here = (start, Reverse(end))..(end, Reverse(usize::MAX));
            let inside: Vec<_> = model.names.range(here).map(|(name, _)| *name).collect();
            for name in inside {
                model.names.remove(&name);
            }
            model.names.insert((start, Reverse(end)), structure);
        });
    }

    /// Reports an access to `address`, which belongs to `owner` unless a name says otherwise.
    pub(crate) fn report(address: usize, write: bool, owner: Owner) {
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
                // The innermost of the structures that contain the address: a structure named
                // inside another one starts later.
                let before = model.names.range(..=(address, Reverse(0))).rev();
                let mut before = before.take(NESTED_MAX);
                let mut named = || before.find(|((_, Reverse(end)), _)| address < *end);
                let structure = match owner {
                    Owner::Itself(structure) => structure,
                    Owner::Named(or) => named().map_or(or, |(_, structure)| *structure),
                };
                *model.transfers.entry(structure).or_default() += 1;
            }
        });
    }
}

/// Reports that a lock was taken, which writes its line.
#[cfg(pando_audit)]
pub(crate) fn locked<T>(lock: &T) {
    let owner = model::Owner::Named(std::any::type_name::<T>());
    model::report(std::ptr::from_ref(lock).addr(), true, owner);
}

#[cfg(pando_audit)]
pub(crate) mod arc {
    //! `std`'s `Arc`, with each change of its counts reported.

    use super::model::{Owner, report};
    use std::fmt::{Display, Formatter, Result};
    use std::ops::Deref;
    use std::sync::Arc as Inner;

    /// Bytes of the two counts before the value.
    const COUNTS_BYTES: usize = 2 * size_of::<usize>();

    /// The `Arc` of `std`. A clone and a drop write the line of its counts.
    #[derive(Debug, Default)]
    pub struct Arc<T: ?Sized>(Inner<T>);

    #[expect(missing_docs, reason = "the functions of std's Arc, one for one")]
    impl<T> Arc<T> {
        pub fn new(value: T) -> Self {
            Self(Inner::new(value))
        }

        pub fn into_inner(this: Self) -> Option<T> {
            let inner = this.0.clone();
            drop(this);
            Inner::into_inner(inner)
        }
    }

    #[expect(missing_docs, reason = "the functions of std's Arc, one for one")]
    impl<T: ?Sized> Arc<T> {
        pub fn ptr_eq(this: &Self, other: &Self) -> bool {
            Inner::ptr_eq(&this.0, &other.0)
        }

        pub fn strong_count(this: &Self) -> usize {
            Inner::strong_count(&this.0)
        }

        fn count(&self) {
            // The counts lie just before the value, as far as its alignment allows.
            let value = Inner::as_ptr(&self.0).cast::<u8>().addr();
            let counts = value - COUNTS_BYTES.max(align_of_val(&*self.0));
            let owner = Owner::Itself(std::any::type_name::<Inner<T>>());
            report(counts, true, owner);
        }
    }

    impl<T: ?Sized> Clone for Arc<T> {
        fn clone(&self) -> Self {
            self.count();
            Self(self.0.clone())
        }
    }

    impl<T: ?Sized> Drop for Arc<T> {
        fn drop(&mut self) {
            self.count();
        }
    }

    impl<T: ?Sized> Deref for Arc<T> {
        type Target = T;
        fn deref(&self) -> &T {
            crate::audit::read(self);
            &self.0
        }
    }

    impl<T: ?Sized + Display> Display for Arc<T> {
        fn fmt(&self, f: &mut Formatter<'_>) -> Result {
            self.0.fmt(f)
        }
    }

    impl From<&str> for Arc<str> {
        fn from(text: &str) -> Self {
            Self(text.into())
        }
    }
}

#[cfg(pando_audit)]
pub(crate) mod atomic {
    //! `std`'s atomics, with each access reported.

    use super::model::{Owner, report};
    pub use std::sync::atomic::{Ordering, fence};

    macro_rules! audited {
        ($name:ident, $inner:ty, $value:ty) => {
            /// The atomic of `std`, with each access reported to the audit.
            #[derive(Debug, Default)]
            #[repr(transparent)]
            pub struct $name($inner);

            #[expect(missing_docs, reason = "the methods of std's atomic, one for one")]
            impl $name {
                pub const fn new(value: $value) -> Self {
                    Self(<$inner>::new(value))
                }
                fn seen(&self, write: bool) {
                    report(
                        std::ptr::from_ref(self).addr(),
                        write,
                        Owner::Named("unnamed"),
                    );
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
