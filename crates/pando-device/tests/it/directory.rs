//! Properties that only directories of the file system have: a lock, permissions, and foreign
//! files.

#![expect(
    unsafe_code,
    reason = "the user of one thread is changed to meet a refusal"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use pando_device::{
    Channel, ChannelOptions, Create, Device, DirectoryDevice, File, IoBuf, MemoryDevice,
    OpenOptions,
};
use pando_sync::thread;

use crate::refusal::without_direct_files;

fn open(path: &Path) -> pando_device::Result<DirectoryDevice> {
    DirectoryDevice::open_directory(path, false, 2)
}

fn open_read_only(path: &Path) -> pando_device::Result<DirectoryDevice> {
    DirectoryDevice::open_directory(path, true, 2)
}

#[test]
fn a_directory_belongs_to_one_writer() {
    let place = tempfile::tempdir().unwrap();
    let device = open(place.path()).unwrap();
    assert!(open(place.path()).unwrap_err().is_in_use());
    assert!(open_read_only(place.path()).unwrap_err().is_in_use());
    drop(device);
    open(place.path()).unwrap();
}

#[test]
fn readers_share_and_keep_writers_out() {
    let place = tempfile::tempdir().unwrap();
    drop(open(place.path()).unwrap());
    let one = open_read_only(place.path()).unwrap();
    let two = open_read_only(place.path()).unwrap();
    let by_readers = |refused| match refused {
        pando_device::Error::InUse { by_readers, .. } => by_readers,
        other => panic!("{other}"),
    };
    assert!(by_readers(open(place.path()).unwrap_err()));
    drop(one);
    // The one that was refused has left no lock, and the other reader keeps its own.
    assert!(by_readers(open(place.path()).unwrap_err()));
    drop(two);
    let _writer = open(place.path()).unwrap();
    assert!(!by_readers(open(place.path()).unwrap_err()));
    assert!(!by_readers(open_read_only(place.path()).unwrap_err()));
}

#[test]
fn the_lock_lasts_as_long_as_a_file_or_channel() {
    let place = tempfile::tempdir().unwrap();
    let device = open(place.path()).unwrap();
    let file = device
        .open("data", OpenOptions::create(Create::New))
        .unwrap();
    file.write_at(&[1; 10], 0).unwrap();
    drop(device);
    assert!(open(place.path()).unwrap_err().is_in_use());
    drop(file);
    let device = open(place.path()).unwrap();
    let file = device.open("data", OpenOptions::read()).unwrap();
    let mut channel = device.channel(ChannelOptions::new(1)).unwrap();
    channel.submit_read(&file, 0, IoBuf::new(10), 0).unwrap();
    drop((device, file));
    channel.wait(None);
    assert_eq!(channel.reap(&mut Vec::new()), 1);
    drop(channel);
    open(place.path()).unwrap();
}

#[test]
fn a_left_over_lock_file_blocks_nobody() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("LOCK"), b"4711").unwrap();
    open(place.path()).unwrap();
}

/// Somebody who takes the file for one that a crash has left removes it.
#[test]
fn a_directory_stays_locked_when_its_lock_file_is_removed() {
    let place = tempfile::tempdir().unwrap();
    let lock = place.path().join("LOCK");
    let device = open(place.path()).unwrap();
    // Older programs look at the file alone.
    let file = fs::File::open(&lock).unwrap();
    assert!(matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)));
    fs::remove_file(&lock).unwrap();
    assert!(open(place.path()).unwrap_err().is_in_use());
    let _made_by_the_attempt = fs::remove_file(&lock);
    assert!(open_read_only(place.path()).unwrap_err().is_in_use());
    drop(device);
    // Nor do readers need the file.
    let _made_by_the_attempt = fs::remove_file(&lock);
    let readers = [(); 2].map(|()| open_read_only(place.path()).unwrap());
    assert!(open(place.path()).unwrap_err().is_in_use());
    drop(readers);
    open(place.path()).unwrap();
}

