"""A conflict with the fields of another manager is reported, and the other documents are applied."""

import pytest

from serving import errors
from serving.cli.objects import apply, manifests
from serving.resources import kinds
from tests.fakes.kube import FakeKube
from tests.fakes.surroundings import NS


def document(name: str) -> manifests.Document:
    body = {
        "apiVersion": "slipway.dev/v1alpha1",
        "kind": "Model",
        "metadata": {"name": name, "namespace": NS},
        "spec": {"description": name},
    }
    return manifests.Document(f"{name}.yaml", kinds.MODEL, NS, name, body)


async def test_other_documents_are_applied_when_the_object_of_a_conflict_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = FakeKube()

    async def gone(*_: object) -> None:
        raise errors.NotFound(404, "NotFound", "gone")

    async def applied(*_: object) -> str:
        if not kube.find(kinds.MODEL):
            await kube.create(kinds.MODEL, document("first").body)
            cause = errors.Cause(".spec.description", "conflict", "FieldManagerConflict")
            raise errors.Conflict(409, "Conflict", "Apply failed with 1 conflict", [cause])
        return "created"

    monkeypatch.setattr(kube, "get", gone)
    monkeypatch.setattr(apply, "_apply", applied)
    assert await apply._apply_all(kube, [document("first"), document("second")], {}) != 0
    printed = capsys.readouterr()
    assert "first.yaml: Model first: " in printed.err
    assert "second created" in printed.out
