//! Which notes of the device were logged: a back end that was passed over, and why. The device
//! keeps them for reports; whoever reads only the log learns of them, too, once each.

use std::collections::BTreeSet;

use pando_device::AnyDevice;
use pando_sync::Mutex;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ToldNotes(Mutex<BTreeSet<String>>);

impl ToldNotes {
    /// Logs what `device` has noted since the last call: as a warning, if something else
    /// `was_asked` for, or was there before.
    pub(crate) fn tell(&self, device: &AnyDevice, was_asked: bool) {
        let Some(choice) = device.choice() else {
            return;
        };
        let passed_over = choice.passed_over.iter().map(ToString::to_string);
        let notes: Vec<String> = passed_over.chain(choice.notes).collect();
        if notes.is_empty() {
            return;
        }
        let is_new = |note: &String| self.0.lock().insert(note.clone());
        for note in notes.into_iter().filter(is_new) {
            let used = choice.used.name();
            match was_asked {
                true => tracing::warn!(note, used, "I/O works less well than it could"),
                false => tracing::info!(note, used, "I/O works less well than it could"),
            }
        }
    }
}
