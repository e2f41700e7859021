#!/usr/bin/env python3
"""End-to-end tests of the bellhop program on the shipped model.

    python3 tests/cli/cli_test.py PATH/TO/bellhop [unittest options]
"""

import sys
import unittest

import bellhop_process

if __name__ == "__main__":
    if len(sys.argv) < 2:
        print(__doc__)
        sys.exit(2)
    bellhop_process.program = sys.argv.pop(1)
    suite = unittest.defaultTestLoader.discover(str(bellhop_process.ROOT / "tests" / "cli"), pattern="test_*.py")
    if len(sys.argv) > 1:  # names of tests: test_run.RunTest.test_x
        suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:])
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    sys.exit(0 if result.wasSuccessful() and result.testsRun > 0 else 1)
