//! Additions by core: sums are exact while threads are moved, interrupted, or not registered for
//! restartable sequences. The last tests check, instruction by instruction, that a sequence
//! restarts where it must.
#![expect(unsafe_code, reason = "moves and interrupts threads, reads code")]
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::cell::Cell;
use std::sync::OnceLock;

use crate::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::{Addition, Arc, CoreWords, rseq, thread};

/// Number of words that threads add to in turn. Signal handlers add to the word after them.
const WORDS: usize = 8;
type Words = CoreWords<{ WORDS + 1 }>;

fn words(addition: Addition) -> Words {
    Words::new("test", addition).unwrap()
}

/// Makes thread `tid` (0: the caller) run on `cpu` only. Returns false if the system refuses.
fn pin(tid: libc::pid_t, cpu: usize) -> bool {
    // SAFETY: a set of processors is plain bits.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the call sets a bit of the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the call reads the set, whose size is given.
    unsafe { libc::sched_setaffinity(tid, size_of_val(&set), &raw const set) == 0 }
}

/// Returns the processors that this thread may run on.
fn allowed() -> Vec<usize> {
    // SAFETY: a set of processors is plain bits.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the call fills the set, whose size is given.
    let done = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    assert_eq!(done, 0);
    // SAFETY: the call reads bits of the set.
    let is_in = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    (0..libc::CPU_SETSIZE as usize).filter(is_in).collect()
}

thread_local! {
    /// Number of additions by signal handlers that ran on this thread.
    static HANDLED: Cell<u64> = const { Cell::new(0) };
}

static INTERRUPTED: OnceLock<Arc<Words>> = OnceLock::new();

extern "C" fn add_in_handler(_signal: libc::c_int) {
    if let Some(words) = INTERRUPTED.get() {
        words.add(WORDS, 1);
        HANDLED.set(HANDLED.get() + 1);
    }
}

fn handle(signal: libc::c_int, handler: usize, flags: libc::c_int) {
    // SAFETY: all zeros are a valid value: no handler, no flags, and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: the handlers of this file call only functions that may be called from handlers.
    let done = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    assert_eq!(done, 0);
}

/// Lets threads add while another thread moves them from processor to processor and interrupts
/// them. Returns the sums and their expected values.
fn disturbed(words: &Arc<Words>, threads: usize, rounds: u64) -> (Vec<u64>, Vec<u64>) {
    let cpus = allowed();
    let adding = Arc::new(AtomicUsize::new(threads));
    let is_over = Arc::new(AtomicBool::new(false));
    let (started, tids) = std::sync::mpsc::channel();
    let adders: Vec<_> = (0..threads)
        .map(|_| {
            let (words, adding) = (words.clone(), adding.clone());
            let (is_over, started) = (is_over.clone(), started.clone());
            thread::spawn(move || {
                // SAFETY: the call returns the number of the calling thread.
                let tid = unsafe { libc::gettid() };
                // SAFETY: the call returns the handle of the calling thread.
                let own = unsafe { libc::pthread_self() };
                started.send((tid, own)).unwrap();
                for _ in 0..rounds {
                    for word in 0..WORDS {
                        words.add(word, 1);
                    }
                }
                adding.fetch_sub(1, Ordering::Relaxed);
                // The thread must exist while signals are sent to it.
                while !is_over.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                HANDLED.get()
            })
        })
        .collect();
    let tids: Vec<_> = (0..threads).map(|_| tids.recv().unwrap()).collect();
    let mut turn = 0;
    while adding.load(Ordering::Relaxed) > 0 {
        let (tid, own) = tids[turn % threads];
        assert!(pin(tid, cpus[turn / threads % cpus.len()]));
        if turn % 3 == 0 {
            // SAFETY: the thread exists until `is_over` is set.
            unsafe { libc::pthread_kill(own, libc::SIGUSR1) };
        }
        turn += 1;
    }
    is_over.store(true, Ordering::Release);
    let handled = adders.into_iter().map(|adder| adder.join().unwrap()).sum();
    let mut sums = vec![0; WORDS + 1];
    words.add_sums(&mut sums);
    let mut expected = vec![rounds * threads as u64; WORDS];
    expected.push(handled);
    (sums, expected)
}

