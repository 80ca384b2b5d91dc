//! Tests over real sockets, with a server in this process on port 0 and a small blocking client.

#[cfg(test)]
mod between;
#[cfg(test)]
mod bits;
#[cfg(test)]
mod blocking;
#[cfg(test)]
mod built;
#[cfg(test)]
mod client;
mod client_memory;
#[cfg(test)]
mod cold;
#[cfg(test)]
mod collection_histories;
#[cfg(test)]
mod combined;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod compact;
#[cfg(test)]
mod concurrency;
#[cfg(test)]
mod config;
#[cfg(test)]
mod contended;
#[cfg(test)]
mod copies;
#[cfg(test)]
mod diagnosis;
#[cfg(test)]
mod dumps;
#[cfg(test)]
mod durability;
#[cfg(test)]
mod encodings;
#[cfg(test)]
mod exec_beside;
#[cfg(test)]
mod expiry;
#[cfg(test)]
mod expiry_obstacles;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod fields;
mod fields_left;
#[cfg(test)]
mod fixture;
#[cfg(all(test, feature = "scripts"))]
mod functions;
#[cfg(test)]
mod gone;
#[cfg(test)]
mod hashes;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod hostile;
#[cfg(all(test, feature = "scripts"))]
mod hostile_payloads;
#[cfg(all(test, feature = "scripts"))]
mod hostile_scripts;
#[cfg(test)]
mod hyperloglog;
#[cfg(test)]
mod interactive;
#[cfg(test)]
mod introspection;
#[cfg(test)]
mod kept_heads;
#[cfg(test)]
mod key_order;
#[cfg(test)]
mod key_range;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod large;
#[cfg(test)]
mod large_replies;
#[cfg(test)]
mod large_reply_obstacles;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod list_blocks;
#[cfg(test)]
mod list_room;
mod list_walks;
#[cfg(test)]
mod lists;
#[cfg(test)]
mod many_names;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod model;
#[cfg(test)]
mod monitor;
#[cfg(test)]
mod near_replies;
#[cfg(test)]
mod notifications;
#[cfg(test)]
mod patches;
#[cfg(test)]
mod pieces;
mod pipeline;
#[cfg(test)]
mod pipeline_keyless;
#[cfg(test)]
mod pipeline_reads;
#[cfg(test)]
mod pipeline_runs;
#[cfg(test)]
mod pipeline_writes;
#[cfg(test)]
mod pipelined_elements;
#[cfg(test)]
mod places;
#[cfg(test)]
mod profile;
#[cfg(test)]
mod pubsub;
#[cfg(test)]
mod replaced;
mod round_runs;
#[cfg(test)]
mod rows_check;
#[cfg(test)]
mod scan;
#[cfg(all(test, feature = "scripts"))]
mod script_bounds;
#[cfg(all(test, feature = "scripts"))]
mod script_environments;
#[cfg(all(test, feature = "scripts"))]
mod script_failures;
#[cfg(all(test, feature = "scripts"))]
mod script_grammar;
#[cfg(all(test, feature = "scripts"))]
mod script_libraries;
#[cfg(all(test, feature = "scripts"))]
mod script_pipelines;
#[cfg(all(test, feature = "scripts"))]
mod script_threads;
#[cfg(all(test, feature = "scripts"))]
mod scripts;
#[cfg(test)]
mod sets;
#[cfg(test)]
mod small_print;
#[cfg(test)]
mod snapshot_reads;
#[cfg(test)]
mod sort;
#[cfg(test)]
mod sorted_replies;
#[cfg(test)]
mod sorted_sets;
#[cfg(test)]
mod stalls;
#[cfg(test)]
mod statistics;
#[cfg(test)]
mod store_dump;
#[cfg(test)]
mod stored_ranges;
#[cfg(test)]
mod stream_pipelines;
#[cfg(test)]
mod stream_readers;
mod stream_rows;
mod stream_sizes;
mod streams;
#[cfg(test)]
mod subsequence;
mod swapdb;
#[cfg(test)]
mod tracking;
#[cfg(test)]
mod tracking_stress;
#[cfg(test)]
mod transactions;
#[cfg(test)]
mod tree_ends;
mod tree_named;
#[cfg(test)]
mod trees;
mod unix_socket;
mod until_end;
