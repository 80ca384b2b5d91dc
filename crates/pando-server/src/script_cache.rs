//! The scripts that the server knows by name, shared by all loops; and the count of those that run.
//!
//! EVAL adds its script, and of these the oldest are forgotten; those of SCRIPT LOAD stay until
//! SCRIPT FLUSH. The lock is held for one look-up or change.
//!
//! It also remembers which scripts and functions have taken long, so that these leave their loops
//! at once (decision 095): many that begin in one round would hold the loop together. And which
//! have called what may not share a commit, so that they do not begin in vain (decision 103).

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher as _;

use pando_sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use pando_sync::{Arc, Mutex, Rank};
use rapidhash::fast::RandomState;

/// Number of scripts of EVAL that are kept.
const EVALUATED_MAX: usize = 500;
/// Number of places at which it is remembered what a script does. Two that share one cost each
/// other time, and nothing else.
const HABIT_PLACES: usize = 1024;
/// Memory that a script takes beside its body, about.
const SCRIPT_BYTES: usize = 256;

/// The SHA-1 of a script's text.
pub(crate) type ScriptName = [u8; 20];

/// A script.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: ScriptName,
    /// What is compiled: without the first line, if that says how the script runs.
    pub(crate) body: Vec<u8>,
    /// It must not write.
    pub(crate) no_writes: bool,
    /// Its first line says how it runs.
    pub(crate) has_shebang: bool,
}

impl Script {
    /// Bytes that it takes in the cache.
    fn memory(&self) -> usize {
        self.body.len() + SCRIPT_BYTES
    }
}

/// What a script or function has done when it ran last.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(crate) enum Habit {
    /// It took long.
    Long = 1,
    /// It called a command that may not share a commit.
    Alone = 2,
}

#[derive(Debug)]
struct Known {
    script: Arc<Script>,
    /// Its last use; `None` if it stays.
    last_use: Option<u64>,
}

#[derive(Debug, Default)]
struct Scripts {
    all: HashMap<ScriptName, Known, RandomState>,
    /// Those that do not stay, by their last use.
    evaluated: BTreeMap<u64, ScriptName>,
    /// Number of uses so far.
    uses: u64,
    /// Bytes that all take.
    bytes: usize,
}

impl Scripts {
    /// Forgets the script that was not used for the longest time, of those that do not stay.
    fn forget_oldest(&mut self) -> bool {
        let Some((_, name)) = self.evaluated.pop_first() else {
            return false;
        };
        if let Some(known) = self.all.remove(&name) {
            self.bytes -= known.script.memory();
        }
        true
    }

    /// Returns the script called `name`, which is used now.
    fn used(&mut self, name: &ScriptName) -> Option<&mut Known> {
        let known = self.all.get_mut(name)?;
        if let Some(last_use) = &mut known.last_use {
            self.uses += 1;
            self.evaluated.remove(last_use);
            self.evaluated.insert(self.uses, *name);
            *last_use = self.uses;
        }
        Some(known)
    }
}

/// All scripts that are known.
#[derive(Debug)]
pub(crate) struct ScriptCache {
    /// Guarded by its lock.
    scripts: Mutex<Scripts>,
    /// How often it was emptied.
    generation: AtomicU64,
    /// Number of scripts that run.
    running: Arc<AtomicUsize>,
    /// Grows when those that run are to be ended.
    kills: Arc<AtomicU64>,
    /// The habits of the scripts and functions whose names hash to a place.
    habits: Box<[AtomicU8]>,
    hasher: RandomState,
}

impl Default for ScriptCache {
    fn default() -> Self {
        Self {
            scripts: Mutex::new(Rank::Leaf, Scripts::default()),
            generation: AtomicU64::new(0),
            running: Arc::new(AtomicUsize::new(0)),
            kills: Arc::new(AtomicU64::new(0)),
            habits: (0..HABIT_PLACES).map(|_| AtomicU8::new(0)).collect(),
            hasher: RandomState::default(),
        }
    }
}

/// Counts a command whose scripts run, or wait, until it is dropped.
#[derive(Debug)]
pub(crate) struct RunningScript {
    running: Arc<AtomicUsize>,
    kills: Arc<AtomicU64>,
    kills_before: u64,
}

impl RunningScript {
    /// Returns the count that grows when the scripts that run are to be ended, and what it was when
    /// this one began.
    pub(crate) fn kills(&self) -> (Arc<AtomicU64>, u64) {
        (self.kills.clone(), self.kills_before)
    }

    /// Returns it as one that began when the count was `kills_before`.
    pub(crate) fn since(mut self, kills_before: u64) -> Self {
        self.kills_before = kills_before;
        self
    }
}

