"""Objects and requests of the API server's tests over HTTP."""

import json
from collections.abc import Iterator
from typing import Any

import httpx

MAPS = "/api/v1/namespaces/{}/configmaps"


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels},
        "data": {"k": "v"},
    }


def events(client: httpx.Client, path: str, **query: str) -> Iterator[dict[str, Any]]:
    with client.stream("GET", path, params={"watch": "1", **query}) as response:
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            yield json.loads(line)
