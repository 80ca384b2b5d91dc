//! Commits: turn a set of writes into changed pages. [`steps`] has the order of the steps.

pub(crate) mod before_images;
pub(crate) mod blobs;
pub(crate) mod buffers;
pub(crate) mod check;
pub(crate) mod cut_off;
pub(crate) mod delete_room;
pub(crate) mod entered;
pub(crate) mod key_locks;
pub(crate) mod leaf_checks;
pub(crate) mod leaf_pins;
pub(crate) mod log_room;
pub(crate) mod order;
pub(crate) mod outcome;
pub(crate) mod page_id_room;
pub(crate) mod pages;
pub(crate) mod put_scratch;
pub(crate) mod scratch;
pub(crate) mod second_look;
pub(crate) mod section;
pub(crate) mod single_put;
pub(crate) mod state_check;
pub(crate) mod steps;
pub(crate) mod swaps;
pub(crate) mod table_pages;
pub(crate) mod tables;
