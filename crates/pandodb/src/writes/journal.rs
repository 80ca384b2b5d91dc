//! A journal of what the writes of a transaction have replaced in its set of writes, so that it can
//! go back to a savepoint. Nothing is noted before the first savepoint.

/// The steps since the first savepoint, in order. `C` is what the set has for a key.
#[derive(Debug)]
pub(crate) struct Journal<C> {
    /// There is a savepoint.
    is_kept: bool,
    steps: Vec<Undo<C>>,
}

/// How to take back one write.
#[derive(Debug)]
pub(crate) enum Undo<C> {
    /// It has added a key, the last one of the set at that time.
    Added,
    /// It has replaced what the set had at this position.
    Replaced(usize, C),
}

impl<C> Default for Journal<C> {
    fn default() -> Self {
        Self {
            is_kept: false,
            steps: Vec::new(),
        }
    }
}

impl<C> Journal<C> {
    /// Notes all writes from now on. Returns the number of those noted so far.
    pub(crate) fn keep(&mut self) -> usize {
        self.is_kept = true;
        self.steps.len()
    }

    /// Bytes that it takes.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&self.steps[..])
    }

    /// Bytes that are kept for the next use.
    pub(crate) fn capacity(&self) -> usize {
        self.steps.capacity() * size_of::<Undo<C>>()
    }

    /// Returns whether writes are noted.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Notes a new key.
    pub(crate) fn added(&mut self) {
        if self.is_kept {
            self.steps.push(Undo::Added);
        }
    }

    /// Notes what was replaced.
    pub(crate) fn replaced(&mut self, position: usize, old: C) {
        if self.is_kept {
            self.steps.push(Undo::Replaced(position, old));
        }
    }

    /// Takes the last write after the first `count`.
    pub(crate) fn pop_beyond(&mut self, count: usize) -> Option<Undo<C>> {
        assert!(count <= self.steps.len(), "a savepoint of a later state");
        (self.steps.len() > count)
            .then(|| self.steps.pop())
            .flatten()
    }

    /// Forgets all, and notes nothing until the next savepoint.
    pub(crate) fn clear(&mut self) {
        self.is_kept = false;
        self.steps.clear();
    }
}
