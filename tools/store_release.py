"""Write the database of this release to tests/golden/releases, which every later release must read.

Run it once for each release. A stored database is never written again: its bytes are what the release wrote.
"""

import asyncio
import json
import sqlite3
import tempfile
from contextlib import closing, suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from serving.data_dir import DataDir
from serving.embedded.apiserver import server
from serving.kube import Kube, connect_eventually
from serving.objects import Object
from serving.resources import catalog, kinds
from serving.settings import DEFAULTS

RELEASES = Path(__file__).parent.parent / "tests" / "golden" / "releases"
OBJECTS = Path(__file__).with_name("release_objects.yaml")
NAMESPACE = "team"
KEPT_SECONDS = 1e9
"""Lifetime of Events: those of the manifest are old."""


async def write(data_dir: DataDir) -> dict[str, Any]:
    """Start a server on an empty data directory, write objects of every kind, and return them as listed."""
    api = replace(DEFAULTS.api, port=0, event_ttl_seconds=KEPT_SECONDS)
    serving = asyncio.create_task(server.run(data_dir, replace(DEFAULTS, api=api), catalog.DEFINITIONS))
    try:
        async with await connect_eventually(data_dir.kubeconfig, component="release") as kube:
            await _create(kube)
            before = await kube.list(kinds.CONFIG_MAP, NAMESPACE)
            await _change(kube)
            listings = [await kube.list(kind) for kind in kinds.ALL]
        missing = [kind.kind for kind, listing in zip(kinds.ALL, listings, strict=True) if not listing.items]
        if missing:
            raise SystemExit(f"{OBJECTS} has no {', '.join(missing)}")
        return {
            "resourceVersion": listings[-1].resource_version,
            "resourceVersionBeforeChanges": before.resource_version,
            "objects": [item for listing in listings for item in listing.items],
        }
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


async def _create(kube: Kube) -> None:
    uids: dict[tuple[str, str], str] = {}
    for obj in yaml.safe_load_all(OBJECTS.read_text()):
        kind = kinds.of(obj["apiVersion"], obj["kind"])
        assert kind is not None, obj
        for owner in obj["metadata"].get("ownerReferences", ()):
            owner["uid"] = uids[owner["kind"], owner["name"]]
        status = obj.pop("status", None)
        stored = await kube.create(kind, obj)
        meta = stored["metadata"]
        uids[kind.kind, meta["name"]] = meta["uid"]
        if status is not None:
            await kube.patch(
                kind, meta.get("namespace"), meta["name"], {"status": status}, subresource="status"
            )


async def _change(kube: Kube) -> None:
    """Update some objects by each way of writing, and delete one: the log has all kinds of changes."""
    settings: Object = {"metadata": {"name": "settings", "namespace": NAMESPACE}, "data": {"colour": "blue"}}
    await kube.apply(kinds.CONFIG_MAP, settings)
    await kube.delete(kinds.CONFIG_MAP, NAMESPACE, "removed")
    await kube.patch(kinds.MODEL, NAMESPACE, "digits", {"spec": {"retention": {"keep": 3}}})
    lease = await kube.get(kinds.LEASE, NAMESPACE, "slipway-gateway-local")
    lease["spec"]["renewTime"] = "2026-01-01T00:00:10.000000Z"
    await kube.update(kinds.LEASE, lease)
    await kube.patch(kinds.DEPLOYMENT, NAMESPACE, "digits-stable-1", {"spec": {"replicas": 2}})


def main() -> None:
    """Store the release of the installed version; refuse if it is stored already."""
    target = RELEASES / metadata.version("slipway")
    if target.exists():
        raise SystemExit(f"{target} is stored already")
    with tempfile.TemporaryDirectory() as directory:
        data_dir = DataDir(Path(directory) / "data")
        written = asyncio.run(write(data_dir))
        target.mkdir(parents=True)
        with closing(sqlite3.connect(data_dir.database)) as connection:
            connection.execute("VACUUM INTO ?", (str(target / data_dir.database.name),))
    text = json.dumps(written, indent=1, sort_keys=True, ensure_ascii=False)
    (target / "objects.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
