#!/usr/bin/env bash
# Checks the C library as its users see it: check.sh [DIRECTORY]
#
# Installs it into a temporary prefix, compares the exported symbols with symbols.txt, and compiles and runs the
# examples and the benchmark wrappers through pkg-config: with the shared and the static library, and with
# AddressSanitizer in the C code. DIRECTORY holds libicefield_c.so and libicefield_c.a, as for install.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
wrappers=$here/../../bench/pibench
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

bash "$here/install.sh" "$work/prefix" "$@"
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig LD_LIBRARY_PATH=$work/prefix/lib
cc=${CC:-cc} cxx=${CXX:-c++}
warnings="-Wall -Wextra -pedantic -Werror"
shared="$(pkg-config --cflags --libs icefield) -pthread"
static=$(pkg-config --static --cflags --libs icefield | sed 's/-licefield/-l:libicefield.a/')
soname=$(objdump -p "$work/prefix/lib/libicefield.so" | awk '$1 == "SONAME" { print $2 }')
test -e "$work/prefix/lib/$soname"

nm -D --defined-only "$work/prefix/lib/libicefield.so" | awk '{ print $3 }' | LC_ALL=C sort >"$work/symbols"
diff "$here/symbols.txt" "$work/symbols" || {
    echo "exported symbols differ from symbols.txt; an addition needs a new minor version of the ABI, any other change a" \
        "major version"
    exit 1
}

# Runs a program in an empty directory.
run() {
    rm -rf "$work/data"
    mkdir "$work/data"
    "$@" "$work/data"
}

compile() {
    local source=$1 to=$2
    shift 2
    case $source in
        *.c) $cc -std=c99 $warnings "$source" "$@" -o "$to" ;;
        *.cpp) $cxx -std=c++17 $warnings "$source" "$@" -o "$to" ;;
    esac
}

for source in "$here"/examples-c/*; do
    compile "$source" "$work/shared" $shared
    run "$work/shared"
    compile "$source" "$work/static" $static
    LD_LIBRARY_PATH= run "$work/static" >/dev/null
    compile "$source" "$work/asan" -g -fsanitize=address,undefined -fno-sanitize-recover=all $shared
    run "$work/asan" >/dev/null
done

# The C++ wrappers with the restated interfaces of the benchmarks.
for kind in tree hash; do
    $cxx -std=c++17 $warnings -shared -fPIC -I "$wrappers/interface" "$wrappers/icefield_$kind.cpp" $shared \
        -o "$work/libicefield_$kind.so"
    define=$([ $kind = hash ] && echo -DWRAPPER_IS_HASH || true)
    compile "$wrappers/smoke.cpp" "$work/smoke" -fsanitize=address $define -I "$wrappers/interface" \
        -L "$work" "-licefield_$kind" -Wl,-rpath,"$work"
    for design in dash-eh plush; do
        ICEFIELD_TABLE=$design run "$work/smoke"
    done
done
echo "the C library: $(wc -l <"$here/symbols.txt") symbols, $(ls "$here/examples-c" | wc -l) examples, 2 wrappers"
