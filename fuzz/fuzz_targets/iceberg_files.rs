#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| icefield_fuzz::run("iceberg-files", data));
