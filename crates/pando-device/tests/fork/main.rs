//! In a forked child every call fails cleanly, and the parent notices nothing.
//!
//! These tests are a program of their own because a child briefly shares the locks of all open
//! directories.

#![expect(unsafe_code, reason = "std does not fork")]
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use pando_device::{
    Backend, Channel, ChannelOptions, Create, Device, DirectoryDevice, Error, File, IoBuf,
    OpenOptions,
};

#[path = "../it/places.rs"]
#[expect(dead_code, reason = "shared with the other tests")]
mod places;

/// Runs `case` in a forked child. Returns whether it succeeded within half a minute.
fn in_child(case: impl FnOnce()) -> bool {
    // SAFETY: the child runs `case` and ends without returning. `case` may allocate: glibc makes
    // its allocator usable in children.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: the call takes a number. Its signal ends a child that hangs.
        unsafe { libc::alarm(30) };
        let is_fine = catch_unwind(AssertUnwindSafe(case)).is_ok();
        // SAFETY: the call ends the child at once, without destructors that belong to the parent.
        unsafe { libc::_exit(i32::from(!is_fine)) };
    }
    let mut status = 0;
    // SAFETY: the call waits for the child made above, and `status` has room for its result.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

fn is_forked<T>(result: pando_device::Result<T>) -> bool {
    matches!(result, Err(Error::Forked))
}

fn calls_in_a_child_fail(backend: Backend, device: DirectoryDevice) {
    let how = OpenOptions::create(Create::New).direct();
    let file = device.open("data", how).unwrap();
    file.write_at(&IoBuf::copy_of(&[7; 8192]), 0).unwrap();
    let mut channel = device.channel(ChannelOptions::new(8)).unwrap();
    let waker = channel.waker();
    for tag in 0..6 {
        channel
            .submit_read(&file, 4096, IoBuf::new(4096), tag)
            .unwrap();
    }
    let fine = in_child(|| {
        let mut buffer = IoBuf::new(4096);
        assert!(is_forked(file.read_at(&mut buffer, 0)));
        assert!(is_forked(file.write_at(&buffer, 0)));
        assert!(is_forked(file.sync()));
        assert!(is_forked(file.set_len(0)));
        assert!(is_forked(device.open("data", how)));
        assert!(is_forked(device.remove("data")));
        assert!(is_forked(device.rename("data", "other")));
        assert!(is_forked(device.channel(ChannelOptions::new(1))));
        channel.submit_read(&file, 0, buffer, 6).unwrap();
        channel.flush();
        waker.wake_by_ref();
        let mut done = Vec::new();
        while channel.in_flight() > 0 {
            channel.wait(None);
            channel.reap(&mut done);
        }
        assert!(
            done.iter()
                .all(|one| matches!(one.result, Err(Error::Forked)))
        );
        assert_eq!(done.last().unwrap().tag, 6);
    });
    assert!(fine, "{backend}");
    // Another child drops everything it has inherited.
    let mut left = Some((channel, file, device));
    assert!(in_child(|| drop(left.take())), "{backend}");
    let (mut channel, file, _device) = left.expect("the child took only its own copy");
    let mut done = Vec::new();
    while channel.in_flight() > 0 {
        channel.wait(Some(Duration::from_secs(30)));
        channel.reap(&mut done);
    }
    assert_eq!(done.len(), 6);
    for one in done {
        one.result.unwrap();
        assert_eq!(one.buffer[..], [7; 4096]);
    }
    // A request after that would show whether a child has moved the position of a shared queue.
    channel.submit_read(&file, 0, IoBuf::new(4096), 9).unwrap();
    channel.wait(Some(Duration::from_secs(30)));
    let mut done = Vec::new();
    while channel.reap(&mut done) == 0 {
        channel.wait(Some(Duration::from_secs(30)));
    }
    assert_eq!((done[0].tag, done[0].buffer[0]), (9, 7));
}

#[test]
fn in_a_child_every_call_fails_and_the_parent_goes_on() {
    for backend in Backend::ALL {
        places::with(backend, |device| calls_in_a_child_fail(backend, device));
    }
}
