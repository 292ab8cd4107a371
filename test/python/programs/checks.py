"""Runs a program's checks on every rank, one after the other, and prints which one failed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import distrun


def run(module: dict[str, object]) -> None:
    """Runs the module's functions named check_* in order, or those that the command line names. An exception ends the
    job, as in any program."""
    checks = {name: function for name, function in module.items() if name.startswith("check_") and callable(function)}
    only = sys.argv[1:]
    unknown = [name for name in only if name not in checks]
    if unknown or not checks:
        raise SystemExit(f"there is no {', '.join(unknown) or 'check'}; the checks here are {', '.join(checks)}")
    distrun.init()
    for name, function in checks.items():
        if not only or name in only:
            print(f"rank {distrun.rank()}: {name}", flush=True)
            function()
    distrun.shutdown()
    print("all checks passed", flush=True)


@contextmanager
def raises(kind: type[BaseException] | tuple[type[BaseException], ...], *texts: str) -> Iterator[list[BaseException]]:
    """The block must raise `kind` with all of `texts` in its message. Yields a list that then holds the exception."""
    caught: list[BaseException] = []
    try:
        yield caught
    except kind as error:
        for text in texts:
            assert text in str(error), f"{text!r} is not in {error}"
        caught.append(error)
    else:
        raise AssertionError(f"{kind} was not raised")


def wait_for(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Waits for a result of another rank without using the runtime."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.01)


def marker(name: str) -> Path:
    """A file in the folder of the program's first argument. Ranks use it to signal each other."""
    return Path(sys.argv[1]) / name


def come(name: str, rank: int) -> None:
    """Marks that this rank has reached the place `name`. wait_for_all() sees this without the runtime."""
    marker(f"{name}{rank}").touch()


def wait_for_all(name: str, size: int) -> None:
    """Waits until all ranks have reached this place. An operation that is complete on one rank may be in flight on
    another."""
    wait_for(lambda: all(marker(f"{name}{rank}").exists() for rank in range(size)), f"all ranks at {name}", 50.0)
