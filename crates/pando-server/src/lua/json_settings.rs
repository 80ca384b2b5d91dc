//! What scripts choose of how `cjson` works. A run begins with the defaults, those of Redis.

/// Deepest nesting that works, whatever is chosen: each level has two references of `mlua`, which
/// has room for some thousands.
const DEPTH_MOST: u32 = 2000;

/// What a setting may be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// A number between these.
    Number(u32, u32),
    /// One of these words, by its place; the first two are false and true.
    Word(&'static [&'static str]),
}

const SWITCH: Kind = Kind::Word(&["off", "on"]);
const FROM_0: Kind = Kind::Number(0, u32::MAX / 2);
const FROM_1: Kind = Kind::Number(1, u32::MAX / 2);

/// A setting, which is an argument of a function.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    pub(super) function: &'static str,
    pub(super) kind: Kind,
    default: u32,
}

const fn choice(function: &'static str, kind: Kind, default: u32) -> Choice {
    Choice {
        function,
        kind,
        default,
    }
}

/// All settings; those of one function are its arguments in this order.
pub(super) const CHOICES: [Choice; 9] = [
    choice("encode_sparse_array", SWITCH, 0),
    choice("encode_sparse_array", FROM_0, 2),
    choice("encode_sparse_array", FROM_0, 10),
    choice("encode_max_depth", FROM_1, 1000),
    choice("decode_max_depth", FROM_1, 1000),
    choice("encode_number_precision", Kind::Number(1, 14), 14),
    choice(
        "encode_invalid_numbers",
        Kind::Word(&["off", "on", "null"]),
        0,
    ),
    choice("decode_invalid_numbers", SWITCH, 1),
    // Changes nothing here.
    choice("encode_keep_buffer", SWITCH, 1),
];

// Places in `CHOICES`.

/// Sparse arrays are written as objects, and not refused.
pub(super) const CONVERTS_SPARSE: usize = 0;
/// An array with a larger share of holes, and a place beyond `SPARSE_SAFE`, is sparse; 0: none is.
pub(super) const SPARSE_RATIO: usize = 1;
pub(super) const SPARSE_SAFE: usize = 2;
/// Nesting from which on tables are refused, and texts.
pub(super) const ENCODE_DEPTH: usize = 3;
pub(super) const DECODE_DEPTH: usize = 4;
/// Digits of numbers.
pub(super) const PRECISION: usize = 5;
/// Infinity and what is no number are refused, written or null.
pub(super) const ENCODES_INVALID: usize = 6;
/// Numbers that are not JSON are read.
pub(super) const DECODES_INVALID: usize = 7;

/// The settings, by their places.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings(pub(super) [u32; CHOICES.len()]);

impl Default for Settings {
    fn default() -> Self {
        Self(CHOICES.map(|of| of.default))
    }
}

impl Settings {
    /// Returns a setting.
    pub(super) fn at(&self, place: usize) -> usize {
        self.0[place] as usize
    }

    /// Returns a nesting, as far as it works.
    pub(super) fn depth(&self, place: usize) -> usize {
        self.0[place].min(DEPTH_MOST) as usize
    }
}
