"""The mutants of weir, for tools/mutants: each is one change of one file that breaks a promise, and the tests that must
notice. `old` must be in the file exactly once, or, where a function is given, exactly once in its definition."""
import typing


class Mutant(typing.NamedTuple):
    id: str
    file: str
    function: str  # "" for the whole file
    old: str
    new: str
    breaks: str
    tests: typing.Sequence[str]  # names of ctest
    preset: str = "plain"  # of the build: plain, asan, tsan, fuzz


def headers(*cases):
    """Cases of the device headers, on the CPU."""
    return [f"device.Devices/Headers.{case}/cpu" for case in cases]


def parts(*cases):
    """Cases of parts of the device headers by themselves."""
    return [f"device.DeviceParts.{case}" for case in cases]


def litmus(*cases):
    """Cases of the litmus tests, which run the device headers in a memory that is weaker than this machine's."""
    return [f"litmus.{case}" for case in cases]


def stage(suite, case, *stages):
    return [f"conformance.Stages/{suite}.{case}/{name}" for name in stages or ("cpu_threads",)]


DEVICE = "include/weir/device/"
BASE = "src/host/base/"
HOST = "src/host/"

MUTANTS = [
    # ---- bounds: what kernels may touch ------------------------------------------------------------------
    Mutant("range-overflow", DEVICE + "memory_channel.h", "weir_dev_in_range",
           "bytes <= size && offset <= size - bytes", "offset + bytes <= size",
           "offset + bytes may wrap around", parts("RangesNeverWrapAround")),
    Mutant("range-long", DEVICE + "memory_channel.h", "weir_dev_in_range",
           "offset <= size - bytes", "offset <= size",
           "an access may begin in the memory and end beyond it", headers("TransfersStayInsideTheMemory")),
    Mutant("range-short", DEVICE + "memory_channel.h", "weir_dev_in_range",
           "offset <= size - bytes", "offset < size - bytes",
           "the last bytes are out of range", parts("RangesNeverWrapAround")),
    Mutant("put-source-range", DEVICE + "memory_channel.h", "weir_dev_memory_channel_put",
           "!weir_dev_in_range(src_offset, bytes, channel->src_bytes)", "0",
           "put reads beyond the local memory", headers("TransfersStayInsideTheMemory")),
    Mutant("packet-room", DEVICE + "memory_channel.h", "weir_dev_memory_channel_put_ll16",
           "(bytes + 7) / 8 * 16", "bytes / 8 * 16",
           "the last, incomplete packet needs no room", headers("PacketMisuse")),
    Mutant("packet-alignment", DEVICE + "memory_channel.h", "weir_dev_memory_channel_check",
           "ends % packet != 0", "packet == 0",
           "misaligned packets are not refused", headers("PacketMisuse")),
    Mutant("index-last", DEVICE + "memory_channel.h", "weir_dev_memory_channel_check_index",
           "index >= channel->dst_bytes / width", "index > channel->dst_bytes / width",
           "one value beyond the memory is accessed", headers("ValuesAreReadAndWritten")),
    Mutant("packet-tail", DEVICE + "packet.h", "weir_packet_scatter",
           "i < unit && i < bytes", "i < unit",
           "unpack writes the padding behind what was asked", headers("PacketsOfAllSizes")),
    Mutant("packet-fresh", DEVICE + "packet.h", "weir_packet_flag",
           " | 0x80000000u", "",
           "memory that was never written is taken for a packet", headers("MissingPacketIsATimeout")),
    Mutant("packet-half", DEVICE + "packet.h", "weir_ll16_there",
           " && (uint32_t)(words.hi >> 32) == flag", "",
           "half of a packet is taken for all of it", parts("BothHalvesOfAPacketMustBeThere")),
    Mutant("copy-tail", DEVICE + "copy.h", "weir_copy_misaligned",
           "i = head + units * unit + rank; i < bytes", "i = head + units * unit + rank; i + 1 < bytes",
           "the last byte of a misaligned copy is left out", headers("CopiesOfAllSizesAndAlignments")),

    # ---- orders: what a signal, a wait and a barrier carry ----------------------------------------------
    Mutant("signal-relaxed", DEVICE + "semaphore.h", "weir_dev_semaphore_signal",
           "weir_arch_add_release_sys_u64", "weir_arch_add_relaxed_sys_u64",
           "a signal overtakes the data before it", litmus("LitmusSemaphore.SignalWaitOrdersData")),
    Mutant("wait-relaxed", DEVICE + "semaphore.h", "weir_dev_semaphore_await",
           "weir_arch_load_acquire_sys_u64", "weir_arch_load_relaxed_sys_u64",
           "data after a wait may be older than its signal", litmus("LitmusSemaphore.SignalWaitOrdersData")),
    Mutant("slow-wait-relaxed", DEVICE + "spin.h", "weir_spin_above",
           "weir_arch_load_acquire_sys_u64", "weir_arch_load_relaxed_sys_u64",
           "data after a long wait may be older than its signal", litmus("LitmusSemaphore.SignalWaitOrdersData")),
    Mutant("poll-relaxed", DEVICE + "semaphore.h", "weir_dev_semaphore_poll",
           "weir_arch_load_acquire_sys_u64", "weir_arch_load_relaxed_sys_u64",
           "data after a poll may be older than its signal", litmus("LitmusSemaphore.SignalPollOrdersData")),
    Mutant("counted-signal-relaxed", DEVICE + "semaphore.h", "weir_dev_semaphore_signal_counted",
           "weir_arch_store_release_sys_u64", "weir_arch_store_relaxed_sys_u64",
           "a counted signal overtakes the data before it", litmus("LitmusSemaphore.CountedSignalWaitOrdersData")),
    Mutant("host-signal-load", DEVICE + "semaphore.h", "weir_dev_semaphore_signal_host",
           "weir_arch_fetch_add_acq_rel_dev_u64(sent, 0)", "weir_arch_load_relaxed_dev_u64(sent)",
           "two signals to the host may leave the older count",
           litmus("LitmusSemaphore.SignalsToTheHostEndAtTheirCount")),
    Mutant("barrier-relaxed", DEVICE + "grid_barrier.h", "weir_grid_barrier_round",
           "weir_arch_load_acquire_dev_u64", "weir_arch_load_relaxed_dev_u64",
           "a block leaves the grid's barrier with older data", litmus("LitmusGrid.BarrierOrdersItsBlocks")),
    Mutant("slow-barrier-relaxed", DEVICE + "grid_barrier.h", "weir_grid_barrier_spin",
           "weir_arch_load_acquire_dev_u64", "weir_arch_load_relaxed_dev_u64",
           "a block leaves the grid's barrier, after a long wait, with older data",
           litmus("LitmusGrid.BarrierOrdersItsBlocks")),
    Mutant("barrier-early", DEVICE + "coop.h", "weir_coop_grid_round",
           "weir_arch_block_sync(coop.host);", "",
           "a block's first thread arrives before the others", litmus("LitmusGrid.BarrierOrdersAllThreadsOfItsBlocks")),
    Mutant("exchange-one-half", DEVICE + "memory_channel.h", "weir_dev_memory_channel_exchange_ll16",
           "channel->dst + packet_offset + (put_flag % 2 != 0 ? half : 0)", "channel->dst + packet_offset",
           "an exchange overwrites packets that were not taken", litmus("LitmusPackets.ExchangesNeedNoSignal")),
    Mutant("line-flag", DEVICE + "line.h", "weir_line_there",
           "parts[WEIR_ARCH_LINE_PARTS - 1].hi == flag", "parts[WEIR_ARCH_LINE_PARTS - 1].hi != 0",
           "a line of an earlier call is taken for this one's", litmus("LitmusLines.ExchangesNeedNoSignal")),

    # ---- waits: deadlines, sticky errors, barriers -------------------------------------------------------
    Mutant("deadline-lost", DEVICE + "spin.h", "weir_spin_look",
           "(int64_t)timeout_ns)", "(int64_t)timeout_ns + 6000000000)",
           "a wait in a kernel ends long after its deadline", headers("MissingPacketIsATimeout")),
    Mutant("timeout-not-sticky", DEVICE + "spin.h", "weir_spin_look",
           "(int64_t)weir_dev_control_fail(control, WEIR_ERR_TIMEOUT)", "(int64_t)WEIR_ERR_TIMEOUT",
           "a timeout in a kernel is not the communicator's error", stage("Wait", "EndsByDeadlineAndSticks")),
    Mutant("abort-ignored", DEVICE + "spin.h", "weir_dev_control_status",
           "error != 0 ? error : abort_status", "error",
           "kernels do not see the abort word", stage("Wait", "EndsByAbortOnAllRanks")),
    Mutant("sticky-overwritten", DEVICE + "spin.h", "weir_dev_control_fail",
           "weir_arch_load_relaxed_sys_u32((const uint32_t *)&control->error_status) == 0", "control != NULL",
           "a later error replaces the first one", parts("FirstErrorIsKept")),
    Mutant("signal-not-consumed", DEVICE + "semaphore.h", "weir_dev_semaphore_wait",
           "weir_arch_store_relaxed_dev_u64(semaphore->expected, consumed + 1)",
           "weir_arch_store_relaxed_dev_u64(semaphore->expected, consumed)",
           "one signal ends two waits", headers("TwoLaunchesPlayPingPong")),
    Mutant("barrier-unpoisoned", DEVICE + "grid_barrier.h", "weir_grid_barrier_spin",
           "weir_arch_or_release_dev_u64(barrier->word, WEIR_GRID_BARRIER_POISON);", "",
           "blocks that come late to a failed barrier go on", headers("AbsentBlockIsATimeoutForTheRest")),
    Mutant("agree-deaf", DEVICE + "coop.h", "weir_coop_agree",
           "weir_arch_or_release_dev_u64(coop.barrier->word, WEIR_GRID_BARRIER_POISON);", "",
           "an error of one block is not told to the others", headers("AgreeMakesOneErrorEveryones")),
    Mutant("epoch-share", DEVICE + "packet.h", "weir_packet_advance",
           "part != 0 ? share : WEIR_EPOCH_ONE - share * (parts - 1)", "share",
           "the shares of a call sum to less than one epoch", headers("EpochAdvancesByOnePerCall")),

    # ---- bytes from the wire -----------------------------------------------------------------------------
    Mutant("reader-bound", BASE + "wire.c", "take", "bytes > r->size - r->at", "bytes > r->size",
           "a message is read beyond its end", ["unit.Wire.EveryCutFailsAndZeroesWhatIsMissing"]),
    Mutant("writer-bound", BASE + "wire.c", "put", "bytes > w->capacity - w->size", "bytes > w->capacity",
           "a message is written beyond its buffer", ["unit.Wire.EveryShortBufferFailsAndIsNotOverrun"]),
    Mutant("reader-unsticky", BASE + "wire.c", "take", "r->failed || ", "",
           "a read after a failed one succeeds", ["unit.Wire.FailureOfAReadIsSticky"]),
    Mutant("reader-rest", BASE + "wire.c", "weiri_reader_done", " && r->at == r->size", "",
           "bytes left over are accepted", ["unit.Wire.BytesLeftOverAreNotDone"]),
    Mutant("string-terminator", BASE + "wire.c", "weiri_read_string", "length >= capacity", "length > capacity",
           "a string may lack room for its NUL", ["unit.Wire.StringsKeepTheirLimits"]),
    Mutant("string-nul", BASE + "wire.c", "weiri_read_string",
           " || (length != 0 && memchr(at, '\\0', length) != NULL)", "",
           "a string with a NUL inside is accepted, cut", ["fuzz.wire"], "fuzz"),
    Mutant("frame-length", HOST + "bootstrap_conn.c", "begin_message", " || bytes > frame_max(conn, kind)", "",
           "a frame of any length and kind is read", ["mp.BootstrapFault.MalformedFramesOfAKnownClient"]),
    Mutant("handle-unproved", HOST + "memory.c", "weiri_handle_read",
           "sodium_memcmp(proof, data + bytes - PROOF_BYTES, PROOF_BYTES) != 0", "proof == NULL",
           "an altered handle is accepted", stage("Memory", "WrongHandlesAreRefused")),
    Mutant("handle-range", HOST + "memory.c", "parse_handle",
           " || block->size > block->base_bytes ||\n        block->offset > block->base_bytes - block->size", "",
           "a handle may lie beyond its allocation", ["fuzz.handle"], "fuzz"),
    Mutant("handle-rank", HOST + "memory.c", "parse_handle", "handle->rank >= comm->size", "handle->rank > comm->size",
           "a handle may name a rank that does not exist", ["fuzz.handle"], "fuzz"),
    Mutant("cells-range", HOST + "semaphore.c", "cells_ok",
           "(offset - slab->first) / WEIR_CELL_BYTES <= WEIRI_CELLS - count", "count != 0",
           "a peer's token may lie beyond its slab", ["fuzz.comm"], "fuzz"),
    Mutant("payload-length", HOST + "exchange.c", "match", "future->payload_bytes > WEIRI_PAYLOAD_MAX", "false",
           "an operation's payload overruns the future", ["fuzz.comm"], "fuzz"),
    Mutant("handle-length", HOST + "exchange.c", "match", "bytes > r.size - r.at", "bytes > r.size",
           "an operation's handle is read beyond the message", ["fuzz.comm"], "fuzz"),
    Mutant("server-unproved", BASE + "auth.c", "weiri_auth_prove",
           "sodium_memcmp(expected, answer + r.at, sizeof expected) != 0", "expected[0] != expected[0]",
           "any server is trusted", ["mp.BootstrapFault.FalseServersAreNotTrusted"]),
    Mutant("memfd-short", "src/device/cpu_memory.c", "check_memfd",
           "(uint64_t)info.st_size < peer->base_bytes", "false",
           "a descriptor with less memory than its handle says is mapped",
           ["device.CpuMemory.ImportRefusesWhatCannotBeTrue"]),

    # ---- what is left behind, who is woken ---------------------------------------------------------------
    Mutant("memory-leak", HOST + "memory.c", "allocate", "free_memory(memory);\n        return status;",
           "return status;", "a memory whose device allocation failed is not freed",
           ["fault.Stages/Fault.NthDeviceOperationFails/cpu_threads"]),
    Mutant("message-leak", HOST + "exchange.c", "advance", "weiri_free(message);", "",
           "messages that have met their future are not freed", stage("Connection", "NamesItsTransport")),
    Mutant("descriptor-leak", "src/device/cpu_memory.c", "weiri_cpu_release", "(void)close(block->export_.fd);", ";",
           "descriptors of memory that was freed stay open", stage("Connection", "NamesItsTransport")),
    Mutant("socket-leak", HOST + "comm.c", "free_comm", "weiri_fd_pass_close(comm);", "",
           "a communicator's socket stays open", stage("Connection", "NamesItsTransport")),
    Mutant("foreign-descriptors", HOST + "fd_pass.c", "receive", "close(fds[k]);", "(void)fds[k];",
           "descriptors that strangers send stay open",
           ["fault.Stages/Foreign.GarbageAtTheUnixSocketIsIgnored/cpu_threads"]),
    Mutant("packets-unref", HOST + "memory_channel.c", "weir_memory_channel_destroy",
           "weir_memory_destroy(channel->packets);", "", "a channel keeps its packet buffer for ever",
           stage("MemoryChannel", "SeveralAtOnce")),
    Mutant("future-tombstone", HOST + "exchange.c", "weir_future_destroy", "bool kept = future->in_lane;",
           "bool kept = false;", "a destroyed future loses its place in the sequence, and is freed in it",
           stage("Future", "TimeoutLeavesItsPlaceInTheSequence"), "asan"),
    Mutant("lane-healthy", HOST + "exchange.c", "time_out", "lane->poisoned = true;", "",
           "after a timeout the two sides' sequences differ unnoticed", stage("Future", "TimeoutEndsItsSequenceAlone")),
    Mutant("abort-word", HOST + "comm.c", "weiri_comm_fail_locked",
           "__atomic_store_n(&comm->control->abort_status, (int32_t)status, __ATOMIC_RELEASE);", "",
           "a communicator's error does not end kernels", stage("Wait", "EndsByAbortOnAllRanks")),
    Mutant("host-consume", HOST + "semaphore.c", "consume", "semaphore->consumed++;", "",
           "one signal ends two waits of the host", stage("Semaphore", "HostToHost")),
    Mutant("cells-stale", HOST + "comm.c", "weiri_cells_allocate", "if (!fresh)", "if (fresh && !fresh)",
           "a semaphore begins with the counts of one that was destroyed",
           stage("Semaphore", "CountsOfASetMustAgree")),
    Mutant("death-untold", HOST + "bootstrap_peer.c", "weiri_peer_gone",
           "weiri_boot_fail(boot, WEIR_ERR_REMOTE, text);", "", "the death of a rank ends no call",
           ["mp.BootstrapFault.KilledRankEndsAllReceives"]),
    Mutant("receive-deadline", HOST + "bootstrap_send.c", "weiri_boot_wait",
           "now >= deadline_ns", "now >= deadline_ns + 6000000000u",
           "a receive ends long after its deadline", ["mp.BootstrapFault.ReceiveTimesOutNamingTheRank"]),
    Mutant("unwatch-wake", BASE + "service.c", "weiri_service_unwatch",
           "wake(service); /* to free it: an idle thread would let the dead pile up */", ";",
           "an idle thread does not free watches", ["unit.Service.MemoryOfUnwatchedIsFreedOnAnIdleThread"]),
    Mutant("unwatch-race", BASE + "service.c", "weiri_service_unwatch", "service->running == watch &&",
           "service->running == NULL &&", "unwatch returns while the callback runs",
           ["unit.Service.UnwatchWaitsForTheRunningCallback"]),
    Mutant("alloc-count", BASE + "alloc.c", "weiri_free", "(void)__atomic_fetch_sub(&alive, 1, __ATOMIC_RELAXED);", "",
           "freed memory counts as alive", ["unit.Alloc.MemoryIsZeroedAndCounted"]),
    Mutant("env-range", BASE + "env.c", "parse_number", " || v > most", "",
           "values beyond their range are accepted", ["unit.Env.NumbersOutOfRangeAreRefused"]),
]
