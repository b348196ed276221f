#!/usr/bin/env python3
"""Tests the rules: each rule gets a small tree that breaks it in one place, and one that does not."""
import pathlib
import tempfile
import unittest

import check_calls
import check_headers
import check_layouts
import check_sources

CLEAN = {
    "include/weir/status.h": "typedef int weir_status;\n",
    "include/weir/device/impl/spin.h": "typedef struct weir_spin {\n    int reads;\n} weir_spin;\n",
    "src/host/base/wire.h": "",
    "src/host/base/wire.c": '/* wire.c - bytes. */\n#include "src/host/base/wire.h"\n',
    "src/device/device.h": '#include "src/host/base/wire.h"\n',
    "src/device/kernels/sum.h": "",
    "src/transport/transport.h": '#include "src/device/device.h"\n',
    "src/transport/ib/ib.h": '#include "src/transport/transport.h"\n',
    "src/host/boot/boot.h": "typedef struct weiri_peer {\n    int rank;\n} weiri_peer;\n",
    "src/host/comm/comm.h": '#include "src/host/boot/boot.h"\n#include "src/transport/transport.h"\n',
    "src/host/channel/port_channel.h": '#include "src/host/comm/comm.h"\n',
    "src/host/collective/call.h": '#include "src/device/kernels/sum.h"\n#include "src/host/channel/port_channel.h"\n',
}


