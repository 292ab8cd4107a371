"""What the report says about the machine and the software."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import peers
from compare import ROOT, built


def first(pattern: str, text: str) -> str:
    """Returns the first group of the first match, else ""."""
    match = re.search(pattern, text, re.MULTILINE)
    return match[1].strip() if match else ""


def machine() -> dict[str, str]:
    processor = first(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text())
    kib = int(first(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text()))
    flags = first(r"^flags\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text()).split()
    system = first(r'^PRETTY_NAME="?(.*?)"?$', Path("/etc/os-release").read_text())
    return {
        "processor": processor + (", a virtual machine" if "hypervisor" in flags else ""),
        "cores": str(os.cpu_count()),
        "memory": f"{kib / (1 << 20):.0f} GiB",
        "system": f"{system}, Linux {platform.release()}",
    }


def debian_version(package: str) -> str:
    command = ["dpkg-query", "-W", "-f=${Version}", package]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def versions(tensorflow: Path) -> dict[str, str]:
    """Returns the versions of everything that the report compares. `tensorflow`: the folder of its environment."""
    found = {"distrun": first(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text())}
    debian = peers.from_debian(built)
    if debian is not None:
        command = [debian.start[0], "--version"]
        said = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **debian.environment})
        found["Open MPI from Debian"] = first(r"(\d+\.\d+\.\d+)", said.stdout)
    names = {peers.OPEN_MPI_5: "Open MPI", peers.MPICH: "MPICH", peers.INTEL_MPI: "Intel MPI"}
    found |= {f"{names[mpi.who]} from PyPI": mpi.version for mpi in peers.from_pypi(built)[0]}
    found["Gloo from Debian"] = debian_version("libgloo-dev")
    found["PyTorch"] = installed(sys.executable, "torch")
    found["TensorFlow"] = installed(str(tensorflow / "bin/python"), "tensorflow-cpu")
    found["Python"] = platform.python_version()
    return {name: version for name, version in found.items() if version}


def installed(python: str, package: str) -> str:
    """Returns the version of a package in that Python's environment."""
    if not Path(python).exists():
        return ""
    command = [python, "-c", f"from importlib.metadata import version; print(version({package!r}))"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""
