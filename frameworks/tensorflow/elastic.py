"""Stands for Horovod's elastic module. Every use raises an error that says what to do instead."""

from __future__ import annotations

from typing import Any

from distrun import basics


def __getattr__(name: str) -> Any:
    return getattr(basics.elastic, name)
