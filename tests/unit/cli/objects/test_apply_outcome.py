"""The outcome that `slipway apply` reports."""

from typing import Any

from serving.cli.objects.apply import outcome


def stored(
    version: str = "1", replicas: int = 1, time: str = "2026-01-01T00:00:00Z", **fields: Any
) -> dict[str, Any]:
    owned = {"manager": "slipway", "operation": "Apply", "fieldsV1": {"f:spec": {}}, "time": time}
    meta = {"name": "a", "resourceVersion": version, "managedFields": [owned]}
    return {"metadata": meta, "spec": {"replicas": replicas}, **fields}


def test_outcome_is_created_when_the_object_is_new() -> None:
    assert outcome(None, stored()) == "created"


def test_outcome_is_configured_when_a_dry_run_returns_the_old_version() -> None:
    assert outcome(stored(), stored(replicas=2)) == "configured"


def test_outcome_is_unchanged_when_only_the_version_differs() -> None:
    assert outcome(stored(), stored(version="2", time="2026-01-02T00:00:00Z")) == "unchanged"


def test_outcome_is_unchanged_when_a_controller_wrote_status() -> None:
    after = stored(version="2", status={"ready": 1})
    after["metadata"]["managedFields"].append({"manager": "c", "subresource": "status"})
    assert outcome(stored(), after) == "unchanged"


def test_outcome_is_configured_when_a_field_has_a_new_manager() -> None:
    after = stored(version="2")
    after["metadata"]["managedFields"][0]["fieldsV1"] = {"f:spec": {"f:replicas": {}}}
    assert outcome(stored(), after) == "configured"
