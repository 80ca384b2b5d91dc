//! Lets the kernel refuse system calls to this process from now on, with a seccomp filter of all of
//! its threads.

use std::io;

/// A kind of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls {
    /// Those with one of these numbers.
    Numbers(&'static [libc::c_long]),
    /// `openat` of what is there.
    Open,
    /// `openat` that makes a file.
    Create,
    /// `mmap` of a descriptor, as rings have one; memory itself is not refused.
    MapFile,
}

/// Position of the number of a call in what a filter sees.
const NUMBER: u32 = 0;
/// Positions of the lower halves of its third and fifth arguments.
const THIRD: u32 = 32;
const FIFTH: u32 = 48;

const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const HAS: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;

fn statement(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    let code = u16::try_from(code).unwrap();
    libc::sock_filter { code, jt, jf, k }
}

fn load(offset: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

fn answer(value: u32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, value, 0, 0)
}

fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).unwrap()
}

fn filter(calls: Calls, error: i32) -> Vec<libc::sock_filter> {
    let refusal = answer(libc::SECCOMP_RET_ERRNO | u32::try_from(error).unwrap());
    let allowance = answer(libc::SECCOMP_RET_ALLOW);
    let creates = u32::try_from(libc::O_CREAT).unwrap();
    let mut filter = vec![load(NUMBER)];
    match calls {
        Calls::Numbers(numbers) => {
            for call in numbers {
                filter.push(statement(EQUAL, number(*call), 0, 1));
                filter.push(refusal);
            }
        }
        Calls::Open | Calls::Create => {
            filter.push(statement(EQUAL, number(libc::SYS_openat), 0, 3));
            filter.push(load(THIRD));
            let (jt, jf) = if calls == Calls::Create {
                (0, 1)
            } else {
                (1, 0)
            };
            filter.push(statement(HAS, creates, jt, jf));
            filter.push(refusal);
        }
        Calls::MapFile => {
            filter.push(statement(EQUAL, number(libc::SYS_mmap), 0, 3));
            filter.push(load(FIFTH));
            filter.push(statement(EQUAL, u32::MAX, 1, 0));
            filter.push(refusal);
        }
    }
    filter.push(allowance);
    filter
}

/// Refuses `calls` to all threads of this process, also to later ones, for good.
pub(crate) fn refuse(calls: Calls, error: i32) {
    let mut filter = filter(calls, error);
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).unwrap(),
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the call takes numbers only. Programs that this process starts can no longer gain
    // rights.
    let quiet = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(quiet, 0, "{}", io::Error::last_os_error());
    // SAFETY: the program and its statements outlive the call, which copies them.
    let set = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}
