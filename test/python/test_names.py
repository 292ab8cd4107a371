"""A script for Horovod finds all names, with Horovod's arguments and defaults."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import distrun
import distrun.numpy
import distrun.torch as hvd
from distrun._abi import ReduceOp
from distrun._horovod import Operations

from . import conftest

REDUCTION = "average=None name=None op=None prescale_factor=1.0 postscale_factor=1.0 process_set="
COMPRESSED = "average=None name=None compression= op=None prescale_factor=1.0 postscale_factor=1.0 process_set="
ROOT = "root_rank name=None process_set="
SIGNATURES = {
    "allreduce": f"tensor {COMPRESSED}",
    "allreduce_async": f"tensor {REDUCTION}",
    "allreduce_": f"tensor {REDUCTION}",
    "allreduce_async_": f"tensor {REDUCTION}",
    "grouped_allreduce": f"tensors {COMPRESSED}",
    "grouped_allreduce_async": f"tensors {REDUCTION}",
    "grouped_allreduce_": f"tensors {REDUCTION}",
    "grouped_allreduce_async_": f"tensors {REDUCTION}",
    "allgather": "tensor name=None process_set=",
    "allgather_async": "tensor name=None process_set=",
    "grouped_allgather": "tensors name=None process_set=",
    "grouped_allgather_async": "tensors name=None process_set=",
    "broadcast": f"tensor {ROOT}",
    "broadcast_async": f"tensor {ROOT}",
    "broadcast_": f"tensor {ROOT}",
    "broadcast_async_": f"tensor {ROOT}",
    "barrier": "process_set=",
    "poll": "handle",
    "synchronize": "handle",
    "alltoall": "tensor splits=None name=None process_set=",
    "alltoall_async": "tensor splits=None name=None process_set=",
    "reducescatter": "tensor name=None compression= op= process_set= prescale_factor=1.0 postscale_factor=1.0",
    "reducescatter_async": "tensor name=None op= process_set= prescale_factor=1.0 postscale_factor=1.0",
    "grouped_reducescatter": "tensors name=None compression= op= process_set= prescale_factor=1.0 postscale_factor=1.0",
    "grouped_reducescatter_async": "tensors name=None op= process_set= prescale_factor=1.0 postscale_factor=1.0",
    "join": "device=-1",
    "broadcast_object": "obj root_rank=0 name=None process_set=",
    "allgather_object": "obj name=None",
    "broadcast_parameters": "params root_rank",
    "init": "comm=None process_sets=None",
    "start_timeline": "file_path mark_cycles=False",
    "stop_timeline": "",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
}
TORCH_SIGNATURES = {
    "sparse_allreduce_async": "tensor name op process_set=",
    "broadcast_optimizer_state": "optimizer root_rank model=None",
    "SyncBatchNorm": "num_features eps=1e-05 momentum=0.1 affine=True track_running_stats=True",
    "DistributedOptimizer": "optimizer named_parameters=None compression= backward_passes_per_step=1 op= "
    "gradient_predivide_factor=1.0 num_groups=0 groups=None sparse_as_dense=False process_set=",
}
# Horovod's arguments in its order, with their defaults ("=" without a value: any default). These are for front ends
# whose frameworks .venv lacks, so they are read from the sources. keras_fit.py checks Keras's.
TF_SCALES = "prescale_factor=1.0 postscale_factor=1.0"
TF_SCOPE = "name=None ignore_name_scope=False process_set="
TF_DEVICES = "device_dense='' device_sparse=''"
TF_GROUP = f"tensors average=None {TF_DEVICES} compression= op=None {TF_SCALES} process_set="
TF_GRADIENTS = f"{TF_DEVICES} compression= sparse_as_dense=False"
TF_LOCAL = "gradient_predivide_factor=1.0 num_groups=0 groups=None process_set="
MX_NAMED = "name=None priority=0"
MX_REDUCTION = f"average=None {MX_NAMED} {TF_SCALES} process_set= op=None"
SOURCES = {
    "tensorflow": {
        "allreduce": f"tensor average=None {TF_DEVICES} compression= op=None {TF_SCALES} name=None process_set= "
        "ignore_name_scope=False",
        "grouped_allreduce": f"{TF_GROUP} ignore_name_scope=False name=None",
        "allgather": f"tensor {TF_SCOPE}",
        "grouped_allgather": f"tensors {TF_SCOPE}",
        "broadcast": f"tensor root_rank {TF_SCOPE}",
        "broadcast_": "variables root_rank name=None process_set=",
        "alltoall": f"tensor splits=None {TF_SCOPE}",
        "reducescatter": "tensor device_dense='' compression= op= name=None process_set= ignore_name_scope=False "
        f"{TF_SCALES}",
        "grouped_reducescatter": f"tensors device_dense='' compression= op= process_set= {TF_SCALES}",
        "join": "",
        "broadcast_variables": "variables root_rank process_set= inplace=False",
        "broadcast_global_variables": "root_rank",
        "BroadcastGlobalVariablesHook": "root_rank device=''",
        "broadcast_object": "obj root_rank=0 session=None name=None process_set=",
        "broadcast_object_fn": "root_rank=0 session=None name=None process_set=",
        "allgather_object": "obj session=None name=None process_set=",
        "rank_op": "name=None",
        "size_op": "process_set_id=0 name=None",
        "local_rank_op": "name=None",
        "local_size_op": "name=None",
        "process_set_included_op": "process_set_id=0 name=None",
        "SyncBatchNormalization": "fused=False",
        "DistributedOptimizer": f"optimizer name=None use_locking=False {TF_GRADIENTS} backward_passes_per_step=1 op= "
        "gradient_predivide_factor=1.0 average_aggregated_gradients=False num_groups=0 groups=None process_set= "
        "scale_local_gradients=True",
        "DistributedGradientTape": f"gradtape {TF_GRADIENTS} op= {TF_LOCAL} scale_local_gradients=True",
        "PartialDistributedGradientTape": f"gradtape {TF_GRADIENTS} op= {TF_LOCAL} local_layers=None "
        "scale_local_gradients=True",
    },
    "mxnet": {
        **dict.fromkeys(("allreduce", "allreduce_"), f"tensor {MX_REDUCTION}"),
        **dict.fromkeys(("grouped_allreduce", "grouped_allreduce_"), f"tensors {MX_REDUCTION}"),
        "allgather": f"tensor {MX_NAMED} process_set=",
        "grouped_allgather": f"tensors {MX_NAMED} process_set=",
        "broadcast": f"tensor root_rank {MX_NAMED} process_set=",
        "broadcast_": f"tensor root_rank {MX_NAMED} process_set=",
        "alltoall": f"tensor splits=None {MX_NAMED} process_set=",
        "reducescatter": f"tensor op= {MX_NAMED} process_set= {TF_SCALES}",
        "grouped_reducescatter": f"tensors op= {MX_NAMED} process_set= {TF_SCALES}",
        "DistributedOptimizer": "optimizer gradient_predivide_factor=1.0 num_groups=0 process_set=",
        "DistributedTrainer": "params optimizer optimizer_params=None compression= gradient_predivide_factor=1.0 "
        "prefix=None num_groups=0 process_set=",
        "broadcast_parameters": "params root_rank=0 prefix=None",
    },
}
QUERIES = [
    "shutdown",
    "is_initialized",
    "size",
    "local_size",
    "cross_size",
    "rank",
    "local_rank",
    "cross_rank",
    "is_homogeneous",
    "mpi_threads_supported",
    "mpi_enabled",
    "mpi_built",
    "gloo_enabled",
    "gloo_built",
    "nccl_built",
    "ddl_built",
    "ccl_built",
    "cuda_built",
    "rocm_built",
    "sycl_built",
]
OTHERS = [
    "ProcessSet",
    "global_process_set",
    "Average",
    "Sum",
    "Adasum",
    "Min",
    "Max",
    "Product",
    "HorovodInternalError",
    "Compression",
    "elastic",
]


def assert_signature(function: Any, expected: str) -> None:
    parameters = list(inspect.signature(function).parameters.values())
    for wanted, found in zip(expected.split(), parameters, strict=False):
        name, has_default, default = wanted.partition("=")
        assert found.name == name, function
        assert (found.default is not inspect.Parameter.empty) == bool(has_default), (function, name)
        if default:
            assert repr(found.default) == default, (function, name)
    rest = parameters[len(expected.split()) :]
    assert len(parameters) >= len(expected.split())
    assert all(parameter.default is not inspect.Parameter.empty for parameter in rest), function


@pytest.mark.parametrize("module", [hvd, distrun.numpy], ids=["torch", "numpy"])
def test_signatures(module: Any) -> None:
    for name, expected in SIGNATURES.items():
        assert_signature(getattr(module, name), expected)
    for name in QUERIES:
        assert_signature(getattr(module, name), "")


def signatures_in(folder: Path) -> dict[str, list[str]]:
    """Signatures of the functions and constructors in a front end's modules, as lists of "name" or "name=default"."""
    found = {}
    for file in sorted(folder.glob("*.py")):  # private modules first, so that a public one overrides equal names
        for node in ast.parse(file.read_text()).body:
            inside = node.body if isinstance(node, ast.ClassDef) else [node]
            for made in inside:
                if isinstance(made, ast.FunctionDef) and (made is node or made.name == "__init__"):
                    names = arguments_of(made)
                    found[node.name] = names if made is node else names[1:]
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("public("):
                found[ast.unparse(node.targets[0])] = signature_of_public(node.value, found)
    return found


