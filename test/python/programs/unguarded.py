"""A program without multiprocessing's guard. It works if workers are forked, which is the default up to Python 3.13."""

from __future__ import annotations

import multiprocessing

import distrun

distrun.init()
worker = multiprocessing.get_context("spawn").Process(target=print)
worker.start()
worker.join()
raise SystemExit(worker.exitcode)
