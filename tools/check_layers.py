#!/usr/bin/env python3
"""Holds the sources against the rules that a compiler does not check.

    python3 tools/check_layers.py [ROOT]

Prints one line per violation, "FILE:LINE: what is wrong; what to do", and exits 1 when there is any. The rules:

* includes: a file in src/FOLDER includes headers of FOLDER and of the folders on its line in src/layers.txt, by a path
  rooted at src/. No "..", no header beside the file without its folder. A line "frontends/cli: ..." in layers.txt
  speaks for that sub-folder; without one, a sub-folder of frontends/ includes itself and the files directly in
  frontends/.
* folders: every folder of src/ is in layers.txt.
* links: the DEPS of a folder's library in its CMakeLists.txt are its line in layers.txt; other libraries and tests of
  the folder link nothing beyond that line and the folder itself.
* CUDA headers stay out of the host-only folders and of the public headers, which include nothing of ours.
* getenv is called in src/config/ only; headers of the operating system are included in src/sys/ only (tests and
  src/frontends/server apart).
* headers say #pragma once and no "using namespace".
* sizes: no source file is longer than 800 lines, unless tools/size_exemptions.txt gives a reason or its first line says
  that it is generated.
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

CPP_SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".def", ".c", ".cpp", ".inc"}
HEADER_SUFFIXES = {".h", ".cuh"}
OTHER_SUFFIXES = {".txt", ".md"}
SIZE_LIMIT = 800
SIZED_FOLDERS = ("src", "include", "tests", "fuzz", "bench", "tools")
SIZED_SUFFIXES = CPP_SUFFIXES | {".py", ".sh", ".cmake"}

# Host code that must compile anywhere.
NO_CUDA_FOLDERS = {"base", "config", "sys", "manifest", "formats", "text", "plan"}
CUDA_HEADER = re.compile(
    r"^(cuda|cublas|cudnn|cufft|curand|nccl|nvtx3/|thrust/|cub/|cooperative_groups|(mma|vector_types)\.h$)")
OS_HEADER = re.compile(
    r"^(sys/|linux/|arpa/|net/|netinet/|(unistd|fcntl|dirent|dlfcn|poll|pthread|pwd|sched|spawn|syslog|termios|netdb"
    r"|semaphore|windows)\.h$)")
GETENV = re.compile(r"\b(secure_getenv|getenv|environ)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


@dataclass
class Layers:
    allowed: dict = field(default_factory=dict)  # folder, or folder/sub-folder -> set of folders

    @property
    def folders(self):
        return {name for name in self.allowed if "/" not in name}

    def line_for(self, folder, sub_folder):
        return self.allowed.get(f"{folder}/{sub_folder}", self.allowed.get(folder, set()))


def read_layers(path, report):
    layers = Layers()
    for number, raw in enumerate(path.read_text().splitlines(), 1):
        line = raw.split("#", 1)[0].strip()
        if not line:
            continue
        name, colon, rest = line.partition(":")
        name = name.strip()
        if not colon or not re.fullmatch(r"[a-z0-9_]+(/[a-z0-9_]+)?", name):
            report(path, number, f"'{line}' is not understood; write 'folder: folders it may include'")
            continue
        if name in layers.allowed:
            report(path, number, f"{name} is listed twice")
        for dep in rest.split():
            if dep.split("/")[0] not in layers.allowed:
                report(path, number, f"{name} may include {dep}, which is not listed above it; lower layers come first")
        layers.allowed[name] = set(rest.split())
    return layers


def blank_out(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def strip_comments(text):
    """Comments become spaces; line numbers stay. String and character literals are left as they are."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|(R"(\w*)\(.*?\)\2"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')', re.S)
    return pattern.sub(lambda m: m.group(0) if m.group(1) else blank_out(m), text)


