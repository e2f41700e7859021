#!/usr/bin/env python3
"""Registers, static shared memory and spills of every GPU kernel, from what ptxas prints.

    cmake --preset cuda -DBELLHOP_CUDA_RESOURCE_USAGE=ON
    cmake --build --preset cuda 2>&1 | tee -a build/cuda/ptxas.log
    tools/kernel_resources.py build/cuda/ptxas.log --table docs/gpu_kernels.md   # writes the table
    tools/kernel_resources.py build/cuda/ptxas.log --check docs/gpu_kernels.md   # compares with it

A log may hold several builds: the last words about a kernel count. The check fails for a kernel that the table does not
have and for one that spills more than the table says; generations that the table does not have are not compared.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

HEAD = """# GPU kernels

What the compiler gives each kernel: registers of a thread, bytes of static shared memory of a block (dynamic shared
memory is asked for at the launch and not in it), and of a thread that spills the bytes of its spill stores and loads.
Written by `tools/kernel_resources.py`; CI fails when a kernel is not in this table or spills more than it says.

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


def known_spills(text):
    """{(source, kernel, generation): (spill stores, spill loads)} of a table that table() wrote"""
    spills, generations = {}, None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| source |"):
            generations = [cell.split(":")[0].removeprefix("sm_") for cell in cells[2:]]
        elif generations and line.startswith("| ") and len(cells) == 2 + len(generations):
            for generation, cell in zip(generations, cells[2:]):
                if cell != "–":
                    match = re.search(r"spills (\d+) / (\d+)", cell)
                    entry = (cells[0], cells[1].strip("`"), generation)
                    spills[entry] = (int(match[1]), int(match[2])) if match else (0, 0)
    return spills


def check(found, names, known):
    problems, generations = [], {generation for _, _, generation in known}
    for (mangled, generation), (_, _, stores, loads) in sorted(found.items()):
        entry = (*names[mangled], generation)
        if generation not in generations:
            continue
        label = f"{entry[1]}{f' ({entry[0]})' if entry[0] else ''}, sm_{generation}"
        if entry not in known:
            problems.append(f"{label}: not in the table")
        elif stores > known[entry][0] or loads > known[entry][1]:
            problems.append(f"{label}: {stores} / {loads} bytes of spill stores / loads, {known[entry][0]} / "
                            f"{known[entry][1]} in the table")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, help="output of a build with BELLHOP_CUDA_RESOURCE_USAGE=ON")
    parser.add_argument("--table", type=Path, metavar="FILE", help="where to write the table (markdown)")
    parser.add_argument("--check", type=Path, metavar="FILE", help="the table to compare with")
    options = parser.parse_args()
    try:
        found = parse(options.log.read_text(errors="replace").splitlines())
        known = known_spills(options.check.read_text(encoding="utf-8")) if options.check else {}
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    if not found:
        fail(f"{options.log} names no kernel: build from nothing with -DBELLHOP_CUDA_RESOURCE_USAGE=ON into this log")
    names = readable({mangled for mangled, _ in found})
    if options.table:
        options.table.write_text(HEAD + table(found, names), encoding="utf-8")
    if options.check and (problems := check(found, names, known)):
        fail(f"compared with {options.check} (--table writes it anew):\n  " + "\n  ".join(problems))
    print(f"{len(found)} kernels of {len({g for _, g in found})} GPU generations")


if __name__ == "__main__":
    main()
