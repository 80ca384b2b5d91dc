//! Stores of processes to which the kernel refuses one kind of calls: each kind that a store makes,
//! with each error that such a call may have, while the store is made, opened, or used.
//!
//! Whatever is refused, nobody panics or waits for ever, errors say what was attempted where and
//! why it failed, and the next process, to which nothing is refused, finds all that was
//! acknowledged in a sound store.
//!
//! Each case runs in a forked child, which ends with the filter. These tests are a program of their
//! own because no child may have inherited a store.

#![expect(
    unsafe_code,
    reason = "filters are set by raw calls, and std does not fork"
)]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod filter;

use std::fmt::{Debug, Display};
use std::io::{self, PipeWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::path::Path;

use filter::{Calls, refuse};
use pandodb::{Builder, Db, Durability, IoBackend, WriteOptions, verify};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_global_default;
use tracing::{Event, Level, Metadata, Subscriber};

const DURABLE: WriteOptions = WriteOptions {
    durability: Some(Durability::Durable),
};
/// Rows before and behind the refusal.
const ROWS: u32 = 20;
/// Rows of a store that does not fit its memory, and their length.
const MANY: u32 = 3000;
const LONG: usize = 4000;

const ERRORS: [i32; 10] = [
    libc::EROFS,
    libc::EACCES,
    libc::EMFILE,
    libc::ENFILE,
    libc::EDQUOT,
    libc::ENOMEM,
    libc::EIO,
    libc::EAGAIN,
    libc::EINTR,
    libc::ENXIO,
];

/// The calls that a store makes, by name. `rename` is not among them: it never renames anything.
const CALLS: [(&str, Calls); 15] = [
    ("open", Calls::Open),
    ("create", Calls::Create),
    (
        "read",
        Calls::Numbers(&[libc::SYS_pread64, libc::SYS_preadv2]),
    ),
    (
        "write",
        Calls::Numbers(&[libc::SYS_pwrite64, libc::SYS_pwritev, libc::SYS_pwritev2]),
    ),
    ("allocate", Calls::Numbers(&[libc::SYS_fallocate])),
    ("set-len", Calls::Numbers(&[libc::SYS_ftruncate])),
    (
        "sync",
        Calls::Numbers(&[libc::SYS_fsync, libc::SYS_fdatasync]),
    ),
    ("remove", Calls::Numbers(&[libc::SYS_unlinkat])),
    ("make-directory", Calls::Numbers(&[libc::SYS_mkdirat])),
    ("list", Calls::Numbers(&[libc::SYS_getdents64])),
    ("lock", Calls::Numbers(&[libc::SYS_flock])),
    ("ring", Calls::Numbers(&[libc::SYS_io_uring_setup])),
    ("enter", Calls::Numbers(&[libc::SYS_io_uring_enter])),
    ("map", Calls::MapFile),
    ("eventfd", Calls::Numbers(&[libc::SYS_eventfd2])),
];

/// When the calls begin to be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// Before the store is made.
    Making,
    /// Before a store that is there is opened.
    Opening,
    /// While it is used.
    Using,
}

/// Errors that a call says to be passing, and that are tried again until they are: one that stays
/// is tried for ever.
fn is_tried_again(call: &str, error: i32, when: When) -> bool {
    match call {
        // A commit that is in the log waits for room.
        "write" if error == libc::EDQUOT => when == When::Using,
        "open" | "create" | "read" | "write" | "allocate" | "set-len" | "sync" => {
            error == libc::EINTR
        }
        "enter" => [libc::EINTR, libc::EAGAIN, libc::ENOMEM].contains(&error),
        _ => false,
    }
}

/// What an error must say of its cause.
fn cause(call: &str, error: i32) -> String {
    match (call, error) {
        (_, libc::EDQUOT) => "no quota is left".to_owned(),
        ("lock", libc::EAGAIN) => "is in use by another process".to_owned(),
        _ => io::Error::from_raw_os_error(error).to_string(),
    }
}

fn builder() -> Builder {
    Db::builder().max_memory(8 << 20).log_bytes(1 << 20)
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// What a child tells, a line each.
struct Voice(PipeWriter);

/// Tells what is logged about I/O, and errors.
struct Lines(Voice);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!(" {field}={value:?}"));
    }
}

