"""Groups and strategies that send tensors without distrun are refused with --encrypt and --checksum."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from distrun import _protected
from distrun.errors import Unsupported


@pytest.fixture(autouse=True)
def _two_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRUN_SIZE", "4")
    monkeypatch.setenv("DISTRUN_LOCAL_SIZE", "2")
    monkeypatch.setenv("DISTRUN_ENCRYPT", "true")


def test_the_option_counts_on_several_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _protected.asked() == "--encrypt"
    monkeypatch.setenv("DISTRUN_ENCRYPT", "off")
    assert _protected.asked() == ""
    monkeypatch.setenv("DISTRUN_CHECKSUM", "1")
    assert _protected.asked() == "--checksum"
    monkeypatch.setenv("DISTRUN_LOCAL_SIZE", "4")
    assert _protected.asked() == ""


def _c10d() -> Any:
    module: Any = ModuleType("distributed_c10d")
    module._new_process_group_helper = lambda size, rank, ranks, backend, store: backend
    _protected.protect_torch(module)
    _protected.protect_torch(module)  # a second call has no effect
    return module


@pytest.mark.parametrize("backend", ["gloo", "nccl", "undefined", "cpu:gloo,cuda:nccl", "cpu:distrun,cuda:nccl", "mpi"])
def test_groups_of_torchs_own_backends_are_refused(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make = _c10d()._new_process_group_helper
    with pytest.raises(Unsupported, match=r"--encrypt was given.*init_process_group\(\"distrun\"\)"):
        make(4, 0, [], backend, None)
    assert make(1, 0, [0], backend, None) == backend
    monkeypatch.setenv("DISTRUN_LOCAL_SIZE", "4")
    assert make(4, 0, [], backend, None) == backend


@pytest.mark.parametrize("backend", ["distrun", "cpu:distrun", "cpu:distrun,cuda:distrun"])
def test_groups_of_distrun_are_made(backend: str) -> None:
    assert _c10d()._new_process_group_helper(4, 0, [], backend, None) == backend


@pytest.mark.parametrize(
    ("module", "owner", "function"),
    [
        ("jax._src.distributed", "State", "initialize"),
        (
            "tensorflow.python.distribute.collective_all_reduce_strategy",
            "CollectiveAllReduceExtended",
            "_initialize_multi_worker",
        ),
        ("tensorflow.python.distribute.parameter_server_strategy_v2", "ParameterServerStrategyV2", "__init__"),
    ],
)
def test_what_other_frameworks_connect_is_refused(
    module: str, owner: str, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(owner, (), {function: lambda self: None})
    _protected.AMENDED[module](SimpleNamespace(**{owner: kind}))  # type: ignore[arg-type]
    call = getattr(kind, function)
    with pytest.raises(Unsupported, match="--encrypt was given"):
        call(object.__new__(kind))
    monkeypatch.setenv("DISTRUN_LOCAL_SIZE", "4")
    call(object.__new__(kind))


def test_install_patches_what_was_imported_before(monkeypatch: pytest.MonkeyPatch) -> None:
    name, patched = "a_framework_of_this_test", list[ModuleType]()
    monkeypatch.setattr(_protected, "AMENDED", {name: patched.append})
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(vars(_protected.install), "called", False)
    _protected.install()
    _protected.install()
    assert [module.__name__ for module in patched] == [name]


@pytest.mark.parametrize(("option", "loads"), [("DISTRUN_ENCRYPT", True), ("DISTRUN_CHECKSUM", True), ("ANY", False)])
def test_python_starts_with_the_protection_only_if_an_option_asks(option: str, loads: bool) -> None:
    environment = {"DISTRUN_SIZE": "4", "DISTRUN_LOCAL_SIZE": "2", option: "1"}
    found = "import sys; print([type(f).__module__ for f in sys.meta_path].count('distrun._amend'))"
    done = subprocess.run([sys.executable, "-I", "-c", found], env=environment, capture_output=True, text=True)
    assert (done.stdout.strip() != "0") == loads, done.stderr
    assert done.stderr == ""
