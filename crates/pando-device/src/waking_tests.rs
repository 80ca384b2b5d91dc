//! Helpers for the tests of several back ends.

use pando_sync::time::Duration;
use pando_sync::{thread, time};

use crate::device::{Channel, ChannelOptions, Create, Device, OpenOptions};
use crate::directory::{
    Backend, DirectoryChannel, DirectoryDevice, DirectoryFile, DirectoryOptions,
};

/// Returns a channel of a directory that asks for `backend`, a file, and the directory that must
/// exist as long as they do. Prints a message if the system chooses another back end.
pub(crate) fn channel_of(backend: Backend) -> (DirectoryChannel, DirectoryFile, tempfile::TempDir) {
    let place = tempfile::tempdir().unwrap();
    let options = DirectoryOptions {
        backend: Some(backend),
        ..DirectoryOptions::default()
    };
    let device = DirectoryDevice::open_with(place.path(), options).unwrap();
    let file = device.open("data", OpenOptions::create(Create::New));
    let channel = device.channel(ChannelOptions::new(4)).unwrap();
    if device.choice().used != backend {
        eprintln!("SKIPPED: {:?}", device.choice());
    }
    (channel, file.unwrap(), place)
}

/// Checks that each wake ends one wait of a channel whose only request never completes, and that
/// without a wake a wait lasts until its timeout.
pub(crate) fn every_wake_ends_a_wait(channel: &mut impl Channel) {
    let waker = channel.waker();
    let start = time::now();
    for round in 0..20 {
        let before = round % 3 == 0;
        if before {
            waker.wake_by_ref();
            channel.wait(Some(Duration::from_secs(30)));
        } else {
            thread::scope(|scope| {
                scope.spawn(|| waker.wake_by_ref());
                channel.wait(Some(Duration::from_secs(30)));
            });
        }
        if round % 2 == 0 {
            assert_eq!(channel.reap(&mut Vec::new()), 0);
        }
    }
    // Without a wake, a wait lasts until its timeout.
    for _ in 0..2 {
        channel.wait(Some(Duration::ZERO));
        channel.reap(&mut Vec::new());
    }
    let pause = Duration::from_millis(20);
    let asleep = time::now();
    channel.wait(Some(pause));
    assert!(asleep.elapsed() >= pause, "a wait ended without a wake");
    assert!(start.elapsed() < Duration::from_secs(20), "a wake was lost");
    assert_eq!(channel.in_flight(), 1);
}