#[test]
fn nothing_is_lost_while_threads_are_moved_and_interrupted() {
    for addition in [Addition::Best, Addition::Atomic] {
        let words = Arc::new(words(addition));
        // In both rounds handlers add to the words of the first kind.
        INTERRUPTED.get_or_init(|| words.clone());
        let handler: extern "C" fn(libc::c_int) = add_in_handler;
        handle(libc::SIGUSR1, handler as usize, libc::SA_RESTART);
        let before = INTERRUPTED.get().unwrap().sum(WORDS);
        let (mut sums, expected) = disturbed(&words, 6, 200_000);
        sums[WORDS] = INTERRUPTED.get().unwrap().sum(WORDS) - before;
        assert_eq!(sums, expected, "{addition:?}");
    }
}

#[test]
fn sums_of_one_thread_do_not_go_back() {
    let words = Arc::new(words(Addition::Best));
    let adders: Vec<_> = (0..3)
        .map(|_| {
            let words = words.clone();
            thread::spawn(move || (0..200_000).for_each(|_| words.add(0, 3)))
        })
        .collect();
    let mut last = 0;
    while last < 3 * 3 * 200_000 {
        let sum = words.sum(0);
        assert!(sum >= last);
        last = sum;
    }
    adders.into_iter().for_each(|adder| adder.join().unwrap());
    assert_eq!(words.sum(0), 3 * 3 * 200_000);
    assert_eq!(words.sum(1), 0, "the next word is untouched");
}

#[test]
fn a_thread_without_an_area_adds_to_the_last_row() {
    let Some(area) = rseq::area() else { return };
    let words = Arc::new(words(Addition::Best));
    let of_thread = words.clone();
    let adder = thread::spawn(move || {
        let words = of_thread;
        let own = area_of_this_thread(area);
        // SAFETY: the call ends the registration of this thread, which every user of the area must
        // allow for.
        let done = unsafe { libc::syscall(libc::SYS_rseq, own, 32, 1, SIGNATURE) };
        if done != 0 {
            return false;
        }
        assert_eq!(rseq::cpu(area), None);
        words.add(3, 5);
        crate::core_id() < 1 << 13
    });
    if adder.join().unwrap() {
        assert_eq!(words.row(words.rows() - 1)[3].load(Ordering::Relaxed), 5);
        words.add(3, 1);
        assert_eq!(words.row(words.rows() - 1)[3].load(Ordering::Relaxed), 5);
        assert_eq!(words.sum(3), 6);
    }
}

/// The expectation is what the C library reports, by the definitions in its header.
#[test]
fn additions_are_plain_where_the_c_library_has_registered_its_threads() {
    // SAFETY: the name ends with a zero, and looking up a symbol changes nothing.
    let size = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()) };
    // SAFETY: a symbol of this name is a constant `unsigned int`.
    let is_registered = !size.is_null() && unsafe { size.cast::<u32>().read() } >= 20;
    let is_here = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
    assert_eq!(words(Addition::Best).is_plain(), is_registered && is_here);
    assert!(!words(Addition::Atomic).is_plain());
}

#[test]
#[should_panic(expected = "outside of the row")]
fn a_word_that_does_not_exist_is_refused() {
    words(Addition::Best).add(WORDS + 1, 1);
}

#[test]
fn without_an_area_everything_still_counts() {
    const CHILD: &str = "PANDO_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        assert_eq!(rseq::area(), None);
        assert!(!words(Addition::Best).is_plain());
        return;
    }
    let own = std::env::current_exe().unwrap();
    let status = std::process::Command::new(own)
        .args(["core_words_tests::", "--test-threads=1"])
        .env(CHILD, "1")
        .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.unwrap().success());
}

/// The signature that the kernel expects in front of a handler.
const SIGNATURE: u32 = if cfg!(target_arch = "x86_64") {
    0x5305_3053
} else {
    0xd428_bc00
};