class Rules(unittest.TestCase):
    def check(self, rule, **changed):
        """The violations of a rule in the clean tree with some files changed."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {**CLEAN, **changed}.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return list(rule(root))

    def found(self, rule, name, text, expected):
        self.assertEqual(self.check(rule), [], "the clean tree")
        found = self.check(rule, **{name: text})
        self.assertTrue(found and all(expected in line for line in found), f"{expected!r} is not all of {found}")

    def test_includes_go_downhill(self):
        for name, target in (("src/host/base/wire.c", "src/device/device.h"),
                             ("src/device/device.h", "src/transport/transport.h"),
                             ("src/device/kernels/sum.h", "src/device/device.h"),
                             ("src/transport/ib/ib.h", "src/host/boot/boot.h"),
                             ("src/host/boot/boot.h", "src/transport/transport.h"),
                             ("src/host/comm/comm.h", "src/host/channel/port_channel.h"),
                             ("src/host/channel/port_channel.h", "src/host/collective/call.h")):
            with self.subTest(name=name, target=target):
                self.found(check_sources.include_direction, name, f'/* x */\n#include "{target}"\n',
                           f"{name}:2: {target} is not below this file")

    def test_only_the_header_of_a_folder_is_included(self):
        self.found(check_sources.include_direction, "src/host/comm/comm.h", '#include "src/transport/ib/ib.h"\n',
                   "src/transport/ib/ib.h is not below this file")
        self.assertEqual(self.check(check_sources.include_direction, **{
            "src/host/channel/port_channel.h": '#include "src/host/comm/semaphore.h"\n', "src/host/comm/semaphore.h": ""}), [])
        found = self.check(check_sources.include_direction, **{
            "src/host/channel/port_channel.h": '#include "src/host/comm/fd_pass.h"\n', "src/host/comm/fd_pass.h": ""})
        self.assertTrue(len(found) == 1 and "src/host/comm/fd_pass.h is not below this file" in found[0], found)
        found = self.check(check_sources.include_direction, **{
            "src/host/collective/call.h": '#include "src/host/channel/fifo.h"\n', "src/host/channel/fifo.h": ""})
        self.assertTrue(len(found) == 1 and "src/host/channel/fifo.h is not below this file" in found[0], found)
        halo = {"src/host/halo/halo.h": "", "src/host/halo/meet.c": '/* meet.c - x. */\n#include "src/host/halo/halo.h"\n'}
        self.assertEqual(self.check(check_sources.include_direction, **halo), [], "a folder that others may not include")

    def test_backends_do_not_include_each_other(self):
        clean = {"src/transport/ofi/ofi.h": "", "src/transport/ipc/queue.h": "", "src/device/cpu/cpu.h": "",
                 "src/device/cuda/cuda.h": "",
                 "src/transport/ib/ib.c": '#include "src/transport/transport.h"\n#include "src/transport/ib/ib.h"\n',
                 "tools/swnic/swnic.c": '#include "src/transport/ib/prm.h"\n', "src/transport/ib/prm.h": ""}
        self.assertEqual(self.check(check_sources.include_direction, **clean), [])
        for name, target in (("src/transport/ib/ib.h", "src/transport/ofi/ofi.h"),
                             ("src/transport/ofi/ofi.h", "src/transport/ipc/queue.h"),
                             ("src/transport/ipc/queue.h", "src/transport/ib/ib.h"),
                             ("src/transport/transport.h", "src/transport/ib/ib.h"),
                             ("src/device/cpu/cpu.h", "src/device/cuda/cuda.h"),
                             ("src/device/cuda/cuda.h", "src/device/cpu/cpu.h")):
            with self.subTest(name=name, target=target):
                found = self.check(check_sources.include_direction, **{**clean, name: f'#include "{target}"\n'})
                self.assertEqual(found, [f"{name}:1: {target}: only files of {target.rsplit('/', 1)[0]} include it"])

    def test_every_folder_has_a_row(self):
        self.found(check_sources.include_direction, "src/host/other/other.h", '#include "src/host/base/wire.h"\n',
                   "the folder has no row")

    def test_programs_use_no_bodies(self):
        self.found(check_sources.include_direction, "tools/perf/main.c", '#include "weir/device/impl/spin.h"\n',
                   "programs include no header of weir/device/impl")

    def test_tutorials_share_headers_by_their_path(self):
        tutorial = "examples/tutorials/03/swap.c"
        good = {"examples/common/ranks.h": "/* x */\n", tutorial: '#include "../../common/ranks.h"\n'}
        self.assertEqual(self.check(check_sources.include_direction, **good), [])
        self.found(check_sources.include_direction, tutorial, '#include "../../common/lost.h"\n',
                   "../../common/lost.h is not relative to")
        self.found(check_sources.include_direction, tutorial, '#include "src/host/base/wire.h"\n',
                   "src/host/base/wire.h is not below this file")

    def test_errors_have_a_kernels_name(self):
        name = "include/weir/device/fifo.h"
        record = "WEIR_FN void weir_dev_control_store_note(int note)\n{\n    (void)note;\n}\n"
        fail = "WEIR_FN_COLD int weir_fail(int note)\n{\n    weir_dev_control_store_note(note);\n}\n"
        caller = "WEIR_FN int weir_wait(int n)\n{\n    return n ? %s : 0;\n}\n"
        clean = record + fail + caller % "WEIR_SLOW(weir_fail(n))"
        self.assertEqual(self.check(check_sources.kernel_names, **{name: clean}), [])
        self.found(check_sources.kernel_names, name, record + fail + caller % "weir_fail(n)",
                   "fifo.h:11: weir_wait calls weir_fail without WEIR_SLOW")
        shown = "WEIR_FN int weir_loop(int n)\n{\n%s    return weir_wait(n);\n}\n"
        bare = record + fail + caller % "weir_fail(n)"
        self.assertEqual(self.check(check_sources.kernel_names, **{
            name: bare + shown % "    weir_arch_show_kernel();\n"}), [], "the caller shows the name")
        self.found(check_sources.kernel_names, name, bare + shown % "", "weir_wait calls weir_fail without WEIR_SLOW")
        self.found(check_sources.kernel_names, name, "#if A\n" + record + fail + caller % "weir_fail(n)" + "#else\n"
                   + caller % "n" + "#endif\n", "weir_wait calls weir_fail without WEIR_SLOW")
        cold = "WEIR_FN_COLD int weir_cold(int n)\n{\n%s    return weir_wait(n);\n}\n"
        self.assertEqual(self.check(check_sources.kernel_names, **{name: clean + cold % "    weir_arch_no_kernel();\n"}), [])
        self.found(check_sources.kernel_names, name, clean + cold % "", "weir_cold is not inlined: weir_arch_no_kernel")
        self.found(check_sources.kernel_names, name, clean.replace("    weir_dev", "    weir_arch_no_kernel();\n    weir_dev"),
                   "weir_fail is not inlined: weir_arch_no_kernel")
        self.found(check_sources.kernel_names, name, record + fail + caller % "WEIR_FN_APART(one, weir_fail)(n)",
                   "weir_wait calls weir_fail without WEIR_SLOW")
        self.found(check_sources.kernel_names, name, record + fail.replace("    weir_dev", "    weir_arch_show_kernel();\n    weir_dev"),
                   "weir_fail is not inlined, and cannot show")

    def test_words_of_the_field(self):
        self.found(check_sources.words, "src/host/base/wire.c", "/* wire.c - a verdict. */\n", 'wire.c:1: "verdict"')
        self.found(check_sources.words, "docs/page.md", "Who connects?\nWhoever has the key.\n", 'docs/page.md:2: "Whoever"')
        self.assertEqual(self.check(check_sources.words, **{"CONTRIBUTING.md": "not: whoever\n"}), [])

    def test_tags_are_defined_once(self):
        self.found(check_sources.tags, "src/transport/ib/ib.h", "struct weiri_peer;\nstruct weiri_peer {\n};\n",
                   "src/transport/ib/ib.h:2: weiri_peer is defined in src/host/boot/boot.h:1 as well")

    def test_tags_are_also_those_of_enums_and_unions(self):
        for kind in ("enum", "union"):
            self.found(check_sources.tags, "src/transport/ib/ib.h", f"{kind} weir_spin {{ A }};\n",
                       "weir_spin is defined in")

    def test_sources_have_heads(self):
        self.found(check_sources.heads, "src/host/base/wire.c", '#include "src/host/base/wire.h"\n',
                   "src/host/base/wire.c: does not open with a comment")
        self.found(check_sources.heads, "src/host/base/wire.c", "/* sock.c - bytes. */\n",
                   "its head comment names sock.c")

    def test_numbers_of_the_environment_have_a_range(self):
        table = {"src/host/base/env_table.h": '    X(WEIR_LOG, string, log, "", "")\n    X(WEIR_SIZE, u64, size, "", "")\n'}
        ranges = {"src/host/base/env.c": '    { "WEIR_SIZE", 1, 65536 },\n};\n    { "WEIR_LOG", words, 4, "warn" },\n'}
        self.assertEqual(self.check(check_sources.environment, **table, **ranges), [])
        table["src/host/base/env_table.h"] += '    X(WEIR_PORT, u64, port, "", "")\n'
        self.assertEqual(self.check(check_sources.environment, **table, **ranges),
                         ["src/host/base/env.c: WEIR_PORT is a number without a row in ranges"])
        ranges["src/host/base/env.c"] += '    { "WEIR_LOG", 0, 3 },\n    { "WEIR_PORT", 1, 65535 },\n'
        self.assertEqual(self.check(check_sources.environment, **table, **ranges),
                         ["src/host/base/env.c: WEIR_LOG has a row in ranges and is no number of env_table.h"])

    def test_clang_format_changes_nothing(self):
        style = (pathlib.Path(__file__).parents[2] / ".clang-format").read_text(encoding="utf-8")
        try:
            self.assertEqual(self.check(check_sources.clang_format, **{".clang-format": style}), [])
            found = self.check(check_sources.clang_format, **{".clang-format": style, "test/a.c": "int  a;\n"})
        except check_sources.Skipped as why:
            self.skipTest(str(why))
        self.assertEqual(found, ["test/a.c:1:4: clang-format -i changes this"])

    def calls(self, objects):
        return self.check(lambda root: check_calls.violations(root, objects))

    def test_calls_go_downhill(self):
        self.assertEqual(self.calls({"src/host/base/wire.c": ({"weiri_read": "T"}, {"memcpy"}),
                                     "src/host/comm/comm.c": ({"weiri_comm": "T"}, {"weiri_read"})}), [])
        self.assertEqual(self.calls({"src/host/boot/join.c": ({"weiri_join": "T"}, {"weiri_comm"}),
                                     "src/host/comm/comm.c": ({"weiri_comm": "D"}, set())}),
                         ["src/host/boot/join.c: weiri_comm is of src/host/comm/comm.c, which is not below this file"])

    def test_every_object_is_of_a_folder(self):
        self.assertEqual(self.calls({"src/./host/base/wire.c": ({"weiri_read": "T"}, set())}),
                         ["src/./host/base/wire.c: no row of FOLDERS has this file"])

    def test_circles_through_folders_are_found(self):
        device = {"weiri_block": "T"}
        registry = {"src/device/device.c": (device, {"weiri_cpu_ops"}),
                    "src/device/cpu/cpu.c": ({"weiri_cpu_ops": "R", "weiri_cpu_open": "T"}, {"weiri_block"})}
        self.assertEqual(self.calls(registry), [])
        found = self.calls({**registry, "src/device/device.c": (device, {"weiri_cpu_open"})})
        self.assertEqual(found, ["a circle through folders:",
                                 "    src/device/cpu/cpu -> src/device/device: calls weiri_block",
                                 "    src/device/device -> src/device/cpu/cpu: calls weiri_cpu_open"])

    def test_circles_of_includes_and_calls_together_are_found(self):
        found = self.check(lambda root: check_calls.violations(root, {
            "src/transport/ib/ib.c": ({"weiri_ib": "T"}, set()),
            "src/transport/transport.c": ({"weiri_transport": "T"}, {"weiri_ib"})}))
        self.assertIn("    src/transport/ib/ib -> src/transport/transport: includes it", found)

    def test_circles_of_device_headers_are_found(self):
        found = self.check(lambda root: check_calls.violations(root, {}),
                           **{"include/weir/device/rdma.h": '#include "weir/device/impl/post.h"\n',
                              "include/weir/device/impl/post.h": '#include "weir/device/rdma.h"\n'})
        self.assertEqual(found, ["a circle through folders:",
                                 "    include/weir/device/impl/post -> include/weir/device/rdma: includes it",
                                 "    include/weir/device/rdma -> include/weir/device/impl/post: includes it"])

    def test_headers_of_bodies_have_one_owner(self):
        owner = '#include "weir/a.h"\n\nWEIR_FN int b(void);\n\n#include "weir/impl/c.h"\n'
        texts = {"weir/b.h": owner, "weir/a.h": "\nWEIR_FN int a(void);\n", "weir/impl/c.h": ""}
        self.assertEqual(check_headers.tails(texts), {"weir/impl/c.h": ["weir/b.h"]})
        texts["weir/d.h"] = '#include "weir/impl/c.h"\n'
        self.assertEqual(check_headers.tails(texts), {"weir/impl/c.h": ["weir/b.h", "weir/d.h"]})

    def test_circles_of_leaves_are_found(self):
        found = self.calls({"src/host/base/env.c": ({"weiri_env": "T"}, {"weiri_log"}),
                            "src/host/base/log.c": ({"weiri_log": "T"}, {"weiri_env"})})
        self.assertEqual(found[0], "a circle of leaves:")

    def test_circles_inside_a_folder_are_its_own(self):
        self.assertEqual(self.calls({"src/host/boot/join.c": ({"weiri_join": "T"}, {"weiri_conn"}),
                                     "src/host/boot/conn.c": ({"weiri_conn": "T"}, {"weiri_join"})}), [])

    def test_conditional_includes_are_found(self):
        guarded = '#ifndef H\n#define H\n#include "weir/base.h"\n%s\n#endif\n'
        for condition in ("#if defined(__CUDA_ARCH__)", "#ifdef __CUDACC__", "# ifndef __NVCC__"):
            with self.subTest(condition=condition):
                text = guarded % f'{condition}\n#include "weir/error.h"\n#endif'
                self.assertTrue(check_headers.depends_on_nvcc(text))
                self.assertEqual(list(check_headers.conditional_includes(text)), ['"weir/error.h"'])
        text = guarded % '#if defined(X)\n#include <stdint.h>\n#endif\n#include "weir/error.h"'
        self.assertFalse(check_headers.depends_on_nvcc(text))
        self.assertEqual(list(check_headers.conditional_includes(text)), [])

    LAYOUTS = {"types.h": "#define WEIR_DEV_VERSION 3u\nNOUN(0, fifo, 1u) \\\n"
                          "typedef struct weir_dev_fifo {\n    int a; /* one */\n} weir_dev_fifo;\n",
               "coop.h": "typedef struct weir_coop {\n    int b;\n} weir_coop;\n",
               "kernel.h": "typedef struct weir_kernel {\n    int c;\n} weir_kernel;\n"}
    TABLE = "kernel 3 new weir_coop weir_kernel\nfifo 1 new weir_dev_fifo\n"

    def layouts(self, table, old="", new="", record=False):
        return check_layouts.check({name: text.replace(old, new) for name, text in self.LAYOUTS.items()}, table, record)

    def test_changed_layouts_need_a_new_version(self):
        table = self.layouts(self.TABLE, record=True)[1]
        self.assertEqual(self.layouts(table), ([], table))
        self.assertEqual(self.layouts(table, "one", "another")[0], [])
        for record in (False, True):
            wrong, same = self.layouts(table, "int a", "long a", record)
            self.assertEqual((len(wrong), same), (1, table))
            self.assertIn("fifo: a struct of it has changed (weir_dev_fifo): raise its version 1", wrong[0])
        self.assertIn("fifo: version 2 is not recorded", self.layouts(table, "fifo, 1u", "fifo, 2u")[0][0])
        raised, recorded = self.layouts(table, "fifo, 1u", "fifo, 2u", True)
        self.assertEqual(raised, [])
        self.assertIn("fifo 2 ", recorded)

    def test_structs_outside_the_layouts_are_found(self):
        table = self.layouts(self.TABLE, record=True)[1]
        self.assertEqual(self.layouts(table.replace(" weir_kernel", ""))[0][0], "weir_kernel: in 0 lines of layouts.txt")
        wrong = self.layouts(table + "fifo 1 x weir_dev_lost\n")[0]
        self.assertIn("weir_dev_lost: layouts.txt names it, and no header has it", wrong)


if __name__ == "__main__":
    unittest.main()
