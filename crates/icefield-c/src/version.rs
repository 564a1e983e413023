//! Versions of the ABI and of the library.

use std::ffi::c_char;

/// The version of the ABI: a new major number for changes after which programs must be compiled again, a new minor
/// number for additions. The header has both as `ICEFIELD_ABI_MAJOR` and `ICEFIELD_ABI_MINOR`.
const ABI: [u32; 2] = [0, 1];

/// Returns the version of the library's ABI: the major number in the upper 16 bits, the minor number in the lower 16.
/// A program that was compiled with the header's ICEFIELD_ABI_MAJOR and ICEFIELD_ABI_MINOR works if the major numbers
/// are equal and the library's minor number is not smaller; while the major number is 0, both must be equal.
#[unsafe(no_mangle)]
pub extern "C" fn icefield_abi_version() -> u32 {
    ABI[0] << 16 | ABI[1]
}

/// Returns the version of the library, for example "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn icefield_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
