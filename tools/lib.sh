# shellcheck shell=bash
# lib.sh - functions of the scripts in this folder. Bash scripts with `set -euo pipefail` source it.

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# ---- steps: one line each, with progress, the full output in a file ------------------------------------

# Reads a command's output and prints its progress. Understands ninja ([3/40]), ctest (3/40 Test) and apt
# (dlstatus, pmstatus). Rewrites its row on a terminal; prints each quarter elsewhere.
show_progress() {
    local title=$1 line percent last=-1
    while IFS= read -r line; do
        if [[ $line =~ ^\[([0-9]+)/([0-9]+)\] || $line =~ ^\ *([0-9]+)/([0-9]+)\ Test ]]; then
            percent=$((100 * BASH_REMATCH[1] / BASH_REMATCH[2]))
        elif [[ $line =~ ^dlstatus:[^:]*:([0-9]+) ]]; then
            percent=$((BASH_REMATCH[1] / 2))
        elif [[ $line =~ ^pmstatus:[^:]*:([0-9]+) ]]; then
            percent=$((50 + BASH_REMATCH[1] / 2))
        else
            continue
        fi
        if [ -t 1 ]; then
            printf '\r  %-44s %3d %%' "$title" "$percent"
        elif [ $((percent / 25)) -gt $((last / 25)) ] && [ "$percent" -lt 100 ]; then
            printf '  %-44s %3d %%\n' "$title" "$percent"
        fi
        last=$percent
    done
}

# Sets `cpu` to the CPU seconds of all commands that this shell has waited for, in hundredths.
read_cpu() {
    local fields
    read -ra fields <"/proc/$BASHPID/stat"
    cpu=$((fields[15] + fields[16]))
}

# step TITLE LOG COMMAND...: runs the command with its output in LOG, prints how long it took and how many CPU seconds
# it used, and returns its status. Status 77 means that the command cannot run here.
step() {
    local title=$1 log=$2 start=$SECONDS status=0 outcome="done" cpu before
    shift 2
    read_cpu
    before=$cpu
    mkdir -p "$(dirname "$log")"
    [ ! -t 1 ] || printf '\r  %-44s' "$title"
    "$@" 2>&1 </dev/null | tee "$log" | show_progress "$title" || status=$?
    case $status in
        0) ;;
        77) outcome="not here" ;;
        *) outcome="FAILED ($status)" ;;
    esac
    [ ! -t 1 ] || printf '\r'
    read_cpu
    printf '  %-44s %s, %d s, CPU %d s\n' "$title" "$outcome" $((SECONDS - start)) $(((cpu - before) / 100))
    return $status
}

# A step that must succeed: on failure shows the end of the log and ends the script.
must() {
    if ! step "$@"; then
        tail -n 40 "$2"
        die "$1 failed; its whole output is in $2"
    fi
}

# ---- packages --------------------------------------------------------------------------------------------

# Whether a need is met: "program NAME", "module NAME" (of pkg-config), "header FILE", or "compile COMMAND" (a command
# that compiles an empty program from its standard input).
is_there() {
    case $1 in
        program) command -v "$2" >/dev/null ;;
        module) command -v pkg-config >/dev/null && pkg-config --exists "$2" ;;
        header) command -v g++ >/dev/null && echo "#include <$2>" | g++ -fsyntax-only -x c++ - 2>/dev/null ;;
        compile) echo 'int main(void) { return 0; }' | eval "$2" >/dev/null 2>&1 ;;
    esac
}

# need KIND NAME PACKAGE WHY: adds the package to `missing` if the need is not met.
missing=()
lists_read=""
need() {
    if ! is_there "$1" "$2" && [[ " ${missing[*]-} " != *" $3 "* ]]; then
        missing+=("$3")
        say "  missing: $3 ($4)"
    fi
}

# want KIND NAME PACKAGE WHY: adds an optional package to `wanted`. Tests that use a missing one skip themselves.
wanted=()
want() {
    if ! is_there "$1" "$2"; then
        wanted+=("$3")
        say "  missing: $3 ($4)"
    fi
}

need_for_build() {
    need program cmake cmake "configures the build"
    need program ninja ninja-build "runs the build"
    need program gcc gcc "C compiler"
    need program g++ g++ "C++ compiler"
    need program pkg-config pkg-config "finds libraries"
    need module libsodium libsodium-dev "authentication of peers"
    need module uuid uuid-dev "identity of jobs and allocations"
    need header infiniband/verbs.h libibverbs-dev "headers of RDMA verbs"
}

want_for_build() {
    want header rdma/fabric.h libfabric-dev "transfers between hosts without a NIC's own library"
    want header hwloc.h libhwloc-dev "distances between NICs and GPUs"
}

# Status-Fd makes apt write its progress into its output.
apt() {
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o APT::Status-Fd=1 "$@"
}

