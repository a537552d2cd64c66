"""Paths of the API that are composed of names."""

import pytest

from serving import errors
from serving.resources import kinds

NO_SEGMENTS = [
    "",
    ".",
    "..",
    "../secrets/prod",
    "a/b",
    "a\\b",
    "%2e%2e",
    "a?b",
    "a#b",
    "a\n",
    "a b",
    "\x7f",
    "\ud800",
]


@pytest.mark.parametrize("text", NO_SEGMENTS)
def test_path_is_refused_with_rule_and_value_when_a_part_could_name_another_object(text: str) -> None:
    for field, arguments in (
        ("metadata.name", ("default", text)),
        ("metadata.namespace", (text, "a")),
        ("subresource", ("default", "a", text)),
    ):
        with pytest.raises(errors.Invalid) as refused:
            kinds.SECRET.path(*arguments)
        (cause,) = refused.value.causes
        assert cause.field == field
        assert cause.message == f"Invalid value: {text!r}: {kinds.SEGMENT_RULE}"
        assert cause.message in str(refused.value)


def test_path_has_namespace_name_and_subresource_when_they_are_segments() -> None:
    assert kinds.POD.path("a", "web-1.b", "log") == "/api/v1/namespaces/a/pods/web-1.b/log"
    assert kinds.POD.path() == "/api/v1/pods"
    assert kinds.NAMESPACE.path("", "a") == "/api/v1/namespaces/a"
    kinds.check_path("/api/v1/nodes/local/proxy/logs/")


@pytest.mark.parametrize("node", ["../namespaces/a/secrets/b", "..", "", "a?b"])
def test_composed_path_is_refused_when_a_segment_is_none(node: str) -> None:
    with pytest.raises(errors.Invalid, match="must be one segment"):
        kinds.check_path(f"/api/v1/nodes/{node}/proxy/metrics")
