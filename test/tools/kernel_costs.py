#!/usr/bin/env python3
"""The shortest way round a loop, as tools/kernel-costs --reductions finds it, in a listing written by hand; and which
kernels --check refuses."""
import runpy
import sys

LISTING = """
\t.section\t.text.one,"ax",@progbits
        /*0000*/  MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/  LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/  @P0 BRA `(.L_x_2) ;
.L_x_1:
        /*0030*/  LDG.E.128 R8, desc[UR4][R2.64+0x200] ;
        /*0040*/  FADD R4, R4, R8 ;
        /*0050*/  @P1 BRA `(.L_x_1) ;
        /*0060*/  MOV R5, R4 ;
.L_x_2:
        /*0070*/  STG.E.128 desc[UR4][R2.64], R4 ;
        /*0080*/  @P2 BRA `(.L_x_0) ;
        /*0090*/  EXIT ;
\t.section\t.text.two,"ax",@progbits
        /*0000*/  EXIT ;
"""


def main():
    tool = runpy.run_path(sys.argv[1])
    load, store, join = tool["LOAD"], tool["STORE"], tool["JOIN"]
    for listing in (LISTING, LISTING.replace("`(.L_x_0)", "0x10").replace("`(.L_x_1)", "0x30").replace("`(.L_x_2)", "0x70")):
        codes = tool["codes"](listing)
        assert set(codes) == {"one", "two"}, codes
        code = codes["one"]
        for wanted, length in (((load, 1), (store, 1)), 4), (((load, 2), (store, 1)), 8), (((join, 1),), 3), \
                (((load, 3), (store, 1)), None):
            assert code.shortest_loop(*wanted) == length, (wanted, code.shortest_loop(*wanted))
        assert codes["two"].shortest_loop((load, 0)) is None, "no loop"
    for name, *figures, heavy in (("put_gpu", 64, 0, 0, False), ("put_gpu", 65, 0, 0, True), ("put_gpu", 8, 0, 4, True),
                                  ("put_gpu", 8, 16, 0, True), ("port_put_gpu", 64, 16, 0, False),
                                  ("port_put_gpu", 64, 16, 4, True), ("put_layout_gpu", 72, 0, 0, False),
                                  ("put_layout_gpu", 73, 0, 0, True), ("put_layout_ll16_gpu", 65, 0, 0, True),
                                  ("weiri_halo_exchange_gpu", 64, 88, 216, False),
                                  ("weiri_halo_exchange_gpu", 64, 96, 216, True),
                                  ("weiri_halo_exchange_gpu", 64, 88, 220, True)):
        assert tool["is_heavy"](name, *figures) == heavy, (name, figures)
    sources = tool["SOURCES"]
    assert all(f"src/device/kernels/{name}.c" in sources for name in ("layout", "halo", "table")), sources
    tools = tool["ROOT"] / "tools"
    assert all(f"tools/{path.name}" in sources for path in tools.glob("kernel_costs*.c")), sources
    port = (tools / "kernel_costs_window_port.c").read_text(encoding="utf-8")
    assert "#define WINDOW_COSTS_WITH_PORT\n" in port, port
    calls = (tools / "kernel_costs_layout.c").read_text(encoding="utf-8")
    for call in ("memory_channel_put_layout", "memory_channel_get_layout", "halo_put", "halo_wait"):
        assert f"weir_dev_{call}(" in calls, call


if __name__ == "__main__":
    main()
