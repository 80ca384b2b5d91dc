//! Commands inside EXEC and scripts that MONITOR shows (decision 092).

use pando_resp::Arguments;

use crate::client::staging::Staged;
use crate::context::{Command, Context, Flags, Run, Secrets};
use crate::monitoring::{Argument, Caller};

impl Command {
    /// Returns true if monitors see it: what may be about secrets of the server is for
    /// administrators only.
    pub(crate) fn is_for_monitors(&self) -> bool {
        !self.flags.has(Flags::ADMIN)
    }

    /// Returns what says of each argument, one after another, whether it may be a secret.
    pub(crate) fn hides(&self) -> impl FnMut(&[u8]) -> bool {
        let (secrets, mut index) = (self.secrets, 0);
        let (mut hello, mut is_named) = (HelloSecrets::default(), false);
        move |argument| {
            index += 1;
            match secrets {
                Secrets::None => false,
                Secrets::Behind(shown) => index > shown,
                Secrets::OfHello => hello.hides(argument),
                // Name and value in turns, behind two words.
                Secrets::OfParameters if index > 2 && index % 2 == 1 => {
                    is_named = is_of_secret(argument);
                    false
                }
                Secrets::OfParameters => index > 2 && is_named,
            }
        }
    }

    /// Returns the arguments as others may see them.
    pub(crate) fn visible<'a>(
        &'a self,
        arguments: Arguments<'a>,
        staged: &'a [Staged],
    ) -> impl ExactSizeIterator<Item = Argument<'a>> {
        let mut hides = self.hides();
        (0..arguments.len()).map(move |index| {
            let long = staged.iter().find(|of| of.index == index);
            match long {
                _ if hides(arguments.at(index)) => Argument::Secret,
                Some(long) => Argument::Long(long.value.len()),
                None => Argument::Shown(arguments.at(index)),
            }
        })
    }
}

/// Returns true if the value of the parameter with this name may be a secret. A name that is not
/// known may be a misspelt one, so that all count which look like one.
fn is_of_secret(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    let has = |word: &[u8]| name.windows(word.len()).any(|part| part == word);
    has(b"pas") || has(b"auth") || has(b"user")
}

/// User and password of HELLO, and all that is behind a word that it does not know.
#[derive(Debug, Default)]
struct HelloSecrets {
    /// Number of arguments so far.
    seen: usize,
    /// Number of the next ones that belong to an option, and whether they are secrets.
    left: usize,
    is_secret: bool,
    is_unknown: bool,
}

impl HelloSecrets {
    fn hides(&mut self, argument: &[u8]) -> bool {
        self.seen += 1;
        if self.seen <= 2 || self.is_unknown {
            return self.is_unknown;
        }
        if self.left > 0 {
            self.left -= 1;
            return self.is_secret;
        }
        self.is_secret = argument.eq_ignore_ascii_case(b"auth");
        self.is_unknown = !self.is_secret && !argument.eq_ignore_ascii_case(b"setname");
        self.left = if self.is_secret { 2 } else { 1 };
        self.is_unknown
    }
}

impl Context<'_> {
    /// Returns true if this run shows its command to somebody: if it is inside EXEC or a script, or
    /// is a script, which comes before what it calls.
    #[inline]
    pub(super) fn is_shown(&self) -> bool {
        self.shared.channels.has_monitors()
            && (self.exec_index.is_some() || self.command.is_script())
    }

    /// Runs the command and shows it: a script before what it calls, any other when it has run.
    #[cold]
    pub(super) fn run_shown(&mut self) -> Run {
        let (is_first, is_in_script) = (self.command.is_script(), self.progress.replies_in_memory);
        if is_first {
            self.show(is_in_script);
        }
        let run = self.run_command();
        if !is_first && run.is_ok() {
            self.show(is_in_script);
        }
        run
    }

    /// Adds the line of this command to those that leave with the command around it, which is a
    /// script or not.
    #[cold]
    pub(crate) fn show(&mut self, is_in_script: bool) {
        if !self.command.is_for_monitors() {
            return;
        }
        let caller = match is_in_script {
            true => Caller::Script,
            false => Caller::Client(&self.record.address),
        };
        let arguments = self.command.visible(self.arguments, self.staged);
        let lines = &mut self.progress.lines;
        lines.add((self.session.database, caller), arguments);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_parameters_only_values_that_may_be_secrets_are_hidden() {
        let command = Command {
            secrets: Secrets::OfParameters,
            ..Command::new("set", -4, |_| Ok(()))
        };
        let hidden = |text: &str| {
            let mut hides = command.hides();
            let words = text.split(' ').map(|word| hides(word.as_bytes()));
            words
                .map(|hides| if hides { '*' } else { '.' })
                .collect::<String>()
        };
        assert_eq!(hidden("CONFIG SET hz 12 timeout 0"), "......");
        assert_eq!(
            hidden("CONFIG SET hz 12 RequirePass s timeout 0"),
            ".....*.."
        );
        assert_eq!(hidden("CONFIG SET masterauth s requirepas s"), "...*.*");
        assert_eq!(hidden("CONFIG SET tls-key-file-pass s timeout"), "...*.");
    }

    #[test]
    fn of_hello_only_user_and_password_are_hidden() {
        let hidden = |text: &str| {
            let mut secrets = HelloSecrets::default();
            let hides = text.split(' ').map(|word| secrets.hides(word.as_bytes()));
            hides
                .map(|hides| if hides { '*' } else { '.' })
                .collect::<String>()
        };
        assert_eq!(hidden("HELLO"), ".");
        assert_eq!(hidden("HELLO 3"), "..");
        assert_eq!(hidden("HELLO 3 AUTH u p SETNAME n"), "...**..");
        assert_eq!(hidden("HELLO 3 SETNAME auth auth u p"), ".....**");
        assert_eq!(hidden("HELLO 3 AUTH u"), "...*");
        assert_eq!(hidden("HELLO 3 u p"), "..**");
        assert_eq!(hidden("HELLO 3 SETNAME n AUHT u p"), "....***");
    }
}
