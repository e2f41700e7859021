#!/usr/bin/env python3
"""Registers, static shared memory and spills of every GPU kernel, from what ptxas prints.

    cmake --preset cuda -DBELLHOP_CUDA_RESOURCE_USAGE=ON && cmake --build --preset cuda 2>&1 | tee -a build/cuda/ptxas.log
    tools/kernel_resources.py build/cuda/ptxas.log --table docs/gpu_kernels.md   # writes the table
    tools/kernel_resources.py build/cuda/ptxas.log --check                       # fails when a kernel spills

A log may hold several builds: the last words about a kernel count. Kernels whose spills are known and bearable stand in
MAY_SPILL with their reason; one that no longer spills must leave it.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

# Start of a kernel's name as the table shows it -> why its spills are borne.
MAY_SPILL = {}

HEAD = """# GPU kernels

What the compiler gives each kernel: registers of a thread, bytes of static shared memory of a block (dynamic shared
memory is asked for at the launch and not in it), bytes of spill stores and loads of a thread. Written by
`tools/kernel_resources.py`; CI fails when a kernel spills that is not named in that script.

"""
ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\w+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
# nvcc's name of an unnamed namespace says the file: _GLOBAL__N__<hash>_<length>_router_cu_<hash>.
UNNAMED = re.compile(r"_GLOBAL__N__[0-9a-f]+_\d+_(\w+?)_cu_[0-9a-f]{8}")


def fail(reason):
    sys.exit(f"kernel_resources.py: {reason}")


def parse(lines):
    """{(mangled name, generation): (registers, shared bytes, spill stores, spill loads)}"""
    found, entry, spills = {}, None, None
    for line in lines:
        if match := ENTRY.search(line):
            entry, spills = match.groups(), None
        elif entry and (match := SPILLS.search(line)) and spills is None:
            spills = (int(match[2]), int(match[3]))
        elif entry and (match := USED.search(line)):
            if spills is None:
                fail(f"the log has no line of spills for {entry[0]}, sm_{entry[1]}")
            shared = SHARED.search(line)
            found[entry] = (int(match[1]), int(shared[1]) if shared else 0, *spills)
            entry = None
    return found


def readable(mangled):
    """{mangled name: (source file or "", name without namespaces of ours and without parameters)}"""
    names = sorted(mangled)
    done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    result = {}
    for name, text in zip(names, done.stdout.splitlines()):
        source = UNNAMED.search(name)
        text = text.replace("(anonymous namespace)::", "").removeprefix("void ")
        for namespace in ("bellhop::kernels::", "bellhop::cuda::", "bellhop::"):
            text = text.replace(namespace, "")
        depth, end = 0, len(text)  # the parameters start at the first parenthesis outside of template arguments
        for i, c in enumerate(text):
            depth += (c == "<") - (c == ">")
            if c == "(" and depth == 0:
                end = i
                break
        text = re.sub(r"\((?:\w|:)+\)", "", text[:end])  # (int)8: the types of template values
        result[name] = (source[1] + ".cu" if source else "", text)
    return result


def table(found, names):
    generations = sorted({generation for _, generation in found}, key=lambda g: (int(re.match(r"\d+", g)[0]), g))
    cells = {}
    for (mangled, generation), (registers, shared, stores, loads) in found.items():
        spills = f", spills {stores} / {loads}" if stores or loads else ""
        cells.setdefault(names[mangled], {})[generation] = f"{registers}, {shared}{spills}"
    lines = ["| source | kernel | " + " | ".join(f"sm_{g}: registers, shared" for g in generations) + " |",
             "|---|---|" + "---|" * len(generations)]
    for (source, kernel), row in sorted(cells.items()):
        lines.append(f"| {source} | `{kernel}` | " + " | ".join(row.get(g, "–") for g in generations) + " |")
    return "\n".join(lines) + "\n"


def check(found, names):
    problems, named, spilling = [], set(), set()
    for (mangled, generation), (_, _, stores, loads) in sorted(found.items()):
        source, kernel = names[mangled]
        known = [name for name in MAY_SPILL if kernel.startswith(name)]
        named.update(known)
        if not stores and not loads:
            continue
        spilling.update(known)
        if not known:
            problems.append(f"{source} {kernel}, sm_{generation}: {stores} bytes of spill stores, {loads} of loads")
    problems += [f"{name} does not spill any more: take it out of MAY_SPILL" for name in sorted(named - spilling)]
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, help="output of a build with BELLHOP_CUDA_RESOURCE_USAGE=ON")
    parser.add_argument("--table", type=Path, metavar="FILE", help="where to write the table (markdown)")
    parser.add_argument("--check", action="store_true", help="fail when a kernel spills that is not in MAY_SPILL")
    options = parser.parse_args()
    try:
        found = parse(options.log.read_text(errors="replace").splitlines())
    except OSError as error:
        fail(f"{options.log}: {error.strerror}")
    if not found:
        fail(f"{options.log} names no kernel: build from nothing with -DBELLHOP_CUDA_RESOURCE_USAGE=ON into this log")
    names = readable({mangled for mangled, _ in found})
    if options.table:
        options.table.write_text(HEAD + table(found, names), encoding="utf-8")
    if options.check and (problems := check(found, names)):
        fail("kernels spill:\n  " + "\n  ".join(problems))
    print(f"{len(found)} kernels of {len({g for _, g in found})} GPU generations")


if __name__ == "__main__":
    main()