impl Drop for RunningScript {
    fn drop(&mut self) {
        // Relaxed: see ScriptCache::begin.
        self.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ScriptCache {
    /// Returns the script called `name`.
    pub(crate) fn find(&self, name: &ScriptName) -> Option<Arc<Script>> {
        Some(self.scripts.lock().used(name)?.script.clone())
    }

    /// Returns the number of scripts that are known, and the bytes that they take.
    pub(crate) fn usage(&self) -> (usize, usize) {
        let scripts = self.scripts.lock();
        (scripts.all.len(), scripts.bytes)
    }

    /// Returns true if the script or function called `name` has this habit.
    pub(crate) fn has_habit(&self, name: &[u8], habit: Habit) -> bool {
        // Relaxed: a hint.
        self.habits(name).load(Ordering::Relaxed) & habit as u8 != 0
    }

    /// Notes whether the script or function called `name` has this habit.
    pub(crate) fn note_habit(&self, name: &[u8], habit: Habit, has_it: bool) {
        let habits = self.habits(name);
        // Relaxed: a hint.
        match has_it {
            true => habits.fetch_or(habit as u8, Ordering::Relaxed),
            false => habits.fetch_and(!(habit as u8), Ordering::Relaxed),
        };
    }

    fn habits(&self, name: &[u8]) -> &AtomicU8 {
        let hash = self.hasher.hash_one(name) % HABIT_PLACES as u64;
        &self.habits[usize::try_from(hash).unwrap_or(0)]
    }

    /// Returns how often the cache was emptied.
    pub(crate) fn generation(&self) -> u64 {
        // Relaxed: what was compiled before is no other thing, it takes memory.
        self.generation.load(Ordering::Relaxed)
    }

    /// Adds a script; `stays` if it was loaded. All together take `bytes_max` at most: for
    /// one that does not fit, scripts of EVAL are forgotten. Returns false if that is not enough.
    pub(crate) fn add(&self, script: Arc<Script>, stays: bool, bytes_max: usize) -> bool {
        let mut scripts = self.scripts.lock();
        if let Some(known) = scripts.used(&script.name) {
            let last_use = known.last_use.take_if(|_| stays);
            last_use.map(|of| scripts.evaluated.remove(&of));
            return true;
        }
        while scripts.bytes + script.memory() > bytes_max {
            if !scripts.forget_oldest() {
                return false;
            }
        }
        scripts.bytes += script.memory();
        scripts.uses += 1;
        let last_use = (!stays).then_some(scripts.uses);
        if let Some(last_use) = last_use {
            scripts.evaluated.insert(last_use, script.name);
        }
        scripts.all.insert(script.name, Known { script, last_use });
        if scripts.evaluated.len() > EVALUATED_MAX {
            scripts.forget_oldest();
        }
        true
    }

    /// Forgets all scripts.
    pub(crate) fn clear(&self) {
        *self.scripts.lock() = Scripts::default();
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a command that begins to run scripts.
    pub(crate) fn begin(&self) -> RunningScript {
        // Relaxed: a kill beside this finds the script or does not, and either is right. If it
        // finds it, and has grown the count before it is read here, the script runs on: the client
        // sees that, and kills it again.
        self.running.fetch_add(1, Ordering::Relaxed);
        RunningScript {
            running: self.running.clone(),
            kills: self.kills.clone(),
            kills_before: self.kills.load(Ordering::Relaxed),
        }
    }

    /// Returns true if any script runs.
    pub(crate) fn any(&self) -> bool {
        self.running.load(Ordering::Relaxed) > 0
    }

    /// Ends all scripts that run. Returns false if none does.
    pub(crate) fn kill(&self) -> bool {
        if !self.any() {
            return false;
        }
        self.kills.fetch_add(1, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(number: u8, bytes: usize) -> Arc<Script> {
        Arc::new(Script {
            name: [number; 20],
            body: vec![b' '; bytes],
            no_writes: false,
            has_shebang: false,
        })
    }

    #[test]
    fn evaluated_scripts_make_room_and_loaded_ones_stay() {
        let cache = ScriptCache::default();
        let has = |number: u8| cache.find(&[number; 20]).is_some();
        assert!(cache.add(script(1, 40), true, 100 + 2 * SCRIPT_BYTES));
        assert!(cache.add(script(2, 40), false, 100 + 2 * SCRIPT_BYTES));
        assert!(
            cache.add(script(3, 40), false, 100 + 2 * SCRIPT_BYTES),
            "2 makes room"
        );
        assert!(has(1) && !has(2) && has(3));
        // What is used stays longer.
        assert!(cache.add(script(5, 1), false, 1000 + 3 * SCRIPT_BYTES));
        assert!(has(3));
        assert!(cache.add(script(6, 40), false, 141 + 3 * SCRIPT_BYTES));
        assert!(has(3) && !has(5) && has(6));
        assert!(cache.add(script(7, 40), false, 100 + 2 * SCRIPT_BYTES));
        assert!(has(1) && has(7) && !has(3) && !has(6));
        assert!(cache.add(script(3, 40), false, 100 + 2 * SCRIPT_BYTES));
        // What EVAL has added and SCRIPT LOAD names stays from then on.
        assert!(cache.add(script(3, 40), true, 100 + 2 * SCRIPT_BYTES));
        assert!(
            !cache.add(script(4, 40), true, 100 + 2 * SCRIPT_BYTES),
            "there is no room"
        );
        assert!(has(1) && has(3) && !has(4));
        cache.clear();
        assert!(!has(1) && !has(3));
        assert!(cache.add(script(4, 100 + SCRIPT_BYTES), true, 100 + 2 * SCRIPT_BYTES));
    }

    #[test]
    fn habits_are_noted_one_by_one() {
        let cache = ScriptCache::default();
        let has = |habit| cache.has_habit(b"one", habit);
        cache.note_habit(b"one", Habit::Long, true);
        assert!(has(Habit::Long) && !has(Habit::Alone));
        cache.note_habit(b"one", Habit::Alone, true);
        assert!(has(Habit::Long) && has(Habit::Alone));
        cache.note_habit(b"one", Habit::Long, false);
        assert!(!has(Habit::Long) && has(Habit::Alone));
    }

    #[test]
    fn nothing_is_killed_when_nothing_runs() {
        let cache = ScriptCache::default();
        assert!(!cache.kill());
        let running = cache.begin();
        let (kills, before) = running.kills();
        assert!(cache.kill());
        assert_ne!(kills.load(Ordering::Relaxed), before);
        drop(running);
        assert!(!cache.kill());
    }
}