fn area_of_this_thread(area: rseq::Area) -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction reads the thread pointer, which on this processor is stored at the
    // address it points to.
    unsafe {
        std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction reads the thread pointer.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem));
    }
    pointer.wrapping_add_signed(area.get())
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::cell::Cell;

    use super::*;

    /// Reads bytes of code or of a descriptor.
    fn bytes<const COUNT: usize>(at: usize) -> [u8; COUNT] {
        // SAFETY: the callers read code and descriptors of this program.
        unsafe { std::ptr::with_exposed_provenance::<[u8; COUNT]>(at).read_unaligned() }
    }

    /// Returns the start, the end and the handler of the sequence that this thread ran last.
    fn sequence(area: rseq::Area) -> [usize; 3] {
        let announced = || u64::from_le_bytes(bytes(area_of_this_thread(area) + 8)) as usize;
        let words = words(Addition::Best);
        let descriptor = loop {
            words.add(0, 1);
            // The field is zero if the thread was preempted after the addition.
            match announced() {
                0 => {}
                descriptor => break descriptor,
            }
        };
        assert_eq!(bytes::<8>(descriptor), [0; 8], "version and flags");
        let field = |at| u64::from_le_bytes(bytes(descriptor + at)) as usize;
        [field(8), field(8) + field(16), field(24)]
    }

    #[test]
    fn the_sequence_lies_between_the_announcement_and_the_end_of_the_addition() {
        let Some(area) = rseq::area() else { return };
        let [start, end, handler] = sequence(area);
        // `mov fs:[register + 8], register`, with or without an additional prefix byte for the
        // register.
        let before: [u8; 6] = bytes(start - 6);
        assert_eq!(before[5], 8, "the descriptor's place in the area");
        assert!(before[0] == 0x64 || before[1] == 0x64, "{before:x?}");
        // `add [register + register], register`, with or without a zero byte of displacement.
        let last: [u8; 5] = bytes(end - 5);
        let is_addition =
            |code: &[u8], mode| code[0] & 0xf8 == 0x48 && code[1] == 0x01 && code[2] & 0xc7 == mode;
        let short = is_addition(&last[1..], 0x04);
        let long = is_addition(&last, 0x44) && last[4] == 0;
        assert!(short || long, "{last:x?}");
        // In front of the handler there is the signature. The handler jumps to `lea register,
        // descriptor`, before the announcement.
        assert_eq!(bytes::<4>(handler - 4), SIGNATURE.to_le_bytes());
        let target = match bytes::<5>(handler) {
            [0xeb, by, ..] => (handler + 2).wrapping_add_signed(isize::from(by.cast_signed())),
            [0xe9, by @ ..] => (handler + 5).wrapping_add_signed(i32::from_le_bytes(by) as isize),
            other => panic!("no jump: {other:x?}"),
        };
        assert!(
            target < start && start - target <= 13,
            "{target:x} {start:x}"
        );
        let [rex, code] = bytes(target);
        assert!(
            matches!((rex, code), (0x48 | 0x4c, 0x8d)),
            "{rex:x} {code:x}"
        );
    }

    thread_local! {
        /// Number of instructions until the thread is moved, its new processor, and whether it had
        /// added before the move.
        static STEPS: Cell<(usize, usize, bool)> = const { Cell::new((0, 0, false)) };
        static STEPPED: Cell<*const Words> = const { Cell::new(std::ptr::null()) };
    }

    const TRAP_FLAG: i64 = 0x100;

    /// The handler that runs after each instruction.
    extern "C" fn step(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        let (steps, to, _) = STEPS.get();
        if steps > 0 {
            STEPS.set((steps - 1, to, false));
            return;
        }
        // SAFETY: the words live while the thread is stepped through.
        let words = unsafe { &*STEPPED.get() };
        STEPS.set((0, to, words.sum(0) > 0));
        assert!(pin(0, to));
        // SAFETY: this is the context of the current signal. Without the flag, the rest runs
        // without traps.
        let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
        context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP_FLAG;
    }

    /// Adds once, and moves the thread to processor `to` after instruction `steps`. Returns whether
    /// it had added by then.
    fn add_moved(words: &Words, from: usize, to: usize, steps: usize) -> bool {
        assert!(pin(0, from));
        STEPPED.set(words);
        STEPS.set((steps, to, true));
        // SAFETY: the instructions set the trap flag, which the handler clears. The stack pointer
        // is unchanged afterwards.
        unsafe { std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
        words.add(0, 1);
        // SAFETY: the instructions clear the flag if the addition was over before instruction
        // `steps`. The stack pointer is unchanged afterwards.
        unsafe { std::arch::asm!("pushfq", "and qword ptr [rsp], -257", "popfq") };
        STEPS.get().2
    }

    #[test]
    fn an_addition_that_is_moved_behind_any_instruction_goes_to_the_new_row() {
        let cpus = allowed();
        if rseq::area().is_none() || cpus.len() < 2 {
            return;
        }
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = step;
        handle(libc::SIGTRAP, handler as usize, libc::SA_SIGINFO);
        let moved_in_time = (0..48).filter(|steps| {
            let words = words(Addition::Best);
            let had_added = add_moved(&words, cpus[0], cpus[1], *steps);
            let row = |cpu: usize| words.row(cpu)[0].load(Ordering::Relaxed);
            let expected = if had_added { [1, 0] } else { [0, 1] };
            assert_eq!([row(cpus[0]), row(cpus[1])], expected, "after {steps}");
            !had_added
        });
        assert!(moved_in_time.count() > 8);
    }
}
