//! Optimistic, restartable B+tree over the pool; does no I/O.
