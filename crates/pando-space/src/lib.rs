//! Hierarchical bitmap of blocks with groups, bounded search and credits.
