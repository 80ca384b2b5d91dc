//! The string of a HyperLogLog, in the bytes of Redis: `HYLL`, 0 for dense or 1 for sparse, three
//! bytes that are not used, the last estimate as 8 bytes little-endian (with its highest bit set,
//! it is out of date), registers.

use super::dense;
use super::estimate::{Histogram, estimate};
use super::hash::{REGISTERS, place};
use super::sparse::{self, Raised};

const MAGIC: &[u8; 4] = b"HYLL";
const HEADER_BYTES: usize = 16;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
/// Bytes of the longest sparse string, with its header (`hll-sparse-max-bytes`).
const SPARSE_BYTES_MAX: usize = 3000;

/// Values of all registers.
pub(super) type Registers = Box<[u8; REGISTERS]>;

/// Error: the runs of a sparse string do not cover the registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Corrupt;

/// A string that has the form of a HyperLogLog; its registers may be damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sketch {
    header: [u8; HEADER_BYTES],
    registers: Vec<u8>,
}

/// Returns registers that are all zero.
pub(super) fn no_registers() -> Registers {
    Box::new([0; REGISTERS])
}

impl Sketch {
    /// Makes one without elements.
    pub(super) fn new() -> Self {
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(MAGIC);
        header[4] = SPARSE;
        Self {
            header,
            registers: sparse::empty(),
        }
    }

