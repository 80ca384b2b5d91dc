//! The log: framing, group commit, recycled segments, replay.
