#!/bin/sh
# Installs a build into an empty folder and builds a C and a C++ program against it, by find_package and by
# pkg-config: run.sh BUILD GENERATOR LIBDIR CC CXX. The installed tree is moved first, so that nothing can refer to
# the build.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1 generator=$2 libdir=$3 cc=$4 cxx=$5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

DESTDIR=$work/staged cmake --install "$build" --prefix /opt/weir >/dev/null
mkdir "$work/user"
mv "$work/staged/opt/weir" "$work/weir"
cp "$here/consumer.c" "$work/user/consumer.c"
cp "$here/consumer.c" "$work/user/consumer.cc"
cp "$here/CMakeLists.txt.in" "$work/user/CMakeLists.txt"

echo "find_package:"
cmake -G "$generator" -S "$work/user" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/weir" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_CXX_COMPILER="$cxx" >/dev/null
cmake --build "$work/build" >/dev/null
"$work/build/consumer_c"
"$work/build/consumer_cc"

echo "pkg-config:"
export PKG_CONFIG_PATH="$work/weir/$libdir/pkgconfig" LD_LIBRARY_PATH="$work/weir/$libdir"
flags=$(pkg-config --define-variable=prefix="$work/weir" --cflags --libs weir)
# shellcheck disable=SC2086
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror "$work/user/consumer.c" -o "$work/c" $flags
# shellcheck disable=SC2086
"$cxx" -std=c++17 -Wall -Wextra -Wpedantic -Werror "$work/user/consumer.cc" -o "$work/cc" $flags
"$work/c"
"$work/cc"

"$work/weir/bin/weir-info" >/dev/null
echo "installed files:"
(cd "$work/weir" && find . -type f | sort)
if grep -rlE "$build" "$work/weir/$libdir/cmake" "$work/weir/$libdir/pkgconfig"; then
    echo "the installed package refers to the build folder" >&2
    exit 1
fi
