"""What ended two engines is not given to a third."""

from __future__ import annotations

import pytest
from fleet_engines import request_of
from openjev_server.fleet.fatal import REMEMBERED_S, FatalRequests


def test_a_fatal_request_is_recognised_by_its_content_for_an_hour() -> None:
    now = 0.0
    fatal = FatalRequests(lambda: now)
    assert request_of(1) not in fatal
    fatal.add(request_of(1))
    now = 10
    fatal.add(request_of(2))
    assert request_of(1) in fatal
    assert request_of(1, tokens=11) not in fatal
    now = REMEMBERED_S + 5
    assert request_of(1) not in fatal
    assert request_of(2) in fatal


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openjev_server.fleet.fatal.REMEMBERED", 2)
    fatal = FatalRequests()
    for name in range(3):
        fatal.add(request_of(name))
    assert [request_of(name) in fatal for name in range(3)] == [False, True, True]
