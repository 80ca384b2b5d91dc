//! Other engines under the workloads of `pando bench kv`, side by side.

#![forbid(unsafe_code)]

fn main() {}
