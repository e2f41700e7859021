#!/usr/bin/env python3
"""What kernel_resources.py makes of the words of ptxas."""

import unittest

import kernel_resources

ROUTER = "_ZN7bellhop7kernels41_GLOBAL__N__82937737_9_router_cu_335e854312RouterKernelENS0_10RouterArgsE"
PROBE = "_ZN7bellhop4cuda11ProbeKernelILi8EEEvPKfb"


def words(kernel, generation, registers, shared, stores=0, loads=0):
    static = f", {shared} bytes smem" if shared else ""
    return f"""ptxas info    : Compiling entry function '{kernel}' for 'sm_{generation}'
ptxas info    : Function properties for {kernel}
    {stores + 16} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers{static}, 696 bytes cmem[0]
ptxas info    : Compile time = 1.5 ms
""".splitlines()


class KernelResourcesTest(unittest.TestCase):
    def test_table(self):
        lines = ["[3/9] Building CUDA object router.cu.o", "ptxas info    : 0 bytes gmem"]
        lines += words(ROUTER, "80", 80, 1200) + words(ROUTER, "90a", 72, 1200) + words(PROBE, "90a", 255, 0, 8, 12)
        found = kernel_resources.parse(lines)
        names = kernel_resources.readable({name for name, _ in found})
        self.assertEqual(kernel_resources.table(found, names), """\
| source | kernel | sm_80: registers, shared | sm_90a: registers, shared |
|---|---|---|---|
|  | `ProbeKernel<8>` | – | 255, 0, spills 8 / 12 |
| router.cu | `RouterKernel` | 80, 1200 | 72, 1200 |
""")

    def test_the_last_build_of_a_log_counts(self):
        found = kernel_resources.parse(words(ROUTER, "80", 80, 0, 4, 4) + words(ROUTER, "80", 64, 0))
        self.assertEqual(found, {(ROUTER, "80"): (64, 0, 0, 0)})

    def problems(self, lines, table_lines):
        def read(some_lines):
            found = kernel_resources.parse(some_lines)
            return found, kernel_resources.readable({name for name, _ in found})

        table = kernel_resources.table(*read(table_lines))
        return kernel_resources.check(*read(lines), kernel_resources.known_spills(table))

    def test_more_spills_than_the_table_says_are_named(self):
        known = words(ROUTER, "80", 80, 0) + words(PROBE, "80", 255, 0, 8, 12)
        self.assertEqual(self.problems(known, known), [])
        self.assertEqual(self.problems(words(PROBE, "80", 200, 64, 8, 8), known), [])
        self.assertEqual(self.problems(words(PROBE, "80", 255, 0, 8, 16), known),
                         ["ProbeKernel<8>, sm_80: 8 / 16 bytes of spill stores / loads, 8 / 12 in the table"])
        self.assertEqual(self.problems(words(ROUTER, "80", 80, 0, 4, 4), known),
                         ["RouterKernel (router.cu), sm_80: 4 / 4 bytes of spill stores / loads, 0 / 0 in the table"])

    def test_unknown_kernels_are_named_and_unknown_generations_are_not(self):
        known = words(ROUTER, "80", 80, 0) + words(ROUTER, "90", 80, 0) + words(PROBE, "80", 255, 0)
        self.assertEqual(self.problems(words(PROBE, "90", 32, 0), known), ["ProbeKernel<8>, sm_90: not in the table"])
        self.assertEqual(self.problems(words(PROBE, "120", 32, 0, 8, 8), known), [])


if __name__ == "__main__":
    unittest.main()
