#!/usr/bin/env python3
"""Plants each kind of violation in a small tree and expects check_layers.py to find it, and nothing else."""

import tempfile
import unittest
from pathlib import Path

from check_layers import Checker, strip_comments

LAYERS = """# comment
base:
config: base
sys: base
formats: base sys
engine: base config sys formats
frontends: base config engine
frontends/app: base config engine frontends/server
"""


class CheckLayersTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name).resolve()
        self.write("src/layers.txt", LAYERS)
        self.write("src/CMakeLists.txt", "")
        self.write("src/base/status.h", "#pragma once\n#include <string>\n")
        self.write("src/base/CMakeLists.txt", "bellhop_library(base SOURCES a.cc)\n")
        self.write("src/sys/file.h", '#pragma once\n#include <unistd.h>\n#include "base/status.h"\n')
        self.write("src/sys/CMakeLists.txt",
                   "bellhop_library(sys SOURCES a.cc DEPS base THIRD_PARTY Threads::Threads)\n"
                   "bellhop_test(sys_test SOURCES b.cc DEPS sys)\n")
        self.write("include/bellhop/bellhop.h", "#include <stddef.h>\n#include <stdint.h>\n")

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def violations(self):
        return Checker(self.root).run()

    def assert_clean(self):
        self.assertEqual(self.violations(), [])

    def assert_found(self, place, *parts):
        found = self.violations()
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(place + ": "), found[0])
        for part in parts:
            self.assertIn(part, found[0])

    def test_clean_tree(self):
        self.assert_clean()

    def test_allowed_includes(self):
        self.write("src/formats/a.cc", '#include "formats/gguf/a.h"\n#include "base/status.h"\n#include "sys/file.h"\n')
        self.assert_clean()

    def test_include_of_a_higher_folder(self):
        self.write("src/base/a.cc", '// fine so far\n#include "engine/engine.h"\n')
        self.assert_found("src/base/a.cc:2", "base may not include engine", "allowed: nothing")

    def test_include_of_a_neighbour_not_on_the_line(self):
        self.write("src/sys/a.cc", '#include "config/config.h"\n')
        self.assert_found("src/sys/a.cc:1", "sys may not include config", "allowed: base")

    def test_spacing_does_not_hide_an_include(self):
        self.write("src/sys/a.cc", '  #  include   "config/config.h"\n')
        self.assert_found("src/sys/a.cc:1", "config")

    def test_comments_are_no_includes(self):
        self.write("src/sys/a.cc", '// #include "config/config.h"\n/*\n#include "engine/e.h"\ngetenv */\n')
        self.assert_clean()

    def test_parent_folder(self):
        self.write("src/sys/a.cc", '#include "../base/status.h"\n')
        self.assert_found("src/sys/a.cc:1", '".."')

    def test_include_without_its_folder(self):
        self.write("src/sys/a.cc", '#include "file.h"\n')
        self.assert_found("src/sys/a.cc:1", "not a path from src/")

    def test_unknown_folder(self):
        self.write("src/misc/a.cc", "int a;\n")
        self.assert_found("src/misc/a.cc:1", "src/misc is not in src/layers.txt")

    def test_loose_file(self):
        self.write("src/a.cc", "int a;\n")
        self.assert_found("src/a.cc:1", "folder of src/")

    def test_cuda_headers(self):
        for name in ("cuda_runtime.h", "cuda_runtime_api.h", "cuda/std/span", "cub/cub.cuh", "cublas_v2.h"):
            self.write("src/formats/a.cc", f"#include <{name}>\n")
            self.assert_found("src/formats/a.cc:1", "no CUDA header in formats/")
        self.write("src/formats/a.cc", "")
        self.write("src/engine/a.cc", "#include <cuda_runtime.h>\n")
        self.assert_clean()

    def test_public_header(self):
        self.write("include/bellhop/bellhop.h", '#include <stddef.h>\n#include "base/status.h"\n')
        self.assert_found("include/bellhop/bellhop.h:2", "base/status.h")
        self.write("include/bellhop/bellhop.h", "#include <cuda_runtime.h>\n")
        self.assert_found("include/bellhop/bellhop.h:1", "cuda_runtime.h")

    def test_public_header_is_for_frontends(self):
        self.write("src/frontends/capi/a.cc", '#include "bellhop/bellhop.h"\n')
        self.assert_clean()
        self.write("src/engine/a.cc", '#include "bellhop/bellhop.h"\n')
        self.assert_found("src/engine/a.cc:1", "frontends/ only")

    def test_getenv(self):
        self.write("src/config/a.cc", 'auto* p = getenv("HOME");\n')
        self.write("src/engine/text.cc", 'const char* s = "getenv";  // getenv is fine in words\n')
        self.assert_clean()
        self.write("src/engine/a.cc", 'int x;\nauto* p = std::getenv("HOME");\n')
        self.assert_found("src/engine/a.cc:2", "getenv outside config/")

    def test_operating_system_headers(self):
        self.write("src/formats/a_test.cc", "#include <sys/resource.h>\n")
        self.write("src/frontends/server/socket.cc", "#include <sys/socket.h>\n")
        self.assert_clean()
        self.write("src/formats/a.cc", "#include <sys/mman.h>\n")
        self.assert_found("src/formats/a.cc:1", "live in sys/")

    def test_frontends_do_not_include_each_other(self):
        self.write("src/frontends/cli/a.cc", '#include "frontends/cli/b.h"\n#include "frontends/shared.h"\n')
        self.assert_clean()
        self.write("src/frontends/cli/a.cc", '#include "frontends/server/server.h"\n')
        self.assert_found("src/frontends/cli/a.cc:1", "frontends/cli may not include frontends/server")
        self.write("src/frontends/cli/a.cc", '#include "sys/file.h"\n')
        self.assert_found("src/frontends/cli/a.cc:1", "frontends may not include sys")

    def test_sub_folder_line(self):
        self.write("src/frontends/app/a.cc", '#include "frontends/server/server.h"\n')
        self.assert_clean()

    def test_links_differ_from_layers(self):
        self.write("src/formats/CMakeLists.txt", "bellhop_library(formats\n  SOURCES a.cc\n  DEPS base)\n")
        self.assert_found("src/formats/CMakeLists.txt:1", "DEPS of formats are 'base'", "'base sys'")
        self.write("src/formats/CMakeLists.txt", "bellhop_library(formats SOURCES a.cc DEPS base sys config)\n")
        self.assert_found("src/formats/CMakeLists.txt:1", "base config sys")

    def test_links_of_tests_and_further_libraries(self):
        good = ("bellhop_library(formats SOURCES a.cc DEPS base sys formats_onnx)\n"
                "bellhop_library(formats_onnx SOURCES b.cc DEPS base)\n")
        self.write("src/formats/CMakeLists.txt", good + "bellhop_test(t SOURCES t.cc DEPS formats sys)\n")
        self.assert_clean()
        self.write("src/formats/CMakeLists.txt",
                   good + "# DEPS engine\nbellhop_test(t SOURCES t.cc\n  DEPS formats engine)\n")
        self.assert_found("src/formats/CMakeLists.txt:4", "t links engine")

    def test_layers_file(self):
        self.write("src/layers.txt", LAYERS + "late: base nowhere\n")
        self.assert_found("src/layers.txt:9", "nowhere, which is not listed above it")
        self.write("src/layers.txt", LAYERS + "base:\n")
        self.assert_found("src/layers.txt:9", "twice")
        self.write("src/layers.txt", LAYERS + "base config\n")
        self.assert_found("src/layers.txt:9", "not understood")

    def test_headers(self):
        self.write("src/base/a.h", "int a;\n")
        self.assert_found("src/base/a.h:1", "#pragma once")
        self.write("src/base/a.h", "#pragma once\nusing namespace std;\n")
        self.assert_found("src/base/a.h:2", "using namespace")

    def test_sizes(self):
        long = "int a;\n" * 801
        self.write("src/base/long.cc", "int a;\n" * 800)
        self.assert_clean()
        self.write("src/base/long.cc", long)
        self.assert_found("src/base/long.cc:801", "801 lines")
        self.write("tools/size_exemptions.txt", "# list\nsrc/base/long.cc: one table of constants\n")
        self.assert_clean()
        self.write("tools/size_exemptions.txt", "src/base/long.cc: because\n")
        self.assertEqual(len(self.violations()), 2)
        (self.root / "tools/size_exemptions.txt").unlink()
        self.write("src/base/long.cc", "// Generated by tools/make.py. Do not edit.\n" + long)
        self.assert_clean()

    def test_stale_exemption(self):
        self.write("tools/size_exemptions.txt", "src/base/gone.cc: it was long once\n")
        self.assert_found("tools/size_exemptions.txt:1", "remove the line")

    def test_missing_layers_file(self):
        (self.root / "src/layers.txt").unlink()
        self.assertEqual(len(self.violations()), 1)

    def test_strip_comments_keeps_strings_and_lines(self):
        code = 'a("http://x"); // b\n/* c\n d */ e(\'"\'); R"(// raw)";'
        self.assertEqual(strip_comments(code).split("\n")[0].rstrip(), 'a("http://x");')
        self.assertEqual(strip_comments(code).count("\n"), 2)
        self.assertIn('R"(// raw)"', strip_comments(code))


if __name__ == "__main__":
    unittest.main()
