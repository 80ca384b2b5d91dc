//! The dashboard: one self-contained page, and the figures that it draws.
//!
//! Reading order: `page` (assembled from three files once, without a build step), `figures`
//! (`/stats.json`). The page computes rates and percentiles: the server only reports what it has
//! counted.

mod figures;
mod page;

pub(crate) use figures::stats_json;
pub(crate) use page::{POLICY, page};
