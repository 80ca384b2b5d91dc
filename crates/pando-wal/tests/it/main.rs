//! The log against devices that fail, tear and crash, and against naive twins.

mod budget;
mod event_loop;
mod failure;
mod group_commit;
mod lives;
mod model;
mod support;
mod torn;