def signature_of_public(made: ast.expr, found: dict[str, list[str]]) -> list[str]:
    """The signature of public(object.method, options): the method's tensors and the arguments of the options."""
    assert isinstance(made, ast.Call)
    method, options = (ast.unparse(argument).rpartition(".")[2] for argument in made.args)
    tensors = list(inspect.signature(getattr(Operations, method)).parameters)[1]
    return [tensors, *found[options]]


def arguments_of(function: ast.FunctionDef) -> list[str]:
    names = [argument.arg for argument in function.args.args]
    defaults = [f"={ast.unparse(one)}" for one in function.args.defaults]
    required = [""] * (len(names) - len(defaults))
    return [name + default for name, default in zip(names, required + defaults, strict=True)]


@pytest.mark.parametrize("framework", SOURCES)
def test_signatures_of_frameworks_that_are_not_here(framework: str) -> None:
    folder = conftest.ROOT / "frameworks" / framework
    found, init = signatures_in(folder), (folder / "__init__.py").read_text()
    for name, expected in SOURCES[framework].items():
        wanted = expected.split()
        any_default = [one.partition("=")[0] + "=" for one in found[name]]
        for one, theirs, without in zip(wanted, found[name], any_default, strict=False):
            assert one == (without if one.endswith("=") and "=" in theirs else theirs), (name, found[name])
        assert len(found[name]) >= len(wanted), name
        assert all("=" in one for one in found[name][len(wanted) :]), name
        assert f'"{name}"' in init, name


