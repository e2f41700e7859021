#!/usr/bin/env python3
"""Tests of `bellhop serve` with real clients: OpenAI's and Anthropic's packages, raw sockets, and a browser.

    python3 tests/server/server_test.py clients PATH/TO/bellhop [names of tests]
    python3 tests/server/server_test.py page PATH/TO/bellhop [names of tests]
    python3 tests/server/server_test.py page PATH/TO/bellhop --screenshots DIR
"""

import importlib
import os
import sys
import unittest

REMEDY = "run tools/install_deps.sh --server-tests, which installs them"
SUITES = {
    "clients": (("openai", "anthropic", "jsonschema"), ("test_openai_client", "test_openai_output",
                                                        "test_anthropic_client", "test_raw_socket")),
    "page": (("playwright.sync_api",), ("test_page",)),
}


def missing_packages(names):
    missing = []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing.append(f"{name} ({error})")
    return missing


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in SUITES:
        print(__doc__)
        return 2
    packages, modules = SUITES[sys.argv[1]]
    if missing := missing_packages(packages):
        print(f"server_test: {sys.executable} lacks Python packages: {', '.join(missing)}; {REMEDY}", file=sys.stderr)
        return 1
    import serve_process
    serve_process.program = os.path.abspath(sys.argv[2])
    rest = sys.argv[3:]
    if sys.argv[1] == "page":
        import browser
        if browser.find() is None:
            print(f"server_test: there is no chromium; {REMEDY}", file=sys.stderr)
            return 1
    if rest[:1] == ["--screenshots"] and len(rest) == 2 and sys.argv[1] == "page":
        import screenshots
        screenshots.write(rest[1])
        return 0
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromNames(rest or modules))
    return 0 if result.wasSuccessful() and result.testsRun > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
