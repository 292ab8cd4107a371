"""`initialize_distributed()` in place of `jax.distributed.initialize()`."""

from __future__ import annotations

import functools
import os
import socket
import warnings

import jax
from distrun import _hooks
from distrun.errors import NotInitialized


def initialize_distributed(**options: object) -> None:
    """Calls `jax.distributed.initialize` with this rank, the job's size and its address.

    JAX finds its rank only under launchers that it knows, and distrun is none of them. `options` are arguments of
    `jax.distributed.initialize`; they override the values of the job. NotInitialized outside a job of distrun.

    Afterwards an uncaught exception ends the process without atexit functions, unless distrun.init() was called too. In
    such a function JAX waits for the other processes, which may wait for this one.
    """
    try:
        place: dict[str, object] = {
            "coordinator_address": os.environ["JAX_COORDINATOR_ADDRESS"],
            "num_processes": int(os.environ["DISTRUN_SIZE"]),
            "process_id": int(os.environ["DISTRUN_RANK"]),
            # JAX would take missing values from Slurm's variables of a task, which ranks do not have.
            "cluster_detection_method": "deactivate",
        }
    except KeyError as missing:
        raise NotInitialized(
            f"initialize_distributed() needs {missing.args[0]}: start the program with distrun -np N python ..."
        ) from None
    if options.get("coordinator_address") is None and "JAX_COORDINATOR_BIND_ADDRESS" not in os.environ:
        # Rank 0 listens on the interface that the ranks use, instead of on all interfaces.
        place["coordinator_bind_address"] = place["coordinator_address"]
    if address := os.environ.get("DISTRUN_ADDRESS"):
        _listen_at(address)
    jax.distributed.initialize(**{**place, **options})
    _hooks.end_without_waiting()


def _listen_at(address: str) -> None:
    """Makes Gloo, which JAX uses between CPUs, announce this address to the other hosts.

    Gloo announces the address of the host's own name. In Debian's and Ubuntu's /etc/hosts that is 127.0.1.1, where
    other hosts would wait for a connection without end. JAX has no option to choose another address.
    """
    if not _own_name_is_loopback():
        return
    try:
        from jax._src import xla_bridge

        native = getattr(xla_bridge, "_jax", None) or xla_bridge.xla_client._xla
        native.make_gloo_tcp_collectives = functools.partial(native.make_gloo_tcp_collectives, hostname=address)
    except (ImportError, AttributeError) as error:
        warnings.warn(
            f"the name of this host means 127.x, which the Gloo of other hosts cannot reach ({error}). Give the name "
            f"the address {address} in /etc/hosts.",
            stacklevel=3,
        )


def _own_name_is_loopback() -> bool:
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return any(str(address[0]).startswith("127.") or address[0] == "::1" for *_, address in found)
