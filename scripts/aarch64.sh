#!/usr/bin/env bash
# The 64-bit Arm code: NEON groups, `dc cvap` flushes, alignment.
#
#   scripts/aarch64.sh --check               type-check only; needs no emulator (this is what CI does)
#   scripts/aarch64.sh [CARGO TEST ARGS]     run the tests under emulation; the unit tests when no arguments are given

source "$(dirname "$0")/common.sh"
target=aarch64-unknown-linux-gnu

case ${1:-} in
-h | --help)
    usage
    exit
    ;;
--check)
    need_target $target
    run cargo check --target $target -p icefield --all-features
    exit
    ;;
esac

need_target $target
need_program aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross
need_program qemu-aarch64-static qemu-user-static
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -cpu max -L /usr/aarch64-linux-gnu"

[ $# -gt 0 ] || set -- --lib
run cargo test --target $target -p icefield "$@"
