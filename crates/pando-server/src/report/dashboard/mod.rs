//! The dashboard: one page with all it needs, and the figures that it draws.
//!
//! Reading order: `page` (made of three files once, no build step), `figures` (`/stats.json`).
//! Rates and percentiles are the page's work: the server only says what it has counted.

mod figures;
mod page;

pub(crate) use figures::stats_json;
pub(crate) use page::{POLICY, page};
