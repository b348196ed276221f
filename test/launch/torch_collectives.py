#!/usr/bin/env python3
"""weir's collectives from Python, only by ctypes; ends in Succeed! and status 0.

  torchrun --nproc-per-node 2 test/launch/torch_collectives.py build/release/src/libweir.so
  test/launch/torch_collectives.py --cpu build/release/src/libweir.so

Under torchrun each rank has a GPU. Tensors of PyTorch go through weir_allreduce and weir_all_to_all on PyTorch's
current stream, each call eagerly and in a CUDA graph of PyTorch's that is replayed with new data. A second collective,
of 32 SMs, maps the tensors of recorded calls (opts.map_recorded). Every result must be bit-equal to that of
torch.distributed (NCCL); the data is such that all sums are exact. At the end rank 0 prints the time of an operation on
64 MiB in a graph.

With --cpu there is neither torch nor GPU: the script starts two ranks of itself, with the variables that torchrun sets,
and expects what it computes by itself. It shows that the ctypes layer is right."""
import argparse
import ctypes
import os
import subprocess
import sys
import tempfile

OK = 0
SUM = 0
MAPPED_BLOCKS = 32  # with an SM limit an allreduce maps its buffers, too
DTYPES = {"float32": 1, "float16": 2, "bfloat16": 3, "int8": 6, "uint8": 7, "int32": 8, "int64": 10}  # weir_dtype


class CollectiveOpts(ctypes.Structure):
    """weir_collective_opts"""
    _fields_ = [("size", ctypes.c_size_t), ("group", ctypes.c_void_p), ("staging_bytes", ctypes.c_uint64),
                ("blocks", ctypes.c_uint32), ("threads", ctypes.c_uint32), ("form", ctypes.c_int),
                ("check_pointers", ctypes.c_bool), ("host_ranks", ctypes.c_uint32), ("transport", ctypes.c_char_p),
                ("order_streams", ctypes.c_bool), ("map_recorded", ctypes.c_bool)]


class Weir:
    """libweir with one device and communicator of this rank, and two collectives: by defaults, and one that maps the
    buffers of recorded calls."""

    def __init__(self, library, device_name, blocks):
        self.lib = ctypes.CDLL(library)
        pointer, u64, enum = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int
        out = ctypes.POINTER(pointer)
        self.lib.weir_last_error.restype = ctypes.c_char_p
        self.lib.weir_status_name.restype = ctypes.c_char_p
        for name, arguments in {
                "device_open": [ctypes.c_char_p, pointer, out], "bootstrap_create_launched": [pointer, out],
                "comm_create": [pointer, pointer, pointer, out], "collective_create": [pointer, pointer, out],
                "stream_create": [pointer, out], "stream_wait": [pointer, pointer, ctypes.c_uint32],
                "graph_begin": [pointer, pointer], "graph_end": [pointer, pointer, out],
                "graph_launch": [pointer, pointer, pointer], "comm_status": [pointer],
                "collective_unmap": [pointer],
                "allreduce": [pointer, pointer, pointer, u64, enum, enum, pointer],
                "all_to_all": [pointer, pointer, pointer, u64, enum, pointer]}.items():
            function = getattr(self.lib, "weir_" + name)
            function.argtypes, function.restype = arguments, enum
        for name in ("collective_destroy", "comm_destroy", "bootstrap_destroy", "device_close"):
            getattr(self.lib, "weir_" + name).argtypes = [pointer]
            getattr(self.lib, "weir_" + name).restype = None
        for name in ("bootstrap_rank", "bootstrap_size"):
            getattr(self.lib, "weir_" + name).argtypes = [pointer]
            getattr(self.lib, "weir_" + name).restype = ctypes.c_uint32
        for name in ("stream_destroy", "graph_destroy"):
            getattr(self.lib, "weir_" + name).argtypes = [pointer, pointer]
            getattr(self.lib, "weir_" + name).restype = None
        self.device = self.make("device_open", device_name.encode(), None)
        self.bootstrap = self.make("bootstrap_create_launched", None)
        self.comm = self.make("comm_create", self.bootstrap, self.device, None)
        opts = CollectiveOpts(size=ctypes.sizeof(CollectiveOpts), blocks=blocks, map_recorded=True)
        self.plain = self.make("collective_create", self.comm, None)
        self.mapping = self.make("collective_create", self.comm, ctypes.byref(opts))
        self.rank = self.lib.weir_bootstrap_rank(self.bootstrap)
        self.size = self.lib.weir_bootstrap_size(self.bootstrap)

    def call(self, name, *arguments):
        status = getattr(self.lib, "weir_" + name)(*arguments)
        if status != OK:
            raise RuntimeError(f"weir_{name}: {self.lib.weir_status_name(status).decode()}: "
                               f"{self.lib.weir_last_error().decode()}")

    def make(self, name, *arguments):
        out = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(out))
        return out

    def run(self, collective, operation, send, recv, count, dtype, stream):
        """Puts the operation on the stream: pointers as integers, and the elements of a rank."""
        if operation == "allreduce":
            self.call("allreduce", collective, send, recv, count, DTYPES[dtype], SUM, stream)
        else:
            self.call("all_to_all", collective, send, recv, count, DTYPES[dtype], stream)

    def wait(self, stream):
        self.call("stream_wait", self.device, stream, 0)
        self.call("comm_status", self.comm)

    def close(self):
        self.lib.weir_collective_destroy(self.mapping)
        self.lib.weir_collective_destroy(self.plain)
        self.lib.weir_comm_destroy(self.comm)
        self.lib.weir_bootstrap_destroy(self.bootstrap)
        self.lib.weir_device_close(self.device)


