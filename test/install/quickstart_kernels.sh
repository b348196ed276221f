#!/bin/sh
# Checks which of libweir's kernels the preset `quickstart` builds with nvcc: quickstart_kernels.sh SOURCES. Only
# configures.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# families OPTION...: the families of kernels that nvcc builds for GPUs.
families() {
    cmake -S "$sources" --preset quickstart -B "$work/build" "$@" >/dev/null
    grep -e '-fatbin' "$work/build/build.ninja" | grep -o '[a-z0-9_]*[.]fatbin ' | sort -u | tr -d '\n'
}

expect() {
    if [ "$1" != "$2" ]; then
        printf 'expected %s\nfound    %s\n' "$2" "$1" >&2
        exit 1
    fi
}

sources=$1
cd "$sources"
expect "$(families)" "halo.fatbin layout.fatbin port_channel.fatbin table.fatbin "
missing='libweir was built without kernels of collectives for GPUs (WEIR_GPU_COLLECTIVES)'
for source in src/device/kernels/collective*.c; do
    name=$(basename "$source" .c)
    expect "$(cat "$work/build/src/module_$name.c")" \
        "const unsigned char weiri_module_$name[] = \"\\0$missing\";"
done
all=$(cd src/device/kernels && ls ./*.c | sed 's/^[.][/]//; s/c$/fatbin /' | sort | tr -d '\n')
expect "$(families -DWEIR_GPU_COLLECTIVES=ON)" "$all"
