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
emulator="qemu-aarch64-static -L /usr/aarch64-linux-gnu"

# Some versions of qemu (7.2 is one) claim to know `dc cvap` and trap on it in user mode. Try it, and if so take a
# processor that does not have the instruction.
cpu=max
mkdir -p target
aarch64-linux-gnu-gcc -march=armv8.2-a -x c -o target/try-cvap - <<'C'
int main(void) { int word; __asm__ volatile("dc cvap, %0" : : "r"(&word) : "memory"); return 0; }
C
if ! (ulimit -c 0; $emulator -cpu $cpu target/try-cvap) 2>/dev/null; then
    cpu=cortex-a72
    echo "NOT RUN: \`dc cvap\`, which this qemu cannot emulate; flushes run as \`dc cvac\`" >&2
fi
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$emulator -cpu $cpu"

[ $# -gt 0 ] || set -- --lib
run cargo test --target $target -p icefield "$@"
