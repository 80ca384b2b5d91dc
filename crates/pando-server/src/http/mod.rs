//! What is served over HTTP: metrics, probes, the dashboard.

mod endpoint;
mod request;

pub(crate) use endpoint::HttpEndpoint;
