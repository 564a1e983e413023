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
# Before 8.1 qemu's user mode claims to have `dc cvap` and then traps on it: take a processor without it there.
cpu=max
version=$(qemu-aarch64-static --version | sed -n 's/^qemu-aarch64 version \([0-9]*\.[0-9]*\).*/\1/p')
if [ "$(printf '%s\n' 8.1 "$version" | sort -V | head -n 1)" != 8.1 ]; then
    cpu=cortex-a72
    echo "NOT RUN: \`dc cvap\`; qemu $version cannot. Flushes run as \`dc cvac\`." >&2
fi
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -cpu $cpu -L /usr/aarch64-linux-gnu"

[ $# -gt 0 ] || set -- --lib
run cargo test --target $target -p icefield "$@"
