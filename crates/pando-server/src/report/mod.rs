//! Presentation of the figures: lists, text for Prometheus, and the dashboard.

pub(crate) mod dashboard;
pub(crate) mod gauges;
pub(crate) mod memory_use;
pub(crate) mod metrics_text;
