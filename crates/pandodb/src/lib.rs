//! A transactional, ordered key-value engine for data larger than memory.
