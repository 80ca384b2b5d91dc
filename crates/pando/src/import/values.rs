//! How long a value in an RDB file is: it does not say so before itself.

use std::io::Read;

use super::reader::{Fault, Reader};

/// Kinds of values that are one string: strings, and collections in one of the packed forms.
const ONE_STRING: [u8; 9] = [0, 9, 10, 11, 12, 13, 16, 17, 20];

/// Reads a value of this kind.
pub(super) fn pass<R: Read>(reader: &mut Reader<R>, kind: u8) -> Result<(), Fault> {
    match kind {
        kind if ONE_STRING.contains(&kind) => reader.pass_string(),
        // Lists, sets, and lists of ziplists.
        1 | 2 | 14 => each(reader, Reader::pass_string),
        // Sorted sets with their scores as texts or numbers.
        3 => each(reader, |reader| {
            reader.pass_string()?;
            pass_score(reader)
        }),
        5 => each(reader, |reader| {
            reader.pass_string()?;
            reader.pass(8)
        }),
        // Hashes.
        4 => each(reader, |reader| {
            reader.pass_string()?;
            reader.pass_string()
        }),
        15 | 19 | 21 => pass_stream(reader, kind),
        // Lists of listpacks.
        18 => each(reader, |reader| {
            reader.length()?;
            reader.pass_string()
        }),
        // Hashes whose fields have deadlines.
        24 => {
            reader.pass(8)?;
            each(reader, |reader| {
                reader.length()?;
                reader.pass_string()?;
                reader.pass_string()
            })
        }
        25 => {
            reader.pass(8)?;
            reader.pass_string()
        }
        7 => {
            reader.length()?;
            pass_module(reader)
        }
        _ => Err(reader.damaged(&format!("a value of the unknown kind {kind}"))),
    }
}

fn each<R: Read>(
    reader: &mut Reader<R>,
    mut pass: impl FnMut(&mut Reader<R>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    for _ in 0..reader.length()? {
        pass(reader)?;
    }
    Ok(())
}

fn pass_score<R: Read>(reader: &mut Reader<R>) -> Result<(), Fault> {
    match reader.byte()? {
        // Not a number, and the infinities.
        253..=255 => Ok(()),
        length => reader.pass(length.into()),
    }
}

fn pass_stream<R: Read>(reader: &mut Reader<R>, kind: u8) -> Result<(), Fault> {
    each(reader, |reader| {
        reader.pass_string()?;
        reader.pass_string()
    })?;
    // Its length and last ID; later ones also the first and the highest deleted one, and how many
    // entries were added.
    for _ in 0..if kind == 15 { 3 } else { 8 } {
        reader.length()?;
    }
    each(reader, |reader| {
        reader.pass_string()?;
        for _ in 0..if kind == 15 { 2 } else { 3 } {
            reader.length()?;
        }
        each(reader, |reader| {
            reader.pass(16 + 8)?;
            reader.length().map(|_| ())
        })?;
        each(reader, |reader| {
            reader.pass_string()?;
            reader.pass(if kind == 21 { 16 } else { 8 })?;
            each(reader, |reader| reader.pass(16))
        })
    })
}

/// Reads what a module has written: parts behind their kinds, and 0.
pub(super) fn pass_module<R: Read>(reader: &mut Reader<R>) -> Result<(), Fault> {
    loop {
        match reader.length()? {
            0 => return Ok(()),
            1 | 2 => {
                reader.length()?;
            }
            3 => reader.pass(4)?,
            4 => reader.pass(8)?,
            5 => reader.pass_string()?,
            _ => return Err(reader.damaged("a part of a module's value of no known kind")),
        }
    }
}
