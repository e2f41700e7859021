#!/usr/bin/env python3
"""Checks that the C++ sources are formatted as .clang-format says, or formats them.

    python3 tools/check_format.py          lists files that differ; exit 1 when there are any
    python3 tools/check_format.py --fix    formats them in place

The version is fixed (clang-format 14, Debian 12): others format differently. Files whose first line says that they are
generated are left alone, as are *.def tables, whose columns are aligned by hand.
"""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "include", "tests", "fuzz", "bench", "tools")
SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".c", ".cpp"}
VERSION = "14"
FILES_PER_RUN = 16


def find_clang_format():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        path = shutil.which(name)
        if path is None:
            continue
        version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        if f"version {VERSION}." in version:
            return path
    return None


def sources():
    """Tracked and new files; everything in the source folders when this is no git checkout."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *FOLDERS]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        names = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        names = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    for path in sorted(set(names)):
        if path.suffix in SUFFIXES and path.is_file():
            with path.open(encoding="utf-8", errors="replace") as file:
                if "generated" not in file.readline().lower():
                    yield path


def main():
    fix = sys.argv[1:] == ["--fix"]
    if sys.argv[1:] and not fix:
        print(__doc__)
        return 2
    tool = find_clang_format()
    if tool is None:
        print(f"clang-format {VERSION} not found; tools/install_deps.sh installs the package clang-format-{VERSION}")
        return 1
    files = list(sources())
    runs = [files[i:i + FILES_PER_RUN] for i in range(0, len(files), FILES_PER_RUN)]
    mode = ["-i"] if fix else ["--dry-run", "-Werror"]

    def format_run(paths):
        return subprocess.run([tool, "--style=file", *mode, *map(str, paths)], cwd=ROOT, capture_output=True, text=True,
                              check=False)

    with ThreadPoolExecutor(cpu_count()) as pool:
        results = list(pool.map(format_run, runs))
    if all(result.returncode == 0 for result in results):
        print(f"{len(files)} files {'formatted' if fix else 'are formatted'}")
        return 0
    for result in results:
        if result.returncode != 0:
            print(result.stderr.rstrip())
    print(f"\nnot formatted as .clang-format says; run 'make format' (clang-format {VERSION}) and commit the result")
    return 1


if __name__ == "__main__":
    sys.exit(main())
