#!/bin/sh
# Checks for which GPUs the preset `release` builds libweir's kernels: release_archs.sh SOURCES. Only configures.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# archs OPTION...: the -gencode options of a family of kernels.
archs() {
    cmake -S "$sources" --preset release -B "$work/build" -DWEIR_TOOLS=OFF -DWEIR_EXAMPLES=OFF "$@" >/dev/null
    grep -m 1 -e '-fatbin' "$work/build/build.ninja" | grep -o -e '-gencode=[^ ]*' | tr -d '"\\' | tr '\n' ' '
}

expect() {
    if [ "$1" != "$2" ]; then
        printf 'expected %s\nfound    %s\n' "$2" "$1" >&2
        exit 1
    fi
}

sources=$1
cd "$sources"
real80='-gencode=arch=compute_80,code=sm_80 '
real90='-gencode=arch=compute_90,code=sm_90 '
expect "$(archs)" "$real80$real90-gencode=arch=compute_100,code=[compute_100,sm_100] "
expect "$(archs -DWEIR_CUDA_ARCHS=80)" "-gencode=arch=compute_80,code=[compute_80,sm_80] "
expect "$(archs -DWEIR_CUDA_ARCHS=90-virtual)" "-gencode=arch=compute_90,code=compute_90 "
