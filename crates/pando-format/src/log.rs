//! Log segments and records (written by the log).
