#!/bin/sh
# Installs a build into an empty folder and builds a C and a C++ program against it, by find_package and by pkg-config:
# run.sh BUILD GENERATOR LIBDIR CC CXX [NVCC]. The installed tree is moved first, so references to the build or the
# prefix would fail. With NVCC the same sources are also built as CUDA C++; no GPU is needed. The program of
# docs/building.md is built by that page's commands, and tutorials by the command of their page.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1 generator=$2 libdir=$3 cc=$4 cxx=$5 nvcc=${6-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/installed" >/dev/null
mkdir "$work/user"
mv "$work/installed" "$work/weir"
cp "$here/consumer.h" "$here/consumer.c" "$here/other.c" "$work/user"
for source in consumer other; do
    cp "$here/$source.c" "$work/user/$source.cc"
done
cp "$here/CMakeLists.txt.in" "$work/user/CMakeLists.txt"

echo "find_package:"
cmake -G "$generator" -S "$work/user" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/weir" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_CXX_COMPILER="$cxx" >/dev/null
cmake --build "$work/build" >/dev/null
"$work/build/consumer_c"
"$work/build/consumer_cc"

echo "pkg-config:"
export PKG_CONFIG_PATH="$work/weir/$libdir/pkgconfig" LD_LIBRARY_PATH="$work/weir/$libdir"
flags=$(pkg-config --cflags --libs weir)
cd "$work/user"
# shellcheck disable=SC2086
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror consumer.c other.c -o "$work/c" $flags
# shellcheck disable=SC2086
"$cxx" -std=c++17 -Wall -Wextra -Wpedantic -Werror consumer.cc other.cc -o "$work/cc" $flags
"$work/c"
"$work/cc"

echo "tutorials:"
tutorials=$here/../../examples/tutorials
for tutorial in 00-allreduce/allreduce 03-memory-channel/bidir_memory_channel; do
    # shellcheck disable=SC2086
    "$cc" -std=gnu11 -Wall -Wextra -Werror "$tutorials/$tutorial.c" -o "$work/${tutorial#*/}" $flags -pthread
done
CUDA_VISIBLE_DEVICES='' WEIR_CPU_THREADS=2 "$work/allreduce"

if [ -n "$nvcc" ]; then
    echo "nvcc:"
    # shellcheck disable=SC2086
    "$nvcc" -arch=sm_80 -x cu "$tutorials/00-allreduce/allreduce.c" -o "$work/allreduce-cu" $flags
    # shellcheck disable=SC2086
    "$nvcc" -arch=sm_80 -x cu consumer.c other.c -o "$work/cu" $flags
    "$work/cu"
    # shellcheck disable=SC2086
    "$nvcc" -arch=sm_80 -rdc=true -x cu consumer.c other.c -o "$work/cu-rdc" $flags
    "$work/cu-rdc"
    # shellcheck disable=SC2086
    if "$nvcc" -arch=sm_75 -x cu -c other.c -o "$work/old.o" $flags 2>"$work/old"; then
        echo "kernels were built for sm_75, which weir does not support" >&2
        exit 1
    fi
    grep 'compute capability 8.0 or higher: give nvcc -arch=sm_80' "$work/old"
fi

echo "docs/building.md:"
mkdir "$work/page" "$work/bin"
cd "$work/page"
# A block whose first line has "NAME:" in a comment is the file NAME.
awk '/^```./ { block = 1; file = ""; next } /^```$/ { block = 0 }
    block && file == "" { file = match($0, /[A-Za-z.-]+:/) ? substr($0, RSTART, RLENGTH - 1) : "rest" }
    block { print > file }' "$here/../../docs/building.md"
ln -s "$(command -v "$cc")" "$work/bin/cc"
export CUDA_VISIBLE_DEVICES=
for script in build-cpu.sh ${nvcc:+build-gpu.sh}; do
    PATH=$work/bin:${nvcc:+${nvcc%/*}:}$PATH sh -eu "$script"
    ./scale
done
cmake -G "$generator" -S . -B build -DCMAKE_PREFIX_PATH="$work/weir" -DCMAKE_C_COMPILER="$cc" \
    ${nvcc:+-DCMAKE_CUDA_COMPILER="$nvcc"} >/dev/null
cmake --build build >/dev/null
./build/scale
cd "$here"

"$work/weir/bin/weir-info" >/dev/null
echo "installed files:"
(cd "$work/weir" && find . -type f | sort)
if grep -rlE "$build|$work/installed" "$work/weir/$libdir/cmake" "$work/weir/$libdir/pkgconfig"; then
    echo "the installed package refers to the build folder or to the prefix" >&2
    exit 1
fi
