import os

import pytest

from serving.cli.machine import up
from serving.system.isolation.seccomp import SystemCallFilter

FILTERED = SystemCallFilter(b"program")
UNFILTERED = SystemCallFilter(b"", "not filtered: no library")


@pytest.mark.parametrize(
    ("user", "system_calls", "expected"),
    [
        (0, FILTERED, ""),
        (0, UNFILTERED, "partial: not filtered: no library"),
        (1000, FILTERED, "none: containers run as this user, and are not kept apart"),
        (
            1000,
            UNFILTERED,
            "none: containers run as this user, and are not kept apart; not filtered: no library",
        ),
    ],
)
def test_up_names_what_does_not_keep_containers_apart(
    user: int, system_calls: SystemCallFilter, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(up, "system_call_filter", lambda: system_calls)
    assert up.isolation() == expected
