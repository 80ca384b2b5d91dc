//! The server library: event loops and commands over pandodb.
