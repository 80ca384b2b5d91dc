//! Runs programs under callgrind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::run::{Result, run};

/// Settings of the C library with which it copies and clears by vectors, whatever the length.
const WITHOUT_REPEATS: &str = "glibc.cpu.x86_rep_movsb_threshold=0x7fffffff:\
                               glibc.cpu.x86_rep_stosb_threshold=0x7fffffff";

/// The files of a callgrind run.
pub(super) struct Valgrind {
    folder: PathBuf,
    /// See area.c.
    area: PathBuf,
}

impl Valgrind {
    /// Creates it, with its files in `folder`.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let source = folder.join("area.c");
        fs::write(&source, include_str!("area.c"))
            .map_err(|error| format!("{}: {error}", source.display()))?;
        let area = folder.join("area.so");
        run(Command::new("cc")
            .args(["-O2", "-shared", "-fPIC", "-o"])
            .arg(&area)
            .arg(&source))?;
        Ok(Self {
            folder: folder.to_owned(),
            area,
        })
    }

    /// Returns an empty folder.
    pub(super) fn empty_folder(&self) -> Result<PathBuf> {
        let folder = self.folder.join("store");
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("{}: {error}", folder.display()))
            }
            _ => Ok(folder),
        }
    }

    /// Returns a command that runs `program` under callgrind and discards its output.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("valgrind");
        let out = format!("--callgrind-out-file={}", self.out().display());
        command
            .args(["-q", "--tool=callgrind", &out])
            .arg(program)
            .env("LD_PRELOAD", &self.area)
            // Valgrind counts an instruction that repeats once for each byte, though a processor
            // takes many: copies into new files of the log were 500 of the 6,900 of a put.
            .env("GLIBC_TUNABLES", WITHOUT_REPEATS)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    fn out(&self) -> PathBuf {
        self.folder.join("callgrind.out")
    }

    /// Returns the number of instructions of the program that ended last.
    pub(super) fn total(&self) -> Result<u64> {
        let out = self.out();
        let text =
            fs::read_to_string(&out).map_err(|error| format!("{}: {error}", out.display()))?;
        let total = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse().ok()
        };
        total("summary:")
            .or_else(|| total("totals:"))
            .ok_or_else(|| format!("{}: no sum in it", out.display()))
    }

    /// Returns the number of instructions of a whole run.
    pub(super) fn count(&self, program: &Path, arguments: &[&str]) -> Result<u64> {
        let mut command = self.command(program);
        let status = command
            .args(arguments)
            .status()
            .map_err(|error| format!("{command:?}: {error} (is valgrind installed?)"))?;
        match status.success() {
            true => self.total(),
            false => Err(format!("{command:?}: {status}")),
        }
    }
}
