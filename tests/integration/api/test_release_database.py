"""The current server on the database of each earlier release, as stored by `tools/store_release.py`."""

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving.data_dir import DataDir
from serving.resources import kinds
from tests.objects.config_maps import MAPS, config_map, events
from tests.rig.servers.api_process import ApiProcess

RELEASES = sorted((Path(__file__).parents[2] / "golden" / "releases").iterdir())
PATH = MAPS.format("team")
KEPT_SECONDS = 1e9
"""Time to live of Events: those of a release are old."""


@pytest.fixture(params=RELEASES, ids=[release.name for release in RELEASES])
def release(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


@pytest.fixture
def stored(release: Path) -> dict[str, Any]:
    """Return the objects that the release listed before it stopped."""
    listing: dict[str, Any] = json.loads((release / "objects.json").read_text())
    return listing


@pytest.fixture
def upgraded(release: Path, tmp_path: Path) -> Iterator[ApiProcess]:
    data_dir = DataDir(tmp_path / "data")
    data_dir.root.mkdir()
    shutil.copyfile(release / data_dir.database.name, data_dir.database)
    server = ApiProcess(data_dir.root, event_ttl_seconds=KEPT_SECONDS).start()
    yield server
    server.stop(signal.SIGKILL)


def listed(server: ApiProcess) -> dict[tuple[str, str], dict[str, Any]]:
    """Return every object of every kind by kind and uid."""
    with server.http() as client:
        lists = {kind: client.get(kind.path()).json()["items"] for kind in kinds.ALL}
    return {
        (kind.kind, item["metadata"]["uid"]): {"apiVersion": kind.api_version, "kind": kind.kind, **item}
        for kind, items in lists.items()
        for item in items
    }


def changes(client: httpx.Client, *, since: str) -> list[tuple[str, str]]:
    """Return types and names of the ConfigMaps' changes after a resourceVersion."""
    watched = events(client, PATH, resourceVersion=since, timeoutSeconds="1")
    return [(event["type"], event["object"]["metadata"]["name"]) for event in watched]


def test_every_object_of_a_release_is_served_unchanged(upgraded: ApiProcess, stored: dict[str, Any]) -> None:
    expected = {(obj["kind"], obj["metadata"]["uid"]): obj for obj in stored["objects"]}
    assert listed(upgraded) == expected


def test_a_watch_resumes_from_a_version_of_a_release(upgraded: ApiProcess, stored: dict[str, Any]) -> None:
    with upgraded.http() as client:
        created = client.post(PATH, json=config_map("new")).json()
        assert changes(client, since=stored["resourceVersion"]) == [("ADDED", "new")]
        assert changes(client, since=stored["resourceVersionBeforeChanges"]) == [
            ("MODIFIED", "settings"),
            ("DELETED", "removed"),
            ("ADDED", "new"),
        ]
    assert int(created["metadata"]["resourceVersion"]) > int(stored["resourceVersion"])


def test_objects_of_a_release_can_be_changed(upgraded: ApiProcess, stored: dict[str, Any]) -> None:
    newest = int(stored["resourceVersion"])
    before = len(listed(upgraded))
    with upgraded.http() as client:
        for obj in stored["objects"]:
            kind = kinds.of(obj["apiVersion"], obj["kind"])
            assert kind is not None
            path = kind.path(obj["metadata"].get("namespace"), obj["metadata"]["name"])
            patch = {"metadata": {"annotations": {"release": "next"}}}
            response = client.patch(
                path, json=patch, headers={"Content-Type": "application/merge-patch+json"}
            )
            assert response.status_code == 200, response.text
            assert response.json()["metadata"]["uid"] == obj["metadata"]["uid"]
            version = int(response.json()["metadata"]["resourceVersion"])
            assert version > newest
            newest = version
    assert len(listed(upgraded)) == before
