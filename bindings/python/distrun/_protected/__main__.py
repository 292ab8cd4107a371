"""Runs a program that can send tensors to other hosts only through distrun."""

from __future__ import annotations

from distrun._amend import run

from . import install

install()
run()
