//! Workloads and ablations behind 'pando bench'.
