"""Lines of the package that tests execute: ``python -m tests.mutations.coverage FOLDER``.

FOLDER is one that ``reach`` wrote. What only other processes execute counts as not executed.
"""

import argparse

from tests.mutations.reach import PACKAGE, Reach


def lines_of(code):
    """The lines with code of a module and all its functions."""
    found = {line for *_, line in code.co_lines() if line}
    return found.union(*(lines_of(x) for x in code.co_consts if hasattr(x, "co_lines")))


def table(reach):
    """By folder: lines with code, and those that the quick tier and both tiers execute."""
    rows = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        lines = lines_of(compile(path.read_text(encoding="utf-8"), file, "exec"))
        counts = (lines, lines & reach.executed(file, quick=True), lines & reach.executed(file))
        row = rows.setdefault(file.partition("/")[0] if "/" in file else "eagerflow", [0, 0, 0])
        row[:] = [total + len(own) for total, own in zip(row, counts, strict=True)]
    rows["all"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    return rows


def main(folder):
    print("| folder | lines | quick tier | both |\n|---|---|---|---|")
    for room, (lines, quick, both) in table(Reach(folder)).items():
        print(f"| {room} | {lines} | {quick / lines:.1%} | {both / lines:.1%} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.mutations.coverage", description=__doc__)
    parser.add_argument("folder")
    main(parser.parse_args().folder)