    /// Returns the HyperLogLog that has these bytes; `None` if they have another form.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (header, registers) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let is_good = match header[4] {
            DENSE => registers.len() == dense::BYTES,
            SPARSE => true,
            _ => false,
        };
        (header.starts_with(MAGIC) && is_good).then(|| Self {
            header: *header,
            registers: registers.to_vec(),
        })
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        [&self.header[..], &self.registers].concat()
    }

    pub(super) fn is_dense(&self) -> bool {
        self.header[4] == DENSE
    }

    /// Returns the runs of a sparse one.
    pub(super) fn runs(&self) -> impl Iterator<Item = sparse::Run> {
        sparse::runs(&self.registers)
    }

    /// Returns the last estimate, if it holds.
    pub(super) fn last_estimate(&self) -> Option<u64> {
        let (_, last) = self.header.split_last_chunk::<8>()?;
        let last = u64::from_le_bytes(*last);
        (last >> 63 == 0).then_some(last)
    }

    /// Notes that the last estimate is out of date.
    pub(super) fn outdate(&mut self) {
        self.header[HEADER_BYTES - 1] |= 0x80;
    }

    /// Adds an element. Returns true if a register has changed.
    pub(super) fn add(&mut self, element: &[u8]) -> Result<bool, Corrupt> {
        let (index, value) = place(element);
        self.raise(index, value)
    }

    /// Raises a register to `value` at least. Returns true if it was less.
    pub(super) fn raise(&mut self, index: usize, value: u8) -> Result<bool, Corrupt> {
        if !self.is_dense() {
            let most = SPARSE_BYTES_MAX - HEADER_BYTES;
            match sparse::raise(&mut self.registers, index, value, most) {
                Raised::Already => return Ok(false),
                Raised::Changed => return Ok(true),
                Raised::Corrupt => return Err(Corrupt),
                Raised::NeedsDense => {}
            }
            self.make_dense()?;
        }
        let is_less = dense::get(&self.registers, index) < value;
        if is_less {
            dense::set(&mut self.registers, index, value);
        }
        Ok(is_less)
    }

    /// Makes it a dense one.
    pub(super) fn make_dense(&mut self) -> Result<(), Corrupt> {
        if self.is_dense() {
            return Ok(());
        }
        let mut registers = no_registers();
        self.merge_into(&mut registers)?;
        let mut made = vec![0; dense::BYTES];
        for (index, value) in registers.iter().enumerate() {
            dense::set(&mut made, index, *value);
        }
        self.registers = made;
        self.header[4] = DENSE;
        Ok(())
    }

    /// Raises `registers` to its own.
    pub(super) fn merge_into(&self, registers: &mut [u8; REGISTERS]) -> Result<(), Corrupt> {
        if self.is_dense() {
            for (index, register) in registers.iter_mut().enumerate() {
                *register = dense::get(&self.registers, index).max(*register);
            }
            return Ok(());
        }
        let mut first = 0;
        for run in self.runs() {
            let of_run = registers.get_mut(first..first + run.length);
            for register in of_run.ok_or(Corrupt)? {
                *register = run.value.max(*register);
            }
            first += run.length;
        }
        if first == REGISTERS {
            Ok(())
        } else {
            Err(Corrupt)
        }
    }

    /// Returns the number of elements.
    pub(super) fn count(&self) -> Result<u64, Corrupt> {
        if let Some(last) = self.last_estimate() {
            return Ok(last);
        }
        Ok(estimate(&self.histogram()?))
    }

    /// Returns how many registers have each value. Of a sparse one that takes a step for each run,
    /// not for each register.
    fn histogram(&self) -> Result<Histogram, Corrupt> {
        if self.is_dense() {
            return Ok(dense::histogram(&self.registers));
        }
        let (mut histogram, mut registers) = (Histogram::default(), 0);
        for run in self.runs() {
            registers += run.length;
            if registers > REGISTERS {
                return Err(Corrupt);
            }
            histogram.add(run.value, run.length);
        }
        if registers == REGISTERS {
            Ok(histogram)
        } else {
            Err(Corrupt)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn elements_are_counted_in_both_encodings() {
        let mut sketch = Sketch::new();
        let mut of_dense = Sketch::new();
        of_dense.make_dense().unwrap();
        for n in 1..=100_000_u32 {
            let element = n.to_string();
            let changed = sketch.add(element.as_bytes()).unwrap();
            assert_eq!(of_dense.add(element.as_bytes()), Ok(changed));
            if [1, 10, 100, 1000, 10_000, 100_000].contains(&n) {
                sketch.outdate();
                of_dense.outdate();
                let count = sketch.count().unwrap();
                assert_eq!(of_dense.count(), Ok(count));
                let mut registers = no_registers();
                sketch.merge_into(&mut registers).unwrap();
                assert_eq!(sketch.histogram(), Ok(Histogram::of(&registers)));
                assert_eq!(of_dense.histogram(), Ok(Histogram::of(&registers)));
                assert!(
                    count.abs_diff(n.into()) * 33 <= u64::from(n),
                    "{count} of {n}"
                );
                assert!(sketch.is_dense() || sketch.bytes().len() <= SPARSE_BYTES_MAX);
            }
        }
        assert_eq!(sketch.bytes(), of_dense.bytes());
    }

    #[test]
    fn runs_that_do_not_cover_the_registers_are_corrupt() {
        for registers in [
            &b""[..],
            b"\0",
            b"\x7f\xff\0",
            b"\x7f",
            b"\x7f\xfe",
            b"\x80\x7f\xff",
        ] {
            let mut bytes = Sketch::new().bytes();
            bytes.truncate(HEADER_BYTES);
            bytes[HEADER_BYTES - 1] |= 0x80;
            bytes.extend(registers);
            let mut sketch = Sketch::parse(&bytes).unwrap();
            assert_eq!(sketch.count(), Err(Corrupt), "{registers:?}");
            assert_eq!(sketch.make_dense(), Err(Corrupt));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_without_panic(
            kind in 0..3_u8,
            registers in prop::collection::vec(any::<u8>(), 0..40),
            changes in prop::collection::vec((0..REGISTERS, 1..52_u8), 0..20),
            long in any::<bool>(),
        ) {
            let mut bytes = vec![b'H', b'Y', b'L', b'L', kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80];
            bytes.extend(&registers);
            if long {
                bytes.resize(HEADER_BYTES + dense::BYTES, registers.first().copied().unwrap_or(9));
            }
            let Some(mut sketch) = Sketch::parse(&bytes) else {
                return Ok(());
            };
            let mut merged = no_registers();
            let whole = sketch.merge_into(&mut merged);
            prop_assert_eq!(sketch.histogram(), whole.map(|()| Histogram::of(&merged)));
            for (index, value) in changes {
                let _ = sketch.raise(index, value);
            }
            let _ = sketch.make_dense();
            prop_assert!(Sketch::parse(&sketch.bytes()) == Some(sketch));
        }
    }
}
