//! Files and completion-based devices: pread, memory, faulty.
