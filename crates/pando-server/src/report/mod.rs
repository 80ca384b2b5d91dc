//! Figures as they are shown: as lists, as text for Prometheus, as the dashboard.

pub(crate) mod dashboard;
pub(crate) mod gauges;
pub(crate) mod memory_use;
pub(crate) mod metrics_text;
