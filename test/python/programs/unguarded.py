"""A program without multiprocessing's guard: right while workers are forked, as up to Python 3.13."""

from __future__ import annotations

import multiprocessing

import distrun

distrun.init()
worker = multiprocessing.get_context("spawn").Process(target=print)
worker.start()
worker.join()
raise SystemExit(worker.exitcode)
