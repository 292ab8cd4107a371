"""The program behind bench/report, which sets up what it needs.

    report.py measure [--only PART,...] [--into FOLDER]   measures, and keeps the figures as JSON
    report.py draw [--into FOLDER]                        draws plots and writes pages
    report.py check                                       compares pages, plots and commits with the data

With --into, everything goes into another folder, after one short round for each part. Its figures mean nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reporting import data, names, pages, stale

ROOT = Path(__file__).resolve().parent.parent
PERFORMANCE = ROOT / "docs/performance"


def measure(folder: Path, only: list[str], trial: bool) -> int:
    from reporting import measure as run

    if unknown := sorted(set(only) - set(run.MEASURES)):
        sys.exit(f"bench/report: there is no part {', '.join(unknown)}; the parts are {', '.join(run.MEASURES)}")
    if not trial and (changed := run.changed_files()):
        sys.exit(f"bench/report: commit these files first, so that the commit says what was measured:\n{changed}")
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for name in only or run.MEASURES:
        (folder / f"data/{name}.json").write_text(data.to_text(run.measure(name, trial)))
    return 0


def draw(folder: Path) -> int:
    from reporting import plots

    parts = data.read_all(folder / "data")
    for name, part in names.PLOTS.items():
        drawing = plots.draw(name, parts[part])
        (folder / name).write_text(stale.marked(drawing, (folder / f"data/{part}.json").read_text()))
    for name, text in pages.pages(parts).items():
        (folder / name).write_text(text)
    readme = ROOT / "README.md"
    target = readme if folder == PERFORMANCE else folder / "README.md"
    target.write_text(pages.with_section(readme.read_text(), parts["allreduce"]))
    return 0


def check() -> int:
    found = list(stale.faults(ROOT, names.PLOTS))
    print("\n".join([*found, f"performance: {'ok' if not found else f'{len(found)} faults'}"]))
    return 1 if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["measure", "draw", "check"])
    parser.add_argument("--only", default="", help="parts to measure, comma-separated")
    parser.add_argument("--into", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if options.action == "check":
        return check()
    folder = options.into or PERFORMANCE
    if options.action == "draw":
        return draw(folder)
    return measure(folder, [name for name in options.only.split(",") if name], options.into is not None)


if __name__ == "__main__":
    sys.exit(main())