install_missing() {
    local sudo=""
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null ||
        die "this script installs packages only on Debian and Ubuntu; install these yourself: ${missing[*]}"
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || die "run this as root: apt-get install ${missing[*]}"
        sudo=sudo
        sudo -v || die "sudo is needed for: apt-get install ${missing[*]}"
    fi
    if [ -z "$lists_read" ]; then
        must "Reading the lists of packages" build/log/apt-update.log apt update
        lists_read=yes
    fi
    must "Installing ${#missing[@]} packages" build/log/apt-install.log apt install --no-install-recommends "${missing[@]}"
    missing=()
}

# Installs packages one by one, without a question. A package that cannot be installed is left out.
install_wanted() {
    local sudo="" package
    [ ${#wanted[@]} -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || sudo="sudo -n"
    for package in "${wanted[@]}"; do
        if [ -z "$lists_read" ] && step "Reading the lists of packages" build/log/apt-update.log apt update; then
            lists_read=yes
        fi
        if [ -z "$lists_read" ] || ! step "Installing $package" "build/log/apt-install-$package.log" \
            apt install --no-install-recommends "$package"; then
            say "  $package cannot be installed here: tests that use it are skipped"
        fi
    done
    wanted=()
}

# ---- Open MPI on machines without MPI ------------------------------------------------------------------------

# pack_mpi FOLDER: copies the files of Debian's Open MPI that mpirun and the ranks of one machine need, if it is
# installed. Components that need libraries of networks stay behind. The folder may be moved.
pack_mpi() {
    local to=$1 lib component name
    lib=/usr/lib/$(gcc -print-multiarch)
    [ -e "$lib/libmpi.so.40" ] && [ -e "$lib/openmpi/lib/openmpi3" ] && [ -e /usr/bin/orted ] || return 0
    mkdir -p "$to"
    cp -rL --parents -t "$to" /usr/bin/orterun /usr/bin/orted /usr/share/openmpi "$lib/openmpi/lib/openmpi3" \
        "$lib/pmix2/lib/pmix" "$lib/pmix2/share"
    for name in mpi:40 open-pal:40 open-rte:40 mca_common_sm:40 mca_common_ompio:41 mca_common_monitoring:50 hwloc:15 \
        event_core-2.1:7 event_pthreads-2.1:7 munge:2; do
        cp -L "$lib/lib${name%:*}.so.${name#*:}" "$to$lib/"
    done
    cp -L "$lib/pmix2/lib/libpmix.so.2" "$to$lib/"
    cp -L /usr/bin/orterun "$to/usr/bin/mpirun"
    for component in "$to$lib"/openmpi/lib/openmpi3/*.so; do
        if ldd "$component" | grep -q -E 'libuc[pst]|libfabric|libibverbs|librdmacm|libpsm'; then
            rm "$component"
        fi
    done
}

# use_mpi FOLDER: uses the files of pack_mpi, if they are there, in place of an installed Open MPI.
use_mpi() {
    local folder=$1 lib
    [ -x "$folder/usr/bin/mpirun" ] || return 0
    lib=$(echo "$folder"/usr/lib/*-linux-gnu)
    export PATH="$folder/usr/bin:$PATH" LD_LIBRARY_PATH="$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export OPAL_PREFIX="$folder/usr" PMIX_INSTALL_PREFIX="$lib/pmix2"
    export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_mca_base_component_show_load_errors=0
    export PMIX_MCA_pcompress_base_silence_warning=1
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
}

# ---- machine -----------------------------------------------------------------------------------------------

jobs=$(nproc)

# Searches the same places as cmake/weir_cuda.cmake.
has_nvcc() { command -v nvcc >/dev/null || [ -x "${CUDA_PATH:-/usr/local/cuda}/bin/nvcc" ]; }
# Whether the help of nvcc has $1. Without -q: a grep that ends early would make nvcc fail.
nvcc_knows() { PATH=$PATH:${CUDA_PATH:-/usr/local/cuda}/bin nvcc --help | grep -e "$1" >/dev/null; }
has_gpu() { [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; }

# The architecture of the first GPU, in the format of WEIR_CUDA_ARCHS. 90 without a GPU and for newer GPUs: their driver
# compiles the PTX of 90, and every nvcc that builds weir knows 90.
gpu_arch() {
    local arch
    arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .) || arch=""
    [[ $arch =~ ^[0-9]+$ && $arch -lt 90 ]] || arch=90
    say "$arch"
}

# Options that build_preset passes to cmake when it configures.
cmake_options=()

# build_preset PRESET PREFIX...: the prefix goes in front of cmake. On failure shows the end of the log.
build_preset() {
    local preset=$1
    shift
    if ! step "Configuring $preset" "build/log/$preset-configure.log" \
        "$@" cmake --preset "$preset" "${cmake_options[@]}"; then
        tail -n 40 "build/log/$preset-configure.log"
        return 1
    fi
    if ! step "Building $preset" "build/log/$preset-build.log" "$@" cmake --build --preset "$preset" -j "$jobs"; then
        tail -n 40 "build/log/$preset-build.log"
        return 1
    fi
}
