"""Clusters in a box for tests. On a machine that cannot have them, the tests are skipped with the reason."""

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

# These take minutes in all. `scripts/test --quick` leaves them out.
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
    """make_cluster(3, shm_bytes=65536, ...) returns a running cluster, which ends with the test."""
    with ExitStack() as stack:
        yield lambda count, **options: started(stack, count, **options)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all hosts of the common cluster share."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def shared_path(shared_folder: Path) -> Path:
    """A folder for one test, which all hosts of `cluster` see."""
    return Path(tempfile.mkdtemp(dir=shared_folder))


@pytest.fixture(scope="session")
def common_cluster(shared_folder: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield started(stack, 4, share=[shared_folder, *package_folders()])


@pytest.fixture
def cluster(common_cluster: Cluster) -> Iterator[Cluster]:
    """Four hosts that tests share. A test may cut their network; the fixture heals it. To kill a host, use a cluster
    made by the test itself. A test fails if it leaves processes running."""
    yield common_cluster
    for host in [*common_cluster.hosts, common_cluster.head]:
        host.heal()
        strays = host.strays()
        for process in strays:
            host.run(["kill", "-9", str(process.pid)])
        assert not strays, f"left on {host.name}: {strays}"
