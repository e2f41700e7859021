#!/usr/bin/env python3
"""What kernel_resources.py makes of the words of ptxas."""

import unittest
from unittest import mock

import kernel_resources

ROUTER = "_ZN7bellhop7kernels41_GLOBAL__N__82937737_9_router_cu_335e854312RouterKernelENS0_10RouterArgsE"
PROBE = "_ZN7bellhop4cuda11ProbeKernelILi8EEEvPKfb"


def words(kernel, generation, registers, shared, stores=0, loads=0):
    return f"""ptxas info    : Compiling entry function '{kernel}' for 'sm_{generation}'
ptxas info    : Function properties for {kernel}
    {stores + 16} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers{f", {shared} bytes smem" if shared else ""}, 696 bytes cmem[0]
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

    def test_spills_are_named_unless_known(self):
        found = kernel_resources.parse(words(ROUTER, "80", 80, 0) + words(PROBE, "80", 255, 0, 8, 12))
        names = kernel_resources.readable({name for name, _ in found})
        self.assertEqual(kernel_resources.check(found, names),
                         [" ProbeKernel<8>, sm_80: 8 bytes of spill stores, 12 of loads"])
        with mock.patch.dict(kernel_resources.MAY_SPILL, {"ProbeKernel": "a reason"}, clear=True):
            self.assertEqual(kernel_resources.check(found, names), [])
        with mock.patch.dict(kernel_resources.MAY_SPILL, {"ProbeKernel": "", "Router": ""}, clear=True):
            self.assertEqual(kernel_resources.check(found, names),
                             ["Router does not spill any more: take it out of MAY_SPILL"])


if __name__ == "__main__":
    unittest.main()
