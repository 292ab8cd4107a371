"""bench/report: figures from a file, the plots and the pages that follow from them, and the check of both."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from .conftest import ROOT

MODULES = ("data", "names", "pages", "stale", "plots", "measure")
MODELS = {"torch": ("MLP", "ResNet-18", "transformer"), "tensorflow": ("MLP", "CNN")}
TRAINERS = {
    "torch": ("optimizer", "ddp distrun", "ddp gloo", "alone", "in step", "ddp nothing"),
    "tensorflow": ("distrun", "mwms", "alone", "in step"),
}


@pytest.fixture(scope="module")
def report() -> Iterator[SimpleNamespace]:
    """The modules of bench/reporting, by name."""
    before = set(sys.modules)
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        import importlib

        found: dict[str, ModuleType] = {name: importlib.import_module(f"reporting.{name}") for name in MODULES}
        found["peers"] = importlib.import_module("peers")
        yield SimpleNamespace(**found)
    finally:
        sys.path.remove(str(ROOT / "bench"))
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in ("reporting", "peers", "compare"):
                del sys.modules[name]


def values(report: SimpleNamespace) -> dict[str, Any]:
    """Figures of each part, invented: two rounds, all contenders."""
    names = report.names
    sizes = [names.in_place(size) for size in names.SIZES]
    # distrun takes 1 for each size, Gloo 4, and MPICH 0.5 below 1 MiB and 2 from there on.
    mpich = {case: 0.5 if size < names.MIB else 2.0 for size, case in zip(names.SIZES, sizes, strict=True)}
    by_size = {
        "distrun": {key: [1.0, 1.0] for key in sizes} | {names.MODEL: [0.01, 0.02]},
        "mpich 5": {case: [value, 2 * value] for case, value in mpich.items()} | {names.MODEL: [0.03, 0.03]},
        "gloo": {key: [4.0, 4.0] for key in sizes},
        "torch ddp": {names.MODEL: [0.05, 0.06]},
        "sweep": {names.in_place(names.MODEL_BYTES): [0.004, 0.004], sizes[-1]: [0.002, 0.002]},
    }
    training = {
        part: {who: {key: [100.0 + len(who), 120.0] for key in MODELS[part]} for who in TRAINERS[part]}
        for part in MODELS
    }
    between = [names.in_place(size) for size in names.SIZES_BETWEEN_HOSTS]
    hosts = {who: {key: [0.001 * len(who), 0.02] for key in between} for who in report.pages.HOSTS}
    lines = [f"{count} hosts, {line}" for count in (1, 4) for line in ("first line", "last line", "end")]
    start = {who: {key: [0.1, 0.2] for key in lines} for who in report.pages.STARTERS}
    start["distrun"]["4 hosts, end after a failure"] = [0.05, 0.05]
    start["launcher and agent"] = {"4 hosts, MiB": [12.0, 12.5]}
    start[report.pages.LOCAL] = {"local": [0.03, 0.03]}
    idle = {who: {names.IDLE: [float(4 * len(who))] * 2, names.IDLE_CPU: [1e-5, 2e-5]} for who in ("distrun", "gloo")}
    return {"allreduce": by_size, **training, "hosts": hosts, "start": start, "idle": idle}


@pytest.fixture
def parts(report: SimpleNamespace) -> dict[str, Any]:
    machine = {"processor": "a processor", "cores": "2", "memory": "16 GiB", "system": "Debian"}
    versions = {"MPICH from PyPI": "5.0.2", "Gloo from Debian": "0.0"}
    about = report.data.About("0" * 40, "2026-01-02", 2, "bench/report", machine, versions)
    return {name: report.data.Part(name, about, found) for name, found in values(report).items()}


def test_rounds_become_medians_a_range_and_ratios_of_the_medians(report: SimpleNamespace) -> None:
    rounds = [
        {("a", "x"): 1.00004, ("b", "x"): 2.0, ("c", "x"): 3.0, ("a", "y"): 1.0},
        {("a", "x"): 10.0, ("b", "x"): 30.0, ("c", "x"): 15.0},
        {("a", "x"): 4.0, ("b", "x"): 4.0, ("c", "x"): 9.0},
    ]
    found = report.data.collect(rounds)
    assert found == {"a": {"x": [1.0, 10.0, 4.0]}, "b": {"x": [2.0, 30.0, 4.0]}, "c": {"x": [3.0, 15.0, 9.0]}}
    part = report.data.Part("part", report.data.About("", "", 3, ""), found)
    assert (part.median("a", "x"), part.lowest("a", "x"), part.highest("a", "x")) == (4.0, 1.0, 10.0)
    assert part.ratio("a", ["b", "c", "missing"], "x") == 1.0  # 4 and 9, divided by 4


def test_a_part_is_the_same_after_it_was_kept(report: SimpleNamespace, parts: dict[str, Any], tmp_path: Path) -> None:
    for name, part in parts.items():
        (tmp_path / f"{name}.json").write_text(report.data.to_text(part))
    assert report.data.read_all(tmp_path) == parts


def test_lines_of_other_benchmarks_are_read(report: SimpleNamespace) -> None:
    assert report.measure.rows_of({"distrun, 2 a host: 4 B in place": 1.0}) == {
        ("distrun, 2 a host", "4 B in place"): 1.0
    }
    row = {
        "16 hosts: mpirun, last line": 1.0,
        "local: distrun -np 2 true": 2.0,
        "16 hosts: launcher and agent, MiB": 3.0,
    }
    assert report.measure.start_row(row) == {
        ("mpirun", "16 hosts, last line"): 1.0,
        ("distrun -np 2 true", "local"): 2.0,
        ("launcher and agent", "16 hosts, MiB"): 3.0,
    }


def test_rounds_end_when_the_next_one_would_not_fit(report: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(report.measure, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def one_round() -> dict[Any, float]:
        clock[0] += 10.0
        return {}

    effort = report.measure.Effort(minutes=1.0, seconds=0.1)
    assert len(report.measure.rounds_within("part", effort, one_round)) == 6
    # Even if one round takes longer than all may take.
    short = report.measure.Effort(minutes=0.01, seconds=0.1)
    assert len(report.measure.rounds_within("part", short, one_round)) == report.measure.LEAST_ROUNDS


def test_all_parts_take_less_than_a_quarter_of_an_hour(report: SimpleNamespace) -> None:
    assert sum(effort.minutes for effort in report.measure.EFFORTS.values()) < 15
    assert set(report.measure.EFFORTS) == set(report.measure.MEASURES) == set(report.names.PLOTS.values())


def test_numbers_have_three_digits_and_ratios_two(report: SimpleNamespace) -> None:
    names = report.names
    assert [names.time(seconds) for seconds in (0.0, 3.2e-7, 0.0123, 1.2345)] == ["0 ns", "320 ns", "12.3 ms", "1.23 s"]
    assert [names.digits(value) for value in (0, 0.0123, 999.9, 1234)] == ["0", "0.0123", "1,000", "1,230"]
    assert [names.times(value) for value in (0.612, 1.44, 9.96, 23.4)] == ["0.61", "1.4", "10", "23"]
    assert [names.size(size) for size in (4, 1024, 65536, 1 << 22)] == ["4 B", "1 KiB", "64 KiB", "4 MiB"]


def test_the_page_says_at_which_sizes_distrun_is_faster_and_at_which_it_is_slower(
    report: SimpleNamespace, parts: dict[str, Any]
) -> None:
    part = parts["allreduce"]
    # The median of MPICH is 0.75 below 1 MiB, and 3 from there on.
    assert report.pages.faster(part) == (
        "From 1 MiB on, an all-reduce is 3.0 times as fast as the best of MPICH and Gloo."
    )
    assert report.pages.slower(part).replace("\n", " ") == (
        "Small messages take longer than with the best of them: 1.3 times at 4 B, 1.3 times at 1 KiB, 1.3 times at 16"
        " KiB, 1.3 times at 64 KiB and 1.3 times at 256 KiB. This is known work."
    )
    assert report.pages.slower_in_short(part).replace("\n", " ") == (
        "Small messages are slower, which is known work: 1.3 times the time at 4 B, and 1.3 times from 1 KiB to 256"
        " KiB."
    )
    part.values["mpich 5"] = {key: [0.5, 0.5] for key in part.values["mpich 5"]}
    assert report.pages.faster(part) == "At 64 MiB, another library is faster than distrun."
    assert "2.0 times at 64 MiB" in report.pages.slower(part).replace("\n", " ")
    del part.values["mpich 5"]
    assert report.pages.faster(part) == ("From 4 B on, an all-reduce is 4.0 times as fast as the best of Gloo.")
    assert report.pages.slower(part) == "At no size is another library faster."
    assert report.pages.slower_in_short(part) == report.pages.slower(part)


def test_every_page_and_the_section_of_readme_follow_from_the_figures(
    report: SimpleNamespace, parts: dict[str, Any]
) -> None:
    pages = report.pages.pages(parts)
    assert "| ResNet-18 | DDP on gloo | 114 (108-120) | 1.0 |" in pages["training.md"]
    assert "| library | time |\n|---|---|\n| distrun | 15.0 (10.0-20.0) ms |" in pages["allreduce.md"]
    assert "| 4 B | 1.00 s | 750 ms | MPICH 5.0.2 | 0.75 |  |" in pages["allreduce.md"]
    assert "| all-reduce below 1 MiB | 1.3 times the time of the best other library |" in pages["index.md"]
    assert "| two hosts with one rank each, from 1 MiB to 64 MiB | 0.77 times" in pages["index.md"]
    assert "| two hosts with two ranks each, from 1 MiB to 64 MiB | 0.92 times" in pages["index.md"]
    assert "| an idle rank | 14.0 context switches per second |" in pages["index.md"]
    for name in report.names.PLOTS:
        assert sum(f"]({name})" in page for page in pages.values()) >= 1, name
    readme = report.pages.with_section("# x\n\n## How fast it is\n\nold\n\n## Next\n", parts["allreduce"])
    assert readme.startswith("# x\n\n## How fast it is\n\n![") and readme.endswith("\n\n## Next\n")
    assert "old" not in readme and "3.0 times as fast" in readme
    with pytest.raises(ValueError, match="has 0 sections"):
        report.pages.with_section("# x\n", parts["allreduce"])


def test_the_same_figures_give_the_same_plots_and_their_text_is_text(
    report: SimpleNamespace, parts: dict[str, Any]
) -> None:
    for name, part in report.names.PLOTS.items():
        drawing = report.plots.draw(name, parts[part])
        assert drawing == report.plots.draw(name, parts[part]), name
        assert "<text" in drawing and "distrun" in drawing, name
        assert "http://www.w3.org" in drawing and "@import" not in drawing, name
        assert "<dc:date>" not in drawing and "matplotlib.org" not in drawing.replace("Matplotlib v", ""), name
        assert 'style="fill: #ffffff"' in drawing, f"{name} has no background for a dark page"
    shown = report.plots.draw("allreduce-time.svg", parts["allreduce"])
    assert "MPICH 5.0.2" in shown and "one sweep of memory" in shown and "64 KiB" in shown
    parts["allreduce"].values["distrun"][report.names.in_place(4)] = [7.0, 8.0]
    assert report.plots.draw("allreduce-time.svg", parts["allreduce"]) != shown


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, text: str) -> str:
    (folder / "file").write_text(text)
    git(folder, "add", "file")
    git(folder, "commit", "-q", "-m", text)
    return git(folder, "rev-parse", "HEAD")


def test_a_commit_must_be_in_the_history_if_the_tree_has_it_all(report: SimpleNamespace, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    assert report.stale.is_ancestor(whole, "0" * 40), "a tree without git cannot tell"
    git(whole, "init", "-q", "-b", "main")
    first = commit(whole, "one")
    git(whole, "checkout", "-q", "-b", "side")
    side = commit(whole, "side")
    git(whole, "checkout", "-q", "main")
    last = commit(whole, "two")
    assert report.stale.is_ancestor(whole, first) and report.stale.is_ancestor(whole, last)
    assert not report.stale.is_ancestor(whole, side)
    assert not report.stale.is_ancestor(whole, "1" * 40)
    git(tmp_path, "clone", "-q", "--depth", "1", whole.as_uri(), "shallow")
    assert report.stale.is_ancestor(tmp_path / "shallow", first)


@pytest.fixture
def tree(report: SimpleNamespace, parts: dict[str, Any], tmp_path: Path) -> Path:
    """A tree whose pages, plots and README are of its figures."""
    folder = tmp_path / "docs/performance"
    (folder / "data").mkdir(parents=True)
    for name, part in parts.items():
        (folder / f"data/{name}.json").write_text(report.data.to_text(part))
    for name, text in report.pages.pages(parts).items():
        (folder / name).write_text(text)
    for name, part in report.names.PLOTS.items():
        drawing = f"<?xml?>\n<svg>{name}</svg>\n"
        (folder / name).write_text(report.stale.marked(drawing, (folder / f"data/{part}.json").read_text()))
    readme = report.pages.with_section(f"# x\n\n{report.pages.HEADING}\n\n## Next\n", parts["allreduce"])
    (tmp_path / "README.md").write_text(readme)
    return tmp_path


def faults(report: SimpleNamespace, tree: Path) -> list[str]:
    return list(report.stale.faults(tree, report.names.PLOTS))


def test_the_check_names_what_is_not_of_the_figures(report: SimpleNamespace, tree: Path) -> None:
    folder = tree / "docs/performance"
    assert faults(report, tree) == []
    for file, changed in ((folder / "start.md", "docs/performance/start.md"), (tree / "README.md", "README.md")):
        before = file.read_text()
        file.write_text(before.replace(" is ", " was "))
        (fault,) = faults(report, tree)
        assert fault.startswith(changed) and fault.endswith("run bench/report --draw")
        file.write_text(before)
    picture = folder / "idle.svg"
    picture.write_text(picture.read_text().replace("</svg>", " </svg>"))
    assert faults(report, tree) == [
        "docs/performance/idle.svg is not drawn from data/idle.json; run bench/report --draw"
    ]
    picture.unlink()
    assert len(faults(report, tree)) == 1


def test_the_check_finds_new_figures_without_new_pages_and_a_commit_from_elsewhere(
    report: SimpleNamespace, tree: Path
) -> None:
    file = tree / "docs/performance/data/idle.json"
    git(tree, "init", "-q", "-b", "main")
    known = commit(tree, "one")
    for part in file.parent.iterdir():
        part.write_text(part.read_text().replace("0" * 40, known))
    found = faults(report, tree)
    assert sum("svg" in fault for fault in found) == len(report.names.PLOTS) and "not an ancestor" not in str(found)
    file.write_text(file.read_text().replace(known, "1" * 40))
    assert faults(report, tree)[0] == (
        "docs/performance/data/idle.json: its commit 111111111111 is not an ancestor of HEAD"
    )


def test_the_check_names_parts_that_were_not_measured(report: SimpleNamespace, tree: Path) -> None:
    (tree / "docs/performance/data/hosts.json").unlink()
    assert faults(report, tree) == ["docs/performance/data has no hosts; run bench/report"]


def install_mpi(build: Path, name: str, launcher: str, version: str) -> None:
    (build / name / "bin").mkdir(parents=True)
    (build / name / "bin" / launcher).touch()
    (build / name / f"lib/python3.11/site-packages/{name.replace('-', '_')}-{version}.dist-info").mkdir(parents=True)


def test_each_mpi_of_pypi_runs_its_own_launcher_library_and_benchmark(report: SimpleNamespace, tmp_path: Path) -> None:
    install_mpi(tmp_path, "mpich", "mpiexec.hydra", "5.0.2")
    install_mpi(tmp_path, "impi-rt", "mpiexec.hydra", "2021.18.1")
    found, missing = report.peers.from_pypi(lambda name: f"/build/{name}", tmp_path)
    assert [mpi.who for mpi in found] == ["mpich 5", "intel mpi"] and missing[0].startswith("openmpi 5 is not compared")
    for mpi, folder, version in zip(found, ("mpich", "impi-rt"), ("5.0.2", "2021.18.1"), strict=True):
        assert mpi.start == (str(tmp_path / folder / "bin/mpiexec.hydra"), "-n")
        assert mpi.environment["LD_LIBRARY_PATH"] == str(tmp_path / folder / "lib")
        assert (mpi.version, mpi.benchmark) == (version, "/build/bench_mpi_mpich")
    assert len(report.peers.from_pypi(lambda name: None, tmp_path)[1]) == 3


def test_the_pinned_mpis_are_those_of_the_report(report: SimpleNamespace) -> None:
    pinned = (ROOT / "scripts/lib/common.sh").read_text()
    for package in report.peers.PACKAGES:
        assert f"{package.name}==" in pinned
    assert shutil.which("bash")
    said = subprocess.run([ROOT / "bench/report", "--nonsense"], capture_output=True, text=True)
    assert said.returncode == 1 and "unknown option --nonsense" in said.stderr
