//! Commands of Redis that are not there, and why: for a better error than that they are unknown.

#[cfg(not(feature = "scripts"))]
const SCRIPTS: &str = "this server was built without scripts";
/// Of what `redis-cli --rdb` sends.
const COPYING: &str = "replication is not there yet; 'pando export' writes all keys to an RDB file";
const MIGRATION: &str = "it would have to wait for another server: read a key with DUMP here, \
                         and send it to the other one with RESTORE";
const USERS: &str = "there is no user but default";

/// Ordered; subcommands behind the name of their container.
const ABSENT: &[(&str, &str)] = &[
    ("acl|deluser", USERS),
    ("acl|dryrun", USERS),
    ("acl|genpass", "choose a password in another way"),
    ("acl|getuser", USERS),
    ("acl|list", USERS),
    ("acl|load", USERS),
    ("acl|log", "a wrong password is in the log of the server"),
    ("acl|save", USERS),
    ("acl|setuser", USERS),
    #[cfg(not(feature = "scripts"))]
    ("eval", SCRIPTS),
    #[cfg(not(feature = "scripts"))]
    ("eval_ro", SCRIPTS),
    #[cfg(not(feature = "scripts"))]
    ("evalsha", SCRIPTS),
    #[cfg(not(feature = "scripts"))]
    ("evalsha_ro", SCRIPTS),
    #[cfg(not(feature = "scripts"))]
    ("fcall", SCRIPTS),
    #[cfg(not(feature = "scripts"))]
    ("fcall_ro", SCRIPTS),
    #[cfg(not(feature = "scripts"))]
    ("function", SCRIPTS),
    ("migrate", MIGRATION),
    (
        "monitor",
        "SLOWLOG with slowlog-log-slower-than 0 shows commands",
    ),
    ("object|freq", "how often keys are used is not tracked"),
    ("psync", COPYING),
    ("replconf", COPYING),
    #[cfg(not(feature = "scripts"))]
    ("script", SCRIPTS),
    ("sync", COPYING),
];

/// Returns the error for a command of Redis that is not there; `None` if Redis does not have it,
/// either. `name` may be one of a subcommand.
#[cold]
pub(super) fn absent(name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let at = ABSENT.binary_search_by(|(known, _)| (*known).cmp(&*name));
    let (name, reason) = ABSENT[at.ok()?];
    let name = name.to_ascii_uppercase().replace('|', " ");
    Some(format!("ERR {name} is not supported: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        assert!(ABSENT.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let text = "ERR ACL LIST is not supported: there is no user but default";
        assert_eq!(absent("Acl|LIST").as_deref(), Some(text));
        assert_eq!(absent("nosuch"), None);
    }
}
