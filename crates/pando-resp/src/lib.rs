//! RESP2 and RESP3 codec, sans-io, bounded.
