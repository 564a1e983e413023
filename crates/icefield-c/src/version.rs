//! Versions of the ABI and of the library.

use std::ffi::c_char;

/// The major version of the ABI that this header describes.
pub const ICEFIELD_ABI_MAJOR: u32 = 0;
/// The minor version of the ABI that this header describes.
pub const ICEFIELD_ABI_MINOR: u32 = 1;

/// Returns the version of the library's ABI: the major number in the upper 16 bits, the minor number in the lower 16.
/// A program that was compiled with the header's ICEFIELD_ABI_MAJOR and ICEFIELD_ABI_MINOR works if the major numbers
/// are equal and the library's minor number is not smaller; while the major number is 0, both must be equal.
#[unsafe(no_mangle)]
pub extern "C" fn icefield_abi_version() -> u32 {
    ICEFIELD_ABI_MAJOR << 16 | ICEFIELD_ABI_MINOR
}

/// Returns the version of the library, for example "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn icefield_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