impl Subscriber for Lines {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        *about.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.say("log", line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Voice {
    fn say(&self, what: &str, text: impl Display) {
        let line = format!("{what} {}\n", text.to_string().replace('\n', " "));
        let _ = (&self.0).write_all(line.as_bytes());
    }
}

/// Lives with a store in `directory`; tells what it acknowledged, and each error.
fn live(directory: &Path, voice: &Voice, (calls, error): (Calls, i32), when: When) {
    if when != When::Using {
        refuse(calls, error);
    }
    let db = match builder().open(directory) {
        Ok(db) => db,
        Err(error) => return voice.say("error", error),
    };
    let table = match db.table("t") {
        Ok(table) => table,
        Err(error) => return voice.say("error", error),
    };
    let mut acknowledged = table.len();
    let mut put = |rows: u32| {
        for number in 0..rows {
            let key = key(u32::try_from(acknowledged).unwrap());
            match table.put_with(&key, &number.to_be_bytes(), DURABLE) {
                Ok(()) => acknowledged += 1,
                Err(error) => return voice.say("error", error),
            }
            voice.say("rows", acknowledged);
        }
    };
    put(ROWS);
    let big = db.table("big");
    if when == When::Using {
        let big = big.as_ref().unwrap();
        let value = vec![7; LONG];
        let rows = (0..MANY).map(|number| (key(number), &value));
        big.load_sorted(rows).unwrap();
        refuse(calls, error);
        put(ROWS);
    }
    for number in 0..acknowledged {
        match table.get(&key(u32::try_from(number).unwrap())) {
            Ok(found) => assert!(found.is_some(), "row {number} is gone"),
            Err(error) => voice.say("error", error),
        }
    }
    if let Ok(big) = big {
        for number in (0..MANY)
            .step_by(97)
            .take(usize::try_from(big.len()).unwrap())
        {
            match big.get(&key(number)) {
                Ok(found) => assert_eq!(found.unwrap().len(), LONG),
                Err(error) => voice.say("error", error),
            }
        }
    }
    for done in [db.flush(), db.checkpoint()] {
        if let Err(error) = done {
            voice.say("error", error);
        }
    }
    drop(table);
    if let Err(error) = db.close() {
        voice.say("error", error);
    }
    voice.say("closed", "");
}

/// Runs `case` in a forked child; returns what it told, and whether it ended by itself.
fn in_child(case: impl FnOnce(&Voice)) -> (Vec<String>, bool) {
    let (mut reader, writer) = io::pipe().unwrap();
    // SAFETY: the child runs `case` and ends without returning. `case` may allocate: glibc makes
    // its allocator usable in children.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: the call takes a number. Its signal ends a child that hangs.
        unsafe { libc::alarm(60) };
        let voice = Voice(writer.try_clone().unwrap());
        let lines = Lines(Voice(writer.try_clone().unwrap()));
        set_global_default(lines).unwrap();
        let hook = Voice(writer);
        set_hook(Box::new(move |panic| hook.say("panic", panic)));
        let outcome = catch_unwind(AssertUnwindSafe(|| case(&voice)));
        // SAFETY: the call ends the child at once, without destructors that belong to the parent.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    drop(writer);
    let mut told = String::new();
    reader.read_to_string(&mut told).unwrap();
    let mut status = 0;
    // SAFETY: the call waits for the child made above, and `status` has room for its result.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    (
        told.lines().map(str::to_owned).collect(),
        libc::WIFEXITED(status),
    )
}

/// Returns what is wrong with what a child told.
fn judge(call: &str, error: i32, told: &[String]) -> Vec<String> {
    let cause = cause(call, error);
    let is_wrong = |line: &&String| match line.split_once(' ') {
        Some(("error", text)) => {
            let has_verb = text.contains("cannot") || text.contains("choose another directory");
            !(text.contains(&cause) && has_verb)
        }
        Some(("rows" | "log" | "closed", _)) => false,
        _ => true,
    };
    told.iter().filter(is_wrong).cloned().collect()
}

/// Looks at what a child has left, of which `acknowledged` rows were, with nothing refused; tells
/// what is wrong.
fn look(directory: &Path, acknowledged: u64, voice: &Voice) {
    let db = match builder().open(directory) {
        Ok(db) => db,
        Err(error) => return voice.say("opened again:", error),
    };
    let table = db.table("t").unwrap();
    for number in 0..acknowledged {
        let key = key(u32::try_from(number).unwrap());
        if table.get(&key).unwrap().is_none() {
            voice.say("gone:", number);
        }
    }
    if table.len() > acknowledged + 1 {
        let rows = table.len();
        voice.say("too much:", format!("{rows} rows of {acknowledged}"));
    }
    table.put_with(b"again", b"1", DURABLE).unwrap();
    drop(table);
    db.close().unwrap();
    for damage in verify(directory, |_, _| ()).unwrap().damages {
        voice.say("damage:", format!("{damage:?}"));
    }
}

/// Runs one case; returns what is wrong. Adds to `met` when somebody was told of the refusal.
fn run(call: (&str, Calls), error: i32, when: When, met: &mut Vec<When>) -> Option<String> {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("store");
    if when == When::Opening {
        let made = in_child(|voice| {
            let db = builder().open(&directory).unwrap();
            let table = db.table("t").unwrap();
            for number in 0..ROWS {
                table.put_with(&key(number), b"1", DURABLE).unwrap();
            }
            voice.say("rows", ROWS);
            // The log has something to replay.
            // SAFETY: the call ends the child at once.
            unsafe { libc::_exit(0) };
        });
        assert!(made.1, "{made:?}");
    }
    let (told, has_ended) = in_child(|voice| live(&directory, voice, (call.1, error), when));
    let mut wrong = judge(call.0, error, &told);
    let cause = cause(call.0, error);
    let is_told = told.iter().any(|line| line.contains(&cause));
    met.extend(is_told.then_some(when));
    if !has_ended {
        wrong.push("it waited for ever".to_owned());
    }
    let mut rows = told.iter().filter_map(|line| line.strip_prefix("rows "));
    let before = if when == When::Opening {
        ROWS.into()
    } else {
        0
    };
    let acknowledged: u64 = rows
        .next_back()
        .map_or(before, |rows| rows.parse().unwrap());
    let (seen, is_fine) = in_child(|voice| look(&directory, acknowledged, voice));
    wrong.extend(seen.into_iter().filter(|line| !line.starts_with("log ")));
    if !is_fine {
        wrong.push("the next process waited for ever".to_owned());
    }
    let what = io::Error::from_raw_os_error(error);
    (!wrong.is_empty()).then(|| format!("{} {when:?} {what}: {wrong:#?}", call.0))
}

/// Runs all cases of one call, which surely `meets` somebody who tells of it then.
fn check(name: &str, meets: &[When]) {
    let (mut wrong, mut met) = (Vec::new(), Vec::new());
    let call = CALLS.iter().find(|(known, _)| *known == name).unwrap();
    for error in ERRORS {
        for when in [When::Making, When::Opening, When::Using] {
            if !is_tried_again(call.0, error, when) {
                wrong.extend(run(*call, error, when, &mut met));
            }
        }
    }
    let wrong = wrong.join("\n");
    assert!(wrong.is_empty(), "{wrong}");
    let is_met = meets.iter().all(|when| met.contains(when));
    assert!(is_met, "{name} meets {met:?}, not {meets:?}");
}

#[test]
fn open() {
    check("open", &[When::Making, When::Opening]);
}

#[test]
fn create() {
    check("create", &[When::Making, When::Opening]);
}

#[test]
fn read() {
    check("read", &[When::Opening, When::Using]);
}

#[test]
fn write() {
    check("write", &[When::Making, When::Opening, When::Using]);
}

#[test]
fn allocate() {
    check("allocate", &[When::Making]);
}

#[test]
fn set_len() {
    check("set-len", &[When::Making, When::Opening]);
}

#[test]
fn sync() {
    check("sync", &[When::Making, When::Opening, When::Using]);
}

#[test]
fn remove() {
    check("remove", &[]);
}

#[test]
fn make_directory() {
    check("make-directory", &[When::Making]);
}

#[test]
fn list() {
    check("list", &[When::Making, When::Opening]);
}

#[test]
fn lock() {
    check("lock", &[When::Making, When::Opening]);
}

#[test]
fn ring() {
    check("ring", &[When::Making, When::Opening]);
}

#[test]
fn enter() {
    check("enter", &[When::Using]);
}

#[test]
fn map() {
    check("map", &[When::Making, When::Opening]);
}

#[test]
fn eventfd() {
    check("eventfd", &[When::Making, When::Opening]);
}

/// One that is asked for by name is replaced, which the log says, unless that is ruled out.
#[test]
fn who_asks_for_rings_is_told() {
    let rings = Calls::Numbers(&[libc::SYS_io_uring_setup]);
    for error in [
        libc::EPERM,
        libc::ENOSYS,
        libc::EMFILE,
        libc::ENOMEM,
        libc::EAGAIN,
    ] {
        for (backend, level) in [
            (IoBackend::Auto, "log INFO"),
            (IoBackend::Uring, "log WARN"),
            (IoBackend::UringOnly, "error"),
        ] {
            let place = tempfile::tempdir().unwrap();
            let (told, is_fine) = in_child(|voice| {
                refuse(rings, error);
                match builder().io_backend(backend).open(place.path()) {
                    Ok(db) => voice.say("used", db.report().io_backend),
                    Err(error) => voice.say("error", error),
                }
            });
            let cause = io::Error::from_raw_os_error(error).to_string();
            let says = |line: &String| line.starts_with(level) && line.contains(&cause);
            assert!(is_fine && told.iter().any(says), "{backend:?}: {told:#?}");
            let used = told.iter().any(|line| line.starts_with("used "));
            let has_ring = told.iter().any(|line| line == "used uring");
            assert!(!has_ring && used == (level != "error"), "{told:#?}");
        }
    }
}