def expect(condition, text):
    if not condition:
        raise SystemExit(f"wrong: {text}")


# ---- PyTorch on GPUs -----------------------------------------------------------------------------------------


def check_torch(weir, torch, dist, collective, operation, dtype, count):
    """Eagerly, then three replays of a graph, each with new data."""
    kind = getattr(torch, dtype)
    total = count * (weir.size if operation == "all_to_all" else 1)
    send = torch.empty(total, dtype=kind, device="cuda")
    recv = torch.empty_like(send)
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[send.element_size()]

    def fill(seed):
        """Small integers, whose sums are exact in every type, and a result that no call has written."""
        generator = torch.Generator(device="cuda").manual_seed(1000 * seed + weir.rank)
        send.copy_(torch.randint(0, 9, (total,), generator=generator, device="cuda"))
        recv.fill_(99)

    def put():
        weir.run(collective, operation, send.data_ptr(), recv.data_ptr(), count, dtype,
                 torch.cuda.current_stream().cuda_stream)

    def check(what):
        wanted = torch.empty_like(send)
        if operation == "allreduce":
            wanted.copy_(send)
            dist.all_reduce(wanted)
        else:
            dist.all_to_all_single(wanted, send)
        weir.wait(torch.cuda.current_stream().cuda_stream)
        different = int((recv.view(bits) != wanted.view(bits)).sum())
        expect(different == 0, f"{operation} of {count} {dtype}, {what}: {different} of {total} elements")

    fill(0)
    put()
    check("eager")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        put()
    for seed in (1, 2, 3):
        fill(seed)
        graph.replay()
        check(f"replay {seed} of a graph")
    del graph
    weir.call("collective_unmap", collective)