#[test]
fn directories_are_made_and_read_only_makes_none() {
    let place = tempfile::tempdir().unwrap();
    let deep = place.path().join("a/b/c");
    assert!(open_read_only(&deep).unwrap_err().is_not_found());
    assert!(!deep.exists());
    let device = open(&deep).unwrap();
    assert_eq!(device.directory(), fs::canonicalize(&deep).unwrap());
}

#[test]
fn a_read_only_device_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("data"), b"bytes").unwrap();
    let device = open_read_only(place.path()).unwrap();
    assert!(device.open("data", OpenOptions::write()).is_err());
    assert!(
        device
            .open("more", OpenOptions::create(Create::New))
            .is_err()
    );
    assert!(device.remove("data").is_err());
    let mut bytes = [0; 5];
    let file = device.open("data", OpenOptions::read()).unwrap();
    file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"bytes");
    let names: Vec<_> = fs::read_dir(place.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "the directory has not even a lock file");
}

#[test]
fn foreign_files_are_not_listed() {
    let place = tempfile::tempdir().unwrap();
    let device = open(place.path()).unwrap();
    for name in [".hidden", "white space", "data"] {
        fs::write(place.path().join(name), b"").unwrap();
    }
    fs::create_dir_all(place.path().join("log/deep")).unwrap();
    fs::write(place.path().join("log/deep/file"), b"").unwrap();
    std::os::unix::fs::symlink("data", place.path().join("link")).unwrap();
    assert_eq!(device.list().unwrap(), ["data"]);
    assert!(device.open("log", OpenOptions::read()).is_err());
}

/// Runs `case` on a thread whose file accesses have the rights of an unprivileged user.
fn unprivileged(case: impl FnOnce() + Send) {
    const NOBODY: u32 = 65_534;
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the call takes a number and affects file access checks of this thread only.
            unsafe { libc::setfsgid(NOBODY) };
            // SAFETY: as above.
            unsafe { libc::setfsuid(NOBODY) };
            case();
        });
    });
}

#[test]
fn a_refused_file_is_an_error_not_a_hang() {
    let place = tempfile::tempdir().unwrap();
    let set = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let path = place.path();
    drop(open(path).unwrap());
    fs::write(path.join("data"), b"bytes").unwrap();
    fs::write(path.join("secret"), b"bytes").unwrap();
    set(&path.join("data"), 0o444);
    set(&path.join("secret"), 0o000);
    set(path, 0o555);
    let refused = |error: pando_device::Error| match error {
        pando_device::Error::Io { source, .. } => {
            assert_eq!(source.kind(), std::io::ErrorKind::PermissionDenied);
        }
        other => panic!("{other}"),
    };
    unprivileged(|| {
        refused(open(path).unwrap_err());
        let device = open_read_only(path).unwrap();
        refused(device.open("secret", OpenOptions::read()).unwrap_err());
        let file = device.open("data", OpenOptions::read()).unwrap();
        let mut channel = device.channel(ChannelOptions::new(1)).unwrap();
        channel.submit_read(&file, 0, IoBuf::new(5), 9).unwrap();
        channel.wait(None);
        let mut done = Vec::new();
        channel.reap(&mut done);
        assert_eq!(&*done[0].buffer, b"bytes");
    });
    let device = open(path).unwrap();
    unprivileged(|| {
        refused(device.open("data", OpenOptions::write()).unwrap_err());
        refused(
            device
                .open("new", OpenOptions::create(Create::New))
                .unwrap_err(),
        );
        refused(
            device
                .open("log/new", OpenOptions::create(Create::New))
                .unwrap_err(),
        );
        refused(device.remove("data").unwrap_err());
    });
    set(path, 0o755);
}

/// The root of an ext4 file system has one that nobody else may look into; people put others there.
#[test]
fn directories_of_others_may_be_closed() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path();
    let set = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for foreign in ["lost+found", "backup"] {
        let foreign = path.join(foreign);
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join("file"), b"").unwrap();
        set(&foreign, 0o000);
    }
    set(path, 0o777);
    unprivileged(|| {
        let device = open(path).unwrap();
        let create = OpenOptions::create(Create::New);
        device.sync_directory().unwrap();
        device.open("log/1", create).unwrap();
        assert_eq!(device.list().unwrap(), ["log/1"]);
        device.sync_directory().unwrap();
        drop(device);
        // That of the device is not passed over.
        set(&path.join("log"), 0o000);
        let device = open(path).unwrap();
        device.list().unwrap_err();
        device.sync_directory().unwrap_err();
    });
    set(&path.join("backup"), 0o755);
    set(&path.join("log"), 0o755);
    assert_eq!(
        open(path).unwrap().list().unwrap(),
        ["backup/file", "log/1"]
    );
}

