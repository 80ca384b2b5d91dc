//! Sorted sets: members with scores, ordered by score and then by the bytes of the member.

pub(super) mod add;
mod bounds;
pub(super) mod combine;
pub(super) mod count;
mod describe;
pub(super) mod double;
pub(super) mod geo;
pub(super) mod order;
pub(super) mod pop;
pub(super) mod random;
pub(super) mod range;
pub(super) mod remove;
mod replying;
pub(super) mod scan;
pub(super) mod score;
pub(super) mod waiting;