def test_torch_signatures() -> None:
    for name, expected in TORCH_SIGNATURES.items():
        assert_signature(getattr(hvd, name), expected)
    for name in ("none", "fp16", "bf16"):
        assert callable(getattr(hvd.Compression, name).compress)


@pytest.mark.parametrize("module", [hvd, distrun.numpy], ids=["torch", "numpy"])
def test_all_names_are_there(module: Any) -> None:
    names = [*SIGNATURES, *QUERIES, *OTHERS]
    assert [name for name in names if not hasattr(module, name)] == []
    assert set(module.__all__) >= set(names)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_reductions_have_horovods_numbers() -> None:
    wanted = ["Average", "Sum", "Adasum", "Min", "Max", "Product"]
    assert [int(getattr(hvd, name)) for name in wanted] == list(range(6))
    header = (conftest.ROOT / "runtime/api/include/distrun/distrun.h").read_text()
    native = {name: int(number) for name, number in re.findall(r"DISTRUN_(SUM|AVERAGE|MIN|MAX|PRODUCT) = (\d)", header)}
    assert native == {op.name: op.native for op in ReduceOp if op is not ReduceOp.ADASUM}
    assert all(ReduceOp.of_native(op.native) is op for op in ReduceOp)


def test_what_is_missing_says_what_to_do() -> None:
    with pytest.raises(NotImplementedError, match="checkpoint"):
        hvd.elastic.TorchState()
    with pytest.raises(AttributeError, match=r"no attribute 'run': .* `distrun -np N"):
        _ = distrun.run


def test_horovods_modules() -> None:
    assert importlib.import_module("distrun.torch.mpi_ops") is hvd.mpi_ops is hvd
    elastic = importlib.import_module("distrun.torch.elastic")
    with pytest.raises(NotImplementedError, match="checkpoint"):
        _ = elastic.TorchState
    assert hvd.elastic is elastic and not hasattr(elastic, "__wrapped__")


def test_exceptions() -> None:
    for name in ("RankLost", "RankLeft", "Mismatch", "DuplicateName", "Timeout", "NotInitialized"):
        kind = getattr(distrun, name)
        assert issubclass(kind, distrun.DistrunError) and issubclass(kind, RuntimeError)
        error = kind("text", tensor="t", ranks=[1], host="h", cause="c", usable=False)
        assert (str(error), error.tensor, error.ranks, error.host, error.cause) == ("text", "t", (1,), "h", "c")
        assert not error.usable
    assert issubclass(distrun.RankLost, distrun.HorovodInternalError)
    assert not issubclass(distrun.Mismatch, distrun.HorovodInternalError)
    assert not issubclass(distrun.Timeout, distrun.HorovodInternalError)
    assert issubclass(distrun.NotInitialized, ValueError) and issubclass(distrun.DuplicateName, ValueError)


@pytest.mark.parametrize("code", [code for code in distrun.errors.Code if code])
def test_what_has_ended_the_job_is_caught_as_horovods_error_too(code: int) -> None:
    struct = distrun.errors.ErrorStruct(code=code, message=b"text", usable=1)
    kind = type(distrun.errors.from_struct(struct))
    struct.usable = 0
    ended = distrun.errors.from_struct(struct)
    later = kind("text", code=ended.code)
    distrun.errors.end_job(later)
    for error in (ended, later, pickle.loads(pickle.dumps(ended))):
        assert isinstance(error, kind) and isinstance(error, distrun.HorovodInternalError)
        assert (str(error), error.usable, error.code) == ("text", False, code)
        assert type(error) is type(ended)


@pytest.mark.parametrize("module, framework", [("distrun", "numpy"), ("distrun", "torch"), ("distrun.numpy", "torch")])
def test_no_framework_is_imported_where_it_is_not_used(module: str, framework: str) -> None:
    code = f"import sys, {module}; sys.exit({framework!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0
