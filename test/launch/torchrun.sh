#!/usr/bin/env bash
# Launched ranks under torchrun, on two GPUs: torchrun.sh FOLDER, a build folder or gpu/ of tools/gpu-pack.
#
# Not a part of tools/check, because it needs PyTorch with CUDA and two GPUs. Runs tutorials 02 and 03, and PyTorch's
# tensors through weir's collectives (torch_collectives.py).
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${1-}
find_one() { find "$folder" -name "$1" -not -path '*/CMakeFiles/*' 2>/dev/null | sort | head -n 1; }
library=$(find_one 'libweir.so*')
[ $# = 1 ] && [ -n "$library" ] || { echo "usage: ${0##*/} FOLDER, with libweir.so and the tutorials in it" >&2; exit 2; }
library=$(realpath "$library")
export LD_LIBRARY_PATH=${library%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# torchrun is a script that runs this module. The module may be installed without torchrun in PATH.
torchrun=(python3 -m torch.distributed.run)
! command -v torchrun >/dev/null || torchrun=(torchrun)
python3 -c 'import torch' 2>/dev/null || { echo "skipped: PyTorch is not here"; exit 0; }
# NCCL is used for comparison; some virtual machines do not permit its multicast.
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}

failed=0
# expect_success ARGUMENT...: arguments of torchrun for two ranks, which must end with status 0 and print Succeed!
expect_success() {
    local output status=0
    echo "${torchrun[*]} --nproc-per-node 2 $*"
    output=$(timeout 300 "${torchrun[@]}" --nproc-per-node 2 "$@" 2>&1) || status=$?
    echo "$output"
    if [ "$status" != 0 ] || [ "$(grep -c '^Succeed!$' <<<"$output")" != 1 ]; then
        echo "FAILED: status $status" >&2
        failed=1
    fi
}

python3 -c 'import torch; print(f"torch {torch.__version__}, {torch.cuda.device_count()} GPUs")'
expect_success --no-python "$(find_one gpu_ping_pong_mp)"
expect_success --no-python "$(find_one bidir_memory_channel)"
expect_success "$here/torch_collectives.py" "$library"
exit $failed
