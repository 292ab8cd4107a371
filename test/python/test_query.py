"""query() returns a text for people, or the same facts as fields."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import distrun.numpy as hvd


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


def test_why_has_the_same_facts_as_json() -> None:
    (choice,) = hvd.query("why", json=True)
    assert set(choice) == {"process_set", "device", "backend", "chosen", "losers"}
    assert (choice["process_set"], choice["device"], choice["backend"]) == (0, "cpu", "self")
    assert choice["chosen"]["code"] == "highest_score" and choice["chosen"]["score"] > 0
    losers = {one["backend"]: one for one in choice["losers"]}
    assert losers["tcp"]["code"] == "lower_score" and losers["tcp"]["score"] < choice["chosen"]["score"]
    lines = [f"process set 0: cpu: self ({choice['chosen']['reason']})"]
    lines += [f"  not {one['backend']}: {one['reason']}" for one in choice["losers"]]
    assert hvd.query("why").splitlines() == lines


def test_backends_have_the_same_facts_as_json() -> None:
    listed = hvd.query("backends", json=True)
    assert {"backend": "self", "usable": True, "reason": "built in"} in listed["backends"]
    lines = [
        f"{one['backend']}: {'ok' if one['usable'] else 'not available'} ({one['reason']})"
        for one in listed["backends"]
    ]
    lines += [f"warning: {text}" for text in listed["warnings"]]
    assert hvd.query("backends").splitlines() == lines


def test_other_questions_have_no_json() -> None:
    with pytest.raises(hvd.InvalidArgument, match='query\\("settings"\\) has no JSON'):
        hvd.query("settings", json=True)


def test_features_know_what_is_used() -> None:
    assert not hvd.shm_enabled() and not hvd.tcp_enabled() and not hvd.nccl_enabled()
