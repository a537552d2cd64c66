"""Objects and write requests with defaults for fields that a test does not check."""

from typing import Any

from serving.embedded.apiserver.writes import write_path
from serving.embedded.apiserver.writes.write_path import WriteOptions, WriteRequest
from serving.objects import Object
from serving.resources.kinds import Kind
from tests.objects.stored_kinds import STORED_KINDS

NOW = "2026-01-02T03:04:05Z"


def request(manager: str = "tester", **options: Any) -> WriteRequest:
    return WriteRequest(STORED_KINDS, WriteOptions(manager, **options), now=NOW, uid="uid-1", suffix="abcde")


def create(kind: Kind, body: Object, **options: Any) -> Object:
    created = write_path.create(kind, "default" if kind.namespaced else None, body, request(**options)).object
    created["metadata"]["resourceVersion"] = "1"
    return created


def deployment(**spec: Any) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "web:1"}]},
            },
            **spec,
        },
    }


def job(**spec: Any) -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "job:1"}]}}
    return {"metadata": {"name": "train"}, "spec": {"template": template, **spec}}


def pod(**spec: Any) -> Object:
    return {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "main", "image": "web:1"}], **spec}}


def inference(*predictors: Object) -> Object:
    arms = predictors or ({"name": "stable", "modelVersion": "v1"},)
    return {"metadata": {"name": "digits"}, "spec": {"framework": "sklearn", "predictors": list(arms)}}
