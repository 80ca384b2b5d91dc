//! Lets the kernel refuse system calls to one thread, with a seccomp filter.

#![expect(unsafe_code, reason = "filters are installed by raw calls")]

use std::io;

use pando_sync::thread;

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

fn refusal(error: i32) -> libc::sock_filter {
    answer(libc::SECCOMP_RET_ERRNO | u32::try_from(error).unwrap())
}

/// Position of the number of the call in what a filter sees.
const NUMBER: u32 = 0;
/// Position of the lower half of its third argument.
const THIRD: u32 = 32;

/// Returns the filter that refuses each of these calls, with its error number.
fn of_calls(refused: &[(libc::c_long, i32)]) -> Vec<libc::sock_filter> {
    let mut filter = vec![load(NUMBER)];
    for (call, error) in refused {
        let call = u32::try_from(*call).unwrap();
        let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        filter.push(statement(equal, call, 0, 1));
        filter.push(refusal(*error));
    }
    filter.push(answer(libc::SECCOMP_RET_ALLOW));
    filter
}

/// Returns the filter that refuses to open files past the page cache.
fn of_direct_files(error: i32) -> Vec<libc::sock_filter> {
    let open = u32::try_from(libc::SYS_openat).unwrap();
    let direct = u32::try_from(libc::O_DIRECT).unwrap();
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let has = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    vec![
        load(NUMBER),
        statement(equal, open, 0, 3),
        load(THIRD),
        statement(has, direct, 0, 1),
        refusal(error),
        answer(libc::SECCOMP_RET_ALLOW),
    ]
}

/// Sets a filter for the calling thread, for the rest of its life.
fn install(mut filter: Vec<libc::sock_filter>) {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).unwrap(),
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the call takes numbers only. Programs that this thread starts can no longer gain
    // rights.
    let quiet = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(quiet, 0, "{}", io::Error::last_os_error());
    // SAFETY: the program and its statements outlive the call, which copies them.
    let set = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
            0,
            0,
        )
    };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}

/// Runs `case` on a thread to which the kernel refuses these calls.
pub(crate) fn with_refused(refused: &[(libc::c_long, i32)], case: impl FnOnce() + Send) {
    with_filter(of_calls(refused), case);
}

/// Runs `case` on a thread to which the kernel refuses files that bypass the page cache.
pub(crate) fn without_direct_files(error: i32, case: impl FnOnce() + Send) {
    with_filter(of_direct_files(error), case);
}

fn with_filter(filter: Vec<libc::sock_filter>, case: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let run = || {
            install(filter);
            case();
        };
        if let Err(panic) = scope.spawn(run).join() {
            std::panic::resume_unwind(panic);
        }
    });
}