def time_us(weir, torch, dist, operation, collective):
    """The median time of a node of a graph, for 64 MiB of bfloat16; of torch.distributed if `collective` is None."""
    nodes, replays = 10, 11
    send = torch.ones(32 << 20, dtype=torch.bfloat16, device="cuda")
    recv = torch.empty_like(send)
    stream = torch.cuda.current_stream()

    def put():
        if collective is not None:
            count = send.numel() // (1 if operation == "allreduce" else weir.size)
            weir.run(collective, operation, send.data_ptr(), recv.data_ptr(), count, "bfloat16", stream.cuda_stream)
        elif operation == "allreduce":
            dist.all_reduce(recv)
        else:
            dist.all_to_all_single(recv, send)

    put()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(nodes):
            put()
    times = []
    for _ in range(replays):
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        dist.barrier()
        before.record()
        graph.replay()
        after.record()
        after.synchronize()
        times.append(1000 * before.elapsed_time(after) / nodes)
    del graph
    if collective is not None:
        weir.call("collective_unmap", collective)
    return sorted(times)[replays // 2]


def run_torch(library):
    import torch
    import torch.distributed as dist
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
    weir = Weir(library, f"gpu:{local_rank}", MAPPED_BLOCKS)
    calls = 0
    with torch.cuda.stream(torch.cuda.Stream()):
        for operation in ("allreduce", "all_to_all"):
            for dtype in DTYPES:
                for count in (1, 1000, 65539, 1 << 20, 16 << 20):
                    for collective in (weir.plain, weir.mapping):
                        check_torch(weir, torch, dist, collective, operation, dtype, count)
                        calls += 4
        times = {operation: [time_us(weir, torch, dist, operation, collective)
                             for collective in (weir.plain, weir.mapping, None)]
                 for operation in ("allreduce", "all_to_all")}
    if weir.rank == 0:
        for operation, (plain, mapping, nccl) in times.items():
            print(f"{operation} of 64 MiB: {plain:.1f} us, by {MAPPED_BLOCKS} SMs, mapped, {mapping:.1f}; "
                  f"NCCL {nccl:.1f}")
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
        print(f"torch {torch.__version__}, NCCL {nccl}, {weir.size} GPUs: {calls} results are bit-equal to NCCL's")
    dist.barrier()
    weir.close()
    dist.destroy_process_group()
    return weir.rank


# ---- without torch: two ranks on the CPU device -----------------------------------------------------------------


def check_cpu(weir, collective, operation, count, stream):
    total = count * (weir.size if operation == "all_to_all" else 1)
    array = ctypes.c_int32 * total
    send, recv = array(), array()

    def value(seed, rank, index):
        return seed * 1000003 + rank * 1009 + index * 7

    def fill(seed):
        for i in range(total):
            send[i] = value(seed, weir.rank, i)
            recv[i] = -1

    def put():
        weir.run(collective, operation, ctypes.addressof(send), ctypes.addressof(recv), count, "int32", stream)

    def check(seed, what):
        weir.wait(stream)
        for i in range(total):
            if operation == "allreduce":
                wanted = sum(value(seed, rank, i) for rank in range(weir.size))
            else:
                wanted = value(seed, i // count, weir.rank * count + i % count)
            expect(recv[i] == wanted, f"{operation} of {count}, {what}: element {i} is {recv[i]}, not {wanted}")

    fill(0)
    put()
    check(0, "eager")
    weir.call("graph_begin", weir.device, stream)
    put()
    graph = weir.make("graph_end", weir.device, stream)
    for seed in (1, 2, 3):
        fill(seed)
        weir.call("graph_launch", weir.device, graph, stream)
        check(seed, f"replay {seed} of a graph")
    weir.lib.weir_graph_destroy(weir.device, graph)


def run_cpu(library):
    weir = Weir(library, f"cpu:{os.environ['LOCAL_RANK']}", 2)
    stream = weir.make("stream_create", weir.device)
    expect(weir.size == 2, f"{weir.size} ranks")
    for operation in ("allreduce", "all_to_all"):
        for count in (1, 1000, 65539):
            for collective in (weir.plain, weir.mapping):
                check_cpu(weir, collective, operation, count, stream)
    try:
        weir.run(weir.plain, "allreduce", None, None, 4, "int32", stream)
        raise SystemExit("wrong: NULL was accepted")
    except RuntimeError as error:
        expect("WEIR_ERR_INVALID: weir_allreduce: send is NULL" in str(error), f"text {error}")
    weir.lib.weir_stream_destroy(weir.device, stream)
    weir.close()


def start_cpu(library):
    """Two ranks with the variables of torchrun. They meet through a file, so no port is needed."""
    with tempfile.TemporaryDirectory() as folder:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("WEIR_")}
        ranks = [subprocess.Popen([sys.executable, "-B", __file__, "--cpu", library], env={
            **clean, "TORCHELASTIC_RUN_ID": "none", "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1",
            "WEIR_RENDEZVOUS_FILE": os.path.join(folder, "rendezvous"), "WEIR_CPU_THREADS": "4"}) for rank in (0, 1)]
        statuses = [rank.wait() for rank in ranks]
    expect(statuses == [0, 0], f"the ranks ended with {statuses}")
    print("Succeed!")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true", help="two ranks on the CPU device, without torch")
    parser.add_argument("library", help="libweir.so")
    options = parser.parse_args()
    if options.cpu and "RANK" not in os.environ:
        return start_cpu(options.library)
    if options.cpu:
        run_cpu(options.library)
    elif run_torch(options.library) == 0:
        print("Succeed!", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
