"""Label and field selectors."""

import pytest

from serving import errors
from serving.embedded.apiserver import selectors
from serving.resources import kinds

OBJ = {
    "metadata": {"name": "a", "namespace": "n", "labels": {"app": "web", "tier": "x", "example.com/q": ""}}
}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "app=web",
        "app==web",
        "app!=db",
        "missing!=x",
        "app in (web,db)",
        "app notin (db)",
        "missing notin (x)",
        "app",
        "!missing",
        "app=web,tier in (x, y),!z",
        "example.com/q=",
        "example.com/q",
        " app = web ",
    ],
)
def test_a_selector_selects(text: str) -> None:
    assert selectors.labels(text)(OBJ)


@pytest.mark.parametrize(
    "text",
    [
        "app=db",
        "app!=web",
        "app in (db)",
        "app notin (web)",
        "missing",
        "!app",
        "app=web,tier=y",
        "missing in (x)",
    ],
)
def test_a_selector_excludes(text: str) -> None:
    assert not selectors.labels(text)(OBJ)


@pytest.mark.parametrize("text", ["=", "a=b=c", "a in b", "a in (b", ",", "a=b,", "-x", "a>1"])
def test_a_malformed_selector_is_refused(text: str) -> None:
    with pytest.raises(errors.ApiError) as caught:
        selectors.labels(text)
    assert caught.value.code == 400


def test_field_selectors_support_the_fields_of_their_kind() -> None:
    pod = {**OBJ, "status": {"phase": "Running"}, "spec": {"nodeName": "local"}}
    assert selectors.fields(kinds.POD, "metadata.name=a,status.phase!=Failed,spec.nodeName=local")(pod)
    assert not selectors.fields(kinds.POD, "status.phase=Failed")(pod)
    event = {**OBJ, "involvedObject": {"name": "j"}, "reason": "R", "type": "Normal"}
    assert selectors.fields(kinds.EVENT_V1, "involvedObject.name=j,reason=R")(event)
    for kind, text in (
        (kinds.MODEL, "status.phase=x"),
        (kinds.POD, "spec.foo=x"),
        (kinds.POD, "metadata.name"),
    ):
        with pytest.raises(errors.ApiError) as caught:
            selectors.fields(kind, text)
        assert caught.value.code == 400