/// What a process has no descriptor for is not taken for what the file system cannot.
#[test]
fn only_the_file_system_keeps_files_in_the_page_cache() {
    let place = tempfile::tempdir().unwrap();
    let device = open(place.path()).unwrap();
    let create = OpenOptions::create(Create::IfAbsent).direct();
    device.open("data", create).unwrap();
    let other = tempfile::tempdir().unwrap();
    for error in [libc::EMFILE, libc::ENFILE, libc::ENOMEM] {
        without_direct_files(error, || {
            let refused = device.open("data", create).unwrap_err().to_string();
            let why = std::io::Error::from_raw_os_error(error).to_string();
            assert!(refused.contains(&why), "{refused}");
            let refused = open(other.path()).unwrap_err().to_string();
            assert!(refused.contains(&why), "{refused}");
        });
    }
    without_direct_files(libc::EINVAL, || {
        assert!(!device.open("data", create).unwrap().is_direct());
        let device = open(other.path()).unwrap();
        assert_eq!(device.direct().alignment(), None);
    });
}

/// Somebody moves the directory away, and another process makes a store at its path.
#[test]
fn a_directory_that_is_renamed_stays_the_same() {
    let place = tempfile::tempdir().unwrap();
    let (path, moved) = (place.path().join("one"), place.path().join("two"));
    let create = OpenOptions::create(Create::New);
    let device = open(&path).unwrap();
    device.open("log/1", create).unwrap();
    fs::rename(&path, &moved).unwrap();
    device.open("log/2", create).unwrap();
    assert!(open(&moved).unwrap_err().is_in_use());

    let other = open(&path).unwrap();
    for name in ["log/1", "log/2", "other"] {
        let file = other.open(name, create).unwrap();
        file.write_at(b"other", 0).unwrap();
    }
    device.open("log/3", create).unwrap();
    device.remove("log/1").unwrap();
    assert_eq!(device.list().unwrap(), ["log/2", "log/3"]);
    let file = device.open("log/2", OpenOptions::read()).unwrap();
    assert_eq!(file.len().unwrap(), 0, "the file of the other directory");
    assert!(device.open("other", OpenOptions::read()).is_err());
    assert_eq!(other.list().unwrap(), ["log/1", "log/2", "other"]);

    drop(other);
    fs::remove_dir_all(&path).unwrap();
    device.sync_directory().unwrap();
    assert!(device.free_bytes().unwrap() > 0);
}

#[test]
fn the_capacity_of_memory_is_kept_to_and_regained() {
    let device = MemoryDevice::new(10_000);
    let file = device
        .open("data", OpenOptions::create(Create::New))
        .unwrap();
    file.allocate(0, 8_000).unwrap();
    assert_eq!(device.free_bytes().unwrap(), 2_000);
    assert!(file.allocate(8_000, 2_001).unwrap_err().is_full());
    assert!(file.write_at(&[1; 10], 9_991).unwrap_err().is_full());
    assert_eq!(file.len().unwrap(), 8_000);
    file.write_at(&[1; 10], 9_990).unwrap();
    assert_eq!(device.free_bytes().unwrap(), 0);
    file.write_at(&[1; 10_000], 0).unwrap();
    device.set_capacity(20_000);
    file.set_len(15_000).unwrap();
    file.set_len(5_000).unwrap();
    assert_eq!(device.free_bytes().unwrap(), 15_000);
    device.remove("data").unwrap();
    assert_eq!(device.free_bytes().unwrap(), 15_000);
    drop(file);
    assert_eq!(device.free_bytes().unwrap(), 20_000);
}
