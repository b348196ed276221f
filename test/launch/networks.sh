#!/usr/bin/env bash
# networks.sh COMMAND...: runs the command in its own network namespace at 10.78.0.1. A pair of virtual Ethernet devices
# joins it to a second one at 10.78.0.2, in the file $WEIR_TEST_NETWORK_1. The harness starts rank 1 there if it is a
# process. Both are removed afterwards. Ends with status 77 and the reason if the machine forbids namespaces.
set -euo pipefail

no() { echo "no network namespaces here: $*"; exit 77; }

if [ "${1-}" != --inside ]; then
    command -v ip >/dev/null || no "ip (iproute2) is not installed"
    as=()
    [ "$(id -u)" = 0 ] || as=(--map-root-user)
    why=$(unshare --net "${as[@]}" true 2>&1) || no "$why"
    exec unshare --net "${as[@]}" "$0" --inside "$@"
fi
shift

# The second namespace lives as long as this process.
coproc other { exec unshare --net sh -c 'echo ready; exec cat'; }
read -r _ <&"${other[0]}"
export WEIR_TEST_NETWORK_1=/proc/$other_PID/ns/net
there=(nsenter "--net=$WEIR_TEST_NETWORK_1")
why=$(ip link add weir0 type veth peer name weir1 netns "$other_PID" 2>&1) || no "$why"
ip address add 10.78.0.1/24 dev weir0
"${there[@]}" ip address add 10.78.0.2/24 dev weir1
ip link set lo up
"${there[@]}" ip link set lo up
ip link set weir0 up
"${there[@]}" ip link set weir1 up
"$@"
