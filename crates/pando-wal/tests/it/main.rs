//! The log over devices that fail, tear writes and crash, compared with naive twins.

#![expect(
    clippy::cast_possible_truncation,
    reason = "tests count in small numbers"
)]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are not themselves tests"
)]

mod budget;
mod crash;
mod event_loop;
mod failure;
mod files;
mod group_commit;
mod growth;
mod lives;
mod model;
mod support;
mod torn;
