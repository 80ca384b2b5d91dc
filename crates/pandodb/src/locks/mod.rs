//! Locks of keys and of tables, for transactions that would rather wait than conflict (decision
//! 069).
//!
//! The stripes keep commits of the same key apart for the microseconds of a commit. The locks here
//! are held from a read to the commit that follows from it, so they are by key, and kept in a table
//! beside the stripes: 64 shards, by stripe. A commit looks into the table only if the word of a
//! stripe that it has taken is marked, so commits pay nothing for locks that nobody holds.
//!
//! # The ordering argument
//!
//! A locker enters the lock into its shard, marks the stripe of the key, and then waits until
//! nobody holds the stripe exclusively. A commit takes the stripe exclusively, and then looks at
//! the mark. Taking and marking are changes of one word, so one comes first. If it is the mark, the
//! commit sees it, and finds the lock in the shard. If it is the commit, the locker waits until
//! that has changed its pages, and whatever it reads afterwards is the newest value. A commit that
//! finds a marked stripe without any lock takes the mark away under the lock of the shard, under
//! which marks are set, too.
//!
//! Batches that change tables close the gate, take no stripes, and look for locks then. A locker
//! enters the lock first, and the gate afterwards, where it sees whether the table still has the
//! tree whose key it has locked. Either the batch finds the lock, and waits outside of the gate; or
//! it had closed the gate before, and the locker sees another tree.
//!
//! # Who waits
//!
//! Lockers wait in the queue of the lock, first come, first served. So do commits that meet a lock
//! of somebody else. When their turn comes they get a *pass*, which says only that they need not
//! wait for this lock again, also if they begin anew after a conflict. Passes are shared, and a
//! pass that is not used soon is taken away: nobody waits for an event loop that has forgotten its
//! commit, nor for a commit that waits for another lock.
//!
//! Whoever holds something, if only a pass, and begins to wait looks for a cycle of waits
//! (`cycles`). Passes in it are taken away; if there are none, the youngest gets
//! [`Error::Deadlock`](crate::Error::Deadlock). Waits begin one at a time in that respect, and no
//! wait gets longer later on, so the last wait of a cycle finds it.

mod cycles;
mod graph;
mod lock;
mod name;
mod owner;
mod table;
mod wait;

pub(crate) use lock::Mode;
pub(crate) use name::{LockName, OwnerId};
pub(crate) use owner::{Asked, LockOwner, OwnerKind};
pub(crate) use table::LockTable;
pub(crate) use wait::LockWait;
