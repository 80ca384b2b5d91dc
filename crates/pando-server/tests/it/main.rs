//! Tests over real sockets: a server in this process on port 0, and a small blocking client.

mod client;
mod commands;
mod concurrency;
mod durability;
mod expiry;
mod fixture;
mod hostile;
mod introspection;
mod lifecycle;
mod pipeline;
mod scan;
mod transactions;
