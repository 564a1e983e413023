//! Numbers of bytes in options.

const EXPECTED: &str = "a number with K, M, G or T is expected, such as 512M";

/// Reads a number of bytes, such as `4096`, `512M`, `4GB` or `1GiB`, as clap's parsers of values do. Units are powers
/// of 1024.
pub fn size(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let factor = match unit.trim().to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I')
    {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return Err(EXPECTED.to_owned()),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    number.ok_or_else(|| EXPECTED.to_owned())
}

/// Returns the number of bytes of this machine's memory.
pub fn of_machine() -> u64 {
    let info = rustix::system::sysinfo();
    // The types differ between machines of 32 and 64 bits.
    #[allow(clippy::useless_conversion, reason = "see above")]
    u64::from(info.totalram).saturating_mul(info.mem_unit.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("512M"), Ok(512 << 20));
        assert_eq!((size("4gb"), size("1 GiB")), (Ok(4 << 30), Ok(1 << 30)));
        for text in ["", "G", "1.5G", "-1", "4X", "99999999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
        assert!(of_machine() > 1 << 20);
    }
}
