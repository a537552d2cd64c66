"""Plain scalars of YAML, as Kubernetes reads them."""

from typing import Any

import pytest
import yaml

from serving.resources.formats import manifest_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12:30:45", "12:30:45"),
        ("-1:30", "-1:30"),
        ("190:20:30.15", "190:20:30.15"),
        ("22:22", "22:22"),
        ("2026-01-02", "2026-01-02"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("12", 12),
        ("-0x1F", -31),
        ("1.5", 1.5),
        ("1.5e+3", 1500.0),
        (".5", 0.5),
        ("yes", True),
        ("~", None),
    ],
)
def test_plain_scalar_is_read_as_kubernetes_reads_it(text: str, value: Any) -> None:
    loaded = yaml.load(f"a: {text}", manifest_yaml.Loader)
    assert loaded == {"a": value}
    assert type(loaded["a"]) is type(value)
