"""The queue of a version is that of the network which its build waits for."""

import pytest

from serving.controllers.models.build_queues import FETCHED, LOCAL, PUSHED, queue_of
from serving.objects import Object

MODEL = {"spec": {"registry": {"repository": "registry.example/models/m"}}}


@pytest.mark.parametrize(
    ("source", "image", "model", "queue"),
    [
        ({"path": "/trained"}, None, None, LOCAL),
        ({"job": {"name": "train"}}, None, {"spec": {}}, LOCAL),
        ({"uri": "file:///trained"}, "slipway.local/default/m@sha256:1", None, LOCAL),
        ({"job": {"name": "train"}}, None, MODEL, PUSHED),
        ({"path": "/trained"}, "registry.example/models/m@sha256:1", None, PUSHED),
        ({"uri": "s3://bucket/trained"}, None, None, FETCHED),
        ({"image": "registry.example/models/m:v1"}, None, MODEL, FETCHED),
    ],
)
def test_a_version_is_in_the_queue_of_its_network(
    source: Object, image: str | None, model: Object | None, queue: str
) -> None:
    version = {"spec": {"source": source}, **({"status": {"image": image}} if image else {})}
    assert queue_of(version, model) == queue
