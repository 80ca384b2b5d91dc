//! All orders of the steps of one reader, one writer and the reader's loop, over one key: a twin of
//! the protocol of [`super::registry`]. However they come, the client does not keep a value that
//! has changed; and it does for each way in which the protocol could be wrong.

use std::collections::HashSet;

/// How a command reads the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Read {
    /// Without a transaction.
    Plain,
    /// In one, whose commit finds that nothing has changed. After a conflict it runs again, and is
    /// answered with what the commit has found.
    Checked,
    /// At a snapshot.
    Old,
}

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Write {
    Key,
    /// First the key with all others, and then the key.
    All,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Defect {
    None,
    RegistersAfterItReads,
    RegistersAfterItsCommit,
    DoesNotHoldMessages,
    KeepsWhatIsOld,
    LooksBeforeItsCommit,
    TellsBeforeItEmptiesTheTable,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    /// The newest value, which is the number of commits.
    value: u8,
    is_registered: bool,
    mail: u8,
    is_held: bool,
    /// What the client keeps.
    cache: Option<u8>,
    /// Next step of each, and how often it has begun.
    reader: (u8, u8),
    writer: (u8, u8),
    /// What the reader has read, and the value that it is answered with when it runs again.
    read: u8,
    found: Option<u8>,
    /// The writer has taken the reader out, and has to tell it.
    taken: bool,
}

struct Case {
    read: Read,
    write: Write,
    defect: Defect,
}

impl Case {
    fn registers(&self, state: &mut State) {
        state.is_registered = true;
        state.is_held = self.defect != Defect::DoesNotHoldMessages;
    }

    fn replies(&self, state: &mut State, value: u8) {
        state.cache = Some(value);
        state.is_held = false;
        state.found = None;
        state.reader = (0, state.reader.1 + 1);
    }

    /// One step of the reader.
    fn step_reader(&self, state: &mut State) {
        let step = state.reader.0;
        state.reader.0 += 1;
        let is_late = self.defect == Defect::RegistersAfterItReads;
        match (self.read, step) {
            (Read::Plain, 0) if !is_late => self.registers(state),
            (Read::Plain, 0) => state.read = state.value,
            (Read::Plain, 1) if !is_late => state.read = state.value,
            (Read::Plain, 1) => self.registers(state),
            (Read::Checked, 0) => state.read = state.found.unwrap_or(state.value),
            (Read::Checked, 1) if self.defect != Defect::RegistersAfterItsCommit => {
                self.registers(state);
            }
            (Read::Checked, 1) => {}
            (Read::Checked, 2) if state.found.is_none() && state.read != state.value => {
                state.found = Some(state.value);
                state.reader.0 = 0;
            }
            (Read::Checked, 2) => {}
            (Read::Old, 0) => state.read = state.value,
            (Read::Old, 1) => {}
            _ => {
                if self.defect == Defect::RegistersAfterItsCommit {
                    self.registers(state);
                }
                let value = state.read;
                self.replies(state, value);
                if self.read == Read::Old && self.defect != Defect::KeepsWhatIsOld {
                    state.mail += 1;
                }
            }
        }
    }

    /// One step of the writer.
    fn step_writer(&self, state: &mut State) {
        let step = state.writer.0;
        state.writer.0 += 1;
        let looks_first = self.defect == Defect::LooksBeforeItsCommit;
        let tells_first = self.defect == Defect::TellsBeforeItEmptiesTheTable;
        let write = match state.writer.1 {
            0 => self.write,
            _ => Write::Key,
        };
        match (write, step) {
            (Write::Key, 0) if looks_first => state.taken = take(state),
            (_, 0) => state.value += 1,
            (Write::Key, 1) if looks_first => state.value += 1,
            (Write::Key, 1) => state.taken = take(state),
            (Write::All, 1) if tells_first => state.mail += 1,
            (Write::All, 1) => state.is_registered = false,
            _ => {
                match write {
                    Write::Key => state.mail += u8::from(state.taken),
                    Write::All if tells_first => state.is_registered = false,
                    Write::All => state.mail += 1,
                }
                state.taken = false;
                state.writer = (0, state.writer.1 + 1);
            }
        }
    }

    /// Visits all states behind `state`; returns whether the client keeps what has changed in one
    /// where all is done.
    fn goes_wrong(&self, state: State, seen: &mut HashSet<State>) -> bool {
        if !seen.insert(state.clone()) {
            return false;
        }
        let mut is_over = true;
        let mut next = Vec::new();
        if state.reader.1 < 2 {
            let mut after = state.clone();
            self.step_reader(&mut after);
            next.push(after);
        }
        if state.writer.1 < 3 {
            let mut after = state.clone();
            self.step_writer(&mut after);
            next.push(after);
        }
        if state.mail > 0 && !state.is_held {
            let mut after = state.clone();
            after.mail = 0;
            after.cache = None;
            next.push(after);
        }
        for after in next {
            is_over = false;
            if self.goes_wrong(after, seen) {
                return true;
            }
        }
        is_over && state.cache.is_some_and(|kept| kept != state.value)
    }
}

/// Takes the reader out of the entry; returns whether it was there.
fn take(state: &mut State) -> bool {
    std::mem::take(&mut state.is_registered)
}

fn goes_wrong(read: Read, write: Write, defect: Defect) -> bool {
    let case = Case {
        read,
        write,
        defect,
    };
    let state = State {
        value: 0,
        is_registered: false,
        mail: 0,
        is_held: false,
        cache: None,
        reader: (0, 0),
        writer: (0, 0),
        read: 0,
        found: None,
        taken: false,
    };
    case.goes_wrong(state, &mut HashSet::new())
}

#[test]
fn no_order_lets_a_client_keep_what_has_changed() {
    for read in [Read::Plain, Read::Checked, Read::Old] {
        for write in [Write::Key, Write::All] {
            assert!(!goes_wrong(read, write, Defect::None), "{read:?} {write:?}");
        }
    }
}

#[test]
fn each_defect_has_an_order_that_shows_it() {
    for (read, write, defect) in [
        (Read::Plain, Write::Key, Defect::RegistersAfterItReads),
        (Read::Checked, Write::Key, Defect::RegistersAfterItsCommit),
        (Read::Checked, Write::Key, Defect::DoesNotHoldMessages),
        (Read::Plain, Write::Key, Defect::DoesNotHoldMessages),
        (Read::Old, Write::Key, Defect::KeepsWhatIsOld),
        (Read::Plain, Write::Key, Defect::LooksBeforeItsCommit),
        (
            Read::Plain,
            Write::All,
            Defect::TellsBeforeItEmptiesTheTable,
        ),
    ] {
        assert!(goes_wrong(read, write, defect), "{defect:?}");
    }
}
