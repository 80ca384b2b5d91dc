//! The CRC64 of Redis: the polynomial of Jones, reflected.

const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

/// What each byte contributes.
const TABLE: [u64; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            sum = (sum >> 1) ^ (if sum & 1 == 1 { POLYNOMIAL } else { 0 });
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

/// Returns the sum of what has the sum `before`, and of `bytes` behind it; that of nothing is 0.
pub(crate) fn crc64_on(before: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(before, |sum, byte| {
        TABLE[usize::from(sum.to_le_bytes()[0] ^ byte)] ^ (sum >> 8)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_the_known_one() {
        assert_eq!(crc64_on(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(
            crc64_on(crc64_on(0, b"1234"), b"56789"),
            0xe9c6_d914_c4b8_d9ca
        );
        assert_eq!(crc64_on(0, b""), 0);
    }
}
