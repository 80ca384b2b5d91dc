//! Workloads and ablations behind 'pando bench'.

#![forbid(unsafe_code)]