def strip_strings(text):
    return re.sub(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', blank_out, text, flags=re.S)


def is_test(name):
    return re.search(r"_test\.|_for_test\.", name) is not None


def is_generated(text):
    return "generated" in text.split("\n", 1)[0].lower()


def target_calls(cmake):
    """(line, "library" or "test", name, set of DEPS) of each bellhop_library and bellhop_test call."""
    text = re.sub(r"#[^\n]*", "", cmake)
    for match in re.finditer(r"\bbellhop_(library|test)\s*\(([^)]*)\)", text):
        words = match.group(2).split()
        deps, keyword = set(), None
        for word in words[1:]:
            if word in ("SOURCES", "DEPS", "THIRD_PARTY", "TIMEOUT"):
                keyword = word
            elif keyword == "DEPS":
                deps.add(word)
        yield text[:match.start()].count("\n") + 1, match.group(1), words[0] if words else "", deps


class Checker:
    def __init__(self, root):
        self.root = Path(root)
        self.violations = []
        self.layers = Layers()

    def report(self, path, number, message):
        self.violations.append(f"{Path(path).relative_to(self.root)}:{number}: {message}")

    def run(self):
        layers_file = self.root / "src" / "layers.txt"
        if not layers_file.is_file():
            self.violations.append(f"{layers_file}:1: not found; run this with the repository's root")
            return self.violations
        self.layers = read_layers(layers_file, self.report)
        for path in self.files("src"):
            self.check_source(path)
        for path in self.files("include"):
            self.check_public_header(path)
        for folder in sorted(self.layers.folders):
            self.check_links(folder)
        self.check_sizes()
        return self.violations

    def files(self, folder):
        top = self.root / folder
        return sorted(p for p in top.rglob("*") if p.is_file() and "__pycache__" not in p.parts) if top.is_dir() else []

    # --- one file -----------------------------------------------------------------------------------------------

    def check_source(self, path):
        parts = path.relative_to(self.root / "src").parts
        if len(parts) == 1:
            if parts[0] not in ("CMakeLists.txt", "layers.txt"):
                self.report(path, 1, "files live in a folder of src/; move it into one")
            return
        folder, sub_folder = parts[0], parts[1] if len(parts) > 2 else ""
        if folder not in self.layers.folders:
            self.report(path, 1, f"folder src/{folder} is not in src/layers.txt; add it or move the file")
            return
        if path.suffix not in CPP_SUFFIXES:
            if path.suffix not in OTHER_SUFFIXES:
                self.report(path, 1, f"'{path.suffix}' is no source file; move it out of src/")
            return
        text = path.read_text(encoding="utf-8", errors="replace")
        code = strip_comments(text)
        for number, line in enumerate(code.split("\n"), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            if match.group(1) == '"':
                self.check_own_include(path, number, folder, sub_folder, match.group(2))
            else:
                self.check_system_include(path, number, folder, sub_folder, match.group(2))
        self.check_code(path, folder, code)

    def check_own_include(self, path, number, folder, sub_folder, included):
        parts = included.split("/")
        if ".." in parts or "." in parts:
            self.report(path, number, f'"{included}" uses "..": include by the path from src/')
            return
        target = parts[0]
        if target == "bellhop":
            if folder != "frontends":
                self.report(path, number, f'"{included}": the public header is for frontends/ only')
            return
        if len(parts) < 2 or target not in self.layers.folders:
            self.report(path, number, f'"{included}" is not a path from src/: write "{folder}/...", or <...> for '
                        "headers of others")
            return
        if target == folder:
            if folder == "frontends" and len(parts) > 2:
                own = parts[1] == sub_folder or f"frontends/{parts[1]}" in self.layers.line_for(folder, sub_folder)
                if not own:
                    self.report(path, number, f'"{included}": frontends/{sub_folder} may not include '
                                f"frontends/{parts[1]}; share the code through engine/, or give it a line in "
                                "src/layers.txt")
            return
        if target not in self.layers.line_for(folder, sub_folder):
            allowed = " ".join(sorted(self.layers.line_for(folder, sub_folder))) or "nothing"
            self.report(path, number, f'"{included}": {folder} may not include {target} (allowed: {allowed}); move the '
                        "code up, or pass what it needs down")

    def check_system_include(self, path, number, folder, sub_folder, included):
        if included.split("/")[0] == "bellhop" and folder != "frontends":
            self.report(path, number, f"<{included}>: the public header is for frontends/ only")
        if folder in NO_CUDA_FOLDERS and CUDA_HEADER.match(included):
            self.report(path, number, f"<{included}>: no CUDA header in {folder}/; it must compile without CUDA")
        os_free = folder == "sys" or (folder, sub_folder) == ("frontends", "server") or is_test(path.name)
        if not os_free and OS_HEADER.match(included):
            self.report(path, number, f"<{included}>: calls to the operating system live in sys/; add a function there")

    def check_code(self, path, folder, code):
        bare = strip_strings(code)
        for number, line in enumerate(bare.split("\n"), 1):
            match = GETENV.search(line)
            if match and folder != "config":
                self.report(path, number, f"{match.group(1)} outside config/: pass the setting in a config struct")
            if path.suffix in HEADER_SUFFIXES and re.match(r"\s*using\s+namespace\b", line):
                self.report(path, number, "'using namespace' in a header: name what you use")
        if path.suffix in HEADER_SUFFIXES and not re.search(r"^#pragma once$", bare, re.M):
            self.report(path, 1, "header without '#pragma once'")

    def check_public_header(self, path):
        if path.suffix not in CPP_SUFFIXES:
            return
        code = strip_comments(path.read_text(encoding="utf-8", errors="replace"))
        for number, line in enumerate(code.split("\n"), 1):
            match = INCLUDE.match(line)
            if match and (match.group(1) == '"' or not re.fullmatch(r"std[a-z]+\.h", match.group(2))):
                self.report(path, number, f"public header includes {match.group(2)}: only the C standard's <std*.h> "
                            "may be used")

    # --- build files ----------------------------------------------------------------------------------------------

    def check_links(self, folder):
        calls = []
        for path in self.files(f"src/{folder}"):
            if path.name == "CMakeLists.txt":
                calls += [(path, *call) for call in target_calls(path.read_text())]
        own = {name for _, _, kind, name, _ in calls if kind == "library"}
        allowed = self.layers.allowed[folder]
        for path, number, kind, name, deps in calls:
            if kind == "library" and name == folder:
                if deps - own != allowed:
                    self.report(path, number, f"DEPS of {name} are '{' '.join(sorted(deps))}', but src/layers.txt "
                                f"allows '{' '.join(sorted(allowed))}'; make them equal")
                continue
            parts = path.relative_to(self.root / "src").parts
            mine = self.layers.line_for(folder, parts[1] if len(parts) > 2 else "") | allowed
            if extra := deps - own - mine - {folder}:
                self.report(path, number, f"{name} links {' '.join(sorted(extra))}, which src/layers.txt does not "
                            "allow")

    # --- sizes ----------------------------------------------------------------------------------------------------

    def check_sizes(self):
        exemptions_file = self.root / "tools" / "size_exemptions.txt"
        exempt = {}
        if exemptions_file.is_file():
            for number, line in enumerate(exemptions_file.read_text().splitlines(), 1):
                if not line.strip() or line.startswith("#"):
                    continue
                name, colon, reason = line.partition(":")
                if not colon or len(reason.split()) < 3:
                    self.report(exemptions_file, number, f"'{line}': write 'path: reason'")
                    continue
                exempt[name.strip()] = number
        for folder in SIZED_FOLDERS:
            for path in self.files(folder):
                if path.suffix not in SIZED_SUFFIXES:
                    continue
                text = path.read_text(encoding="utf-8", errors="replace")
                lines = text.count("\n")
                name = str(path.relative_to(self.root))
                if lines <= SIZE_LIMIT or is_generated(text):
                    continue
                if exempt.pop(name, None) is None:
                    self.report(path, lines, f"{lines} lines: split it (aim for 400, the limit is {SIZE_LIMIT}), or "
                                "give a reason in tools/size_exemptions.txt")
        for name, number in exempt.items():
            self.report(exemptions_file, number, f"{name} needs no exemption; remove the line")


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    violations = Checker(root.resolve()).run()
    for line in violations:
        print(line)
    if violations:
        print(f"{len(violations)} violation(s); the rules are at the top of tools/check_layers.py")
        return 1
    print("layers, links and sizes are as src/layers.txt and CONTRIBUTING.md say")
    return 0


if __name__ == "__main__":
    sys.exit(main())
