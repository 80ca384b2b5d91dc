//! State of a core: its number, and arrays with one padded element for each core.

use std::ops::{Deref, DerefMut};

use crate::rseq::{self, Area};

/// A value alone on its cache lines: 128 bytes, since x86 fetches lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CachePadded<T>(pub T);

impl<T> Deref for CachePadded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CachePadded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// Maximum number of cores that get a slot of their own. Further cores share slots.
pub const CORES_MAX: usize = 64;

/// Returns the number of slots of a [`CoreLocal`]: a power of two, at least the number of
/// processors of the machine, at most [`CORES_MAX`].
pub fn core_count() -> usize {
    #[cfg(any(pando_loom, pando_shuttle))]
    return 2;
    #[cfg(pando_audit)]
    return CORES_MAX;
    #[cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]
    {
        static COUNT: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        *COUNT.get_or_init(|| {
            let cpus = std::thread::available_parallelism().map_or(1, usize::from);
            cpus.next_power_of_two().min(CORES_MAX)
        })
    }
}

/// Returns the number of the core that the calling thread runs on. The thread may have moved to
/// another one on return.
///
/// Under a model checker all threads share core 0, which is the harder case and is repeatable.
/// Under the audit it is the simulated core.
#[inline]
pub fn core_id() -> usize {
    core_by(rseq::area())
}

/// Like [`core_id`], for callers that know where the C library keeps the number.
#[inline]
fn core_by(area: Option<Area>) -> usize {
    #[cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]
    {
        imp::current_cpu(area)
    }
    #[cfg(any(pando_loom, pando_shuttle, pando_audit))]
    let _ = area;
    #[cfg(pando_audit)]
    {
        crate::audit::simulated_core().unwrap_or(0) as usize
    }
    #[cfg(any(pando_loom, pando_shuttle))]
    {
        0
    }
}

#[cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]
mod imp {
    #![expect(unsafe_code, reason = "one call of the C library without arguments")]

    use super::Area;
    use crate::rseq;

    /// Takes one load (0.25 ns) if the C library has registered an area.
    #[inline]
    pub(super) fn current_cpu(area: Option<Area>) -> usize {
        match area.and_then(rseq::cpu) {
            Some(cpu) => cpu,
            None => asked(),
        }
    }

    /// Asks the C library (1.6 ns), which may ask the kernel (76 ns).
    #[cold]
    fn asked() -> usize {
        // SAFETY: sched_getcpu takes no arguments and touches no memory of ours.
        let cpu = unsafe { libc::sched_getcpu() };
        usize::try_from(cpu).unwrap_or_else(|_| of_thread())
    }

    /// Returns a number of the thread, for systems where the processor is not known.
    fn of_thread() -> usize {
        thread_local!(static HERE: u8 = const { 0 });
        // Thread-local areas of different threads are at least some pages apart.
        HERE.with(|here| std::ptr::from_ref(here).addr() >> 12)
    }
}

/// One element for each core, each on cache lines of its own.
#[derive(Debug)]
pub struct CoreLocal<T> {
    slots: Box<[CachePadded<T>]>,
    /// Where the C library keeps the number of the core. Constant.
    area: Option<Area>,
}

impl<T> CoreLocal<T> {
    /// Makes [`core_count`] elements with `make`; their memory is named `structure` in the audit.
    pub fn new(structure: &'static str, mut make: impl FnMut(usize) -> T) -> Self {
        let slots: Box<[_]> = (0..core_count())
            .map(|core| CachePadded(make(core)))
            .collect();
        crate::audit::name(structure, &*slots);
        Self {
            slots,
            area: rseq::area(),
        }
    }

    /// Returns the index of the calling thread's core. It stays valid for [`CoreLocal::at`] after
    /// the thread moves.
    #[inline]
    pub fn index(&self) -> usize {
        crate::audit::read(&self.slots);
        core_by(self.area) & (self.slots.len() - 1)
    }

    /// Returns the element of the calling thread's core.
    #[inline]
    pub fn here(&self) -> &T {
        &self.slots[self.index()]
    }

    /// Returns the element with the index `index`, which is below [`core_count`].
    #[inline]
    pub fn at(&self, index: usize) -> &T {
        crate::audit::read(&self.slots);
        &self.slots[index]
    }

    /// Returns the number of elements, which is [`core_count`].
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns all elements.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().map(|slot| &slot.0)
    }
}
