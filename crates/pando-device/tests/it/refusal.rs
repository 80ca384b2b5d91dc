//! Lets the kernel refuse system calls to one thread, with a seccomp filter.

#![expect(unsafe_code, reason = "filters are installed by raw calls")]

use std::io;

use pando_sync::thread;

fn statement(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    let code = u16::try_from(code).unwrap();
    libc::sock_filter { code, jt, jf, k }
}

/// Refuses each of these calls to the calling thread, with its error number, for the rest of the
/// thread's life.
fn install(refused: &[(libc::c_long, i32)]) {
    const NUMBER: u32 = 0;
    let mut filter = vec![statement(
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        NUMBER,
        0,
        0,
    )];
    for (call, error) in refused {
        let call = u32::try_from(*call).unwrap();
        let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        filter.push(statement(equal, call, 0, 1));
        let answer = libc::SECCOMP_RET_ERRNO | u32::try_from(*error).unwrap();
        filter.push(statement(libc::BPF_RET | libc::BPF_K, answer, 0, 0));
    }
    filter.push(statement(
        libc::BPF_RET | libc::BPF_K,
        libc::SECCOMP_RET_ALLOW,
        0,
        0,
    ));
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
    thread::scope(|scope| {
        let run = || {
            install(refused);
            case();
        };
        if let Err(panic) = scope.spawn(run).join() {
            std::panic::resume_unwind(panic);
        }
    });
}
