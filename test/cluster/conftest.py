"""Clusters in a box for tests; a machine that cannot have them skips, with the reason."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from started_tests import pytest_runtest_logstart, use_default_signals  # noqa: F401  # a hook

from .jobs import package_folders
from .rig import Cluster, Unavailable

MakeCluster = Callable[..., Cluster]

use_default_signals()

# Minutes in all: what `scripts/test --quick` leaves out.
SLOW = ("killed_together", "mpi", "mpi_hydra", "mpi_mode", "other_launchers", "slurm", "ssh_faults", "start_tree")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent and item.path.stem.removeprefix("test_") in SLOW:
            item.add_marker("slow")


def started(stack: ExitStack, count: int, **options: Any) -> Cluster:
    try:
        return stack.enter_context(Cluster(count, **options))
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def make_cluster() -> Iterator[MakeCluster]:
    """make_cluster(3, shm_bytes=65536, ...): a running cluster, ended with the test."""
    with ExitStack() as stack:
        yield lambda count, **options: started(stack, count, **options)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same on all hosts of the common cluster."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def shared_path(shared_folder: Path) -> Path:
    """A folder of the test's own that all hosts of `cluster` see."""
    return Path(tempfile.mkdtemp(dir=shared_folder))


@pytest.fixture(scope="session")
def common_cluster(shared_folder: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield started(stack, 4, share=[shared_folder, *package_folders()])


@pytest.fixture
def cluster(common_cluster: Cluster) -> Iterator[Cluster]:
    """Four hosts that tests share. Cut them as you like, they are healed; to kill one, make your own cluster. What a
    test leaves running fails it."""
    yield common_cluster
    for host in [*common_cluster.hosts, common_cluster.head]:
        host.heal()
        strays = host.strays()
        for process in strays:
            host.run(["kill", "-9", str(process.pid)])
        assert not strays, f"left on {host.name}: {strays}"
