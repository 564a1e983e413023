//! Gives the shared library its name for programs that link it (soname): the major and the minor version, because each
//! minor version of a 0.x library is another ABI.

use std::env;

fn main() {
    let part = |name| env::var(name).unwrap_or_default();
    let (major, minor) = (part("CARGO_PKG_VERSION_MAJOR"), part("CARGO_PKG_VERSION_MINOR"));
    if part("CARGO_CFG_TARGET_OS") == "linux" {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libicefield.so.{major}.{minor}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
