//! What a command tells about keys: it records events, which leave with its commit (decision 090).

use super::{Collection, Context, Former, Run};
use crate::context::strings::FormerState;
use crate::data::keyspace::ValueType;
use crate::notifications::classes::Class;
use crate::notifications::recorded::MISS;

impl Context<'_> {
    /// Records an event of `key`, if anybody wants to know.
    #[inline]
    pub(crate) fn event(&mut self, class: Class, name: &'static str, key: &[u8]) {
        if self.shared.notifications.wants(class) {
            self.record_event(name, key);
        }
    }

    #[cold]
    fn record_event(&mut self, name: &'static str, key: &[u8]) {
        let database = self.session.database;
        self.progress.events.add(database, key, name);
    }

    /// Records that a read has found nothing at `key`.
    #[inline]
    pub(super) fn event_of_miss(&mut self, key: &[u8]) {
        self.event(Class::Miss, MISS, key);
    }

    /// Records that what the key has had is gone since it has expired, now that a write takes its
    /// place: the cleaner finds nothing any more.
    #[inline]
    pub(super) fn event_of_former(&mut self, key: &[u8], former: Former) {
        if former.is_over() {
            self.event_of_expired(key, former);
        }
    }

    #[cold]
    fn event_of_expired(&mut self, key: &[u8], former: Former) {
        if former.state == FormerState::Over {
            self.event(Class::Expired, "expired", key);
        } else {
            self.event(Class::Hash, "hexpired", key);
            self.event(Class::Generic, "del", key);
        }
    }

    /// Records that the key has got a value and had none.
    #[inline]
    pub(super) fn event_of_new(&mut self, key: &[u8], former: Former) {
        if former.state != FormerState::Lives {
            self.event(Class::New, "new", key);
        }
    }

    /// Writes a collection of which something was taken, and records that, and its end if it is
    /// empty.
    pub(crate) fn put_rest(
        &mut self,
        key: &[u8],
        collection: &Collection,
        (class, name): (Class, &'static str),
    ) -> Run {
        self.event_of_fields(key, collection);
        self.event(class, name, key);
        self.put_noted(key, collection)
    }

    /// Records that fields which have expired go with the next write of their hash.
    pub(crate) fn event_of_fields(&mut self, key: &[u8], collection: &Collection) {
        if collection.has_dropped && collection.value_type == ValueType::Hash {
            self.event(Class::Hash, "hexpired", key);
        }
    }
}
