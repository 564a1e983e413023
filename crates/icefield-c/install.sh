#!/usr/bin/env bash
# Installs the C library: install.sh PREFIX [DIRECTORY]
#
# PREFIX/include/icefield.h, PREFIX/lib/libicefield.{so,a}, PREFIX/lib/pkgconfig/icefield.pc: the files that `cargo
# cinstall -p icefield-c --release --prefix PREFIX` is to make, without compiling cargo-c. DESTDIR is put before all
# paths. DIRECTORY holds libicefield_c.so and libicefield_c.a; without it, they are built in release mode.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
prefix=${1:?usage: install.sh PREFIX [DIRECTORY]}
from=${2:-}
if [ -z "$from" ]; then
    cargo build --manifest-path "$here/Cargo.toml" --release --locked
    from=${CARGO_TARGET_DIR:-$here/../../target}/release
fi

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml")
abi=${version%.*}
to=${DESTDIR:-}$prefix
install -d "$to/include" "$to/lib/pkgconfig"
install -m 644 "$here/include/icefield.h" "$to/include/icefield.h"
install -m 755 "$from/libicefield_c.so" "$to/lib/libicefield.so.$version"
ln -sf "libicefield.so.$version" "$to/lib/libicefield.so.$abi"
ln -sf "libicefield.so.$abi" "$to/lib/libicefield.so"
install -m 644 "$from/libicefield_c.a" "$to/lib/libicefield.a"
cat >"$to/lib/pkgconfig/icefield.pc" <<END
prefix=$prefix
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: icefield
Description: Crash-safe concurrent hash tables
Version: $version
Libs: -L\${libdir} -licefield
Libs.private: -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc
Cflags: -I\${includedir}
END
