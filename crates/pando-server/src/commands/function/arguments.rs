//! What FUNCTION says of a subcommand that has too many arguments.

/// Returns the error of the subcommand that a client calls `name`.
pub(super) fn wrong_arguments(name: &str) -> String {
    format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try FUNCTION HELP.")
}
