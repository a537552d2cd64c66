"""What the API refuses of Models and ModelVersions, and with which words."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from serving.objects import Object
from serving.resources import kinds
from tests.rig.servers.api_process import ApiProcess

PEM = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQ==\n-----END PUBLIC KEY-----\n"
Post = Callable[[kinds.Kind, Object], httpx.Response]


@pytest.fixture
def post(api_process: ApiProcess) -> Any:
    with api_process.http() as client:
        yield lambda kind, spec: client.post(
            kind.path("default"),
            params={"fieldValidation": "Strict", "dryRun": "All"},
            json={"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "m"}, "spec": spec},
        )


def version(**source: Any) -> Object:
    return {"modelName": "digits", "source": source}


@pytest.mark.parametrize(
    "source",
    [
        {"job": {"name": "train"}},
        {"job": {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train", "uid": "u1"}},
        {"job": {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "train"}},
        {"uri": "s3://bucket/models/digits"},
        {"uri": "abfs://container@account.dfs.core.windows.net/models"},
        {"image": "registry.example/models/digits:v1"},
        {"image": "127.0.0.1:5000/models/digits@sha256:" + "0" * 64},
        {"image": "registry.example/a/b-c__d.e:v1@sha256:" + "0" * 64},
    ],
    ids=str,
)
def test_every_kind_of_source_is_accepted(post: Post, source: Object) -> None:
    assert post(kinds.MODEL_VERSION, version(**source)).status_code == 201


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({}, "exactly one of job, path, uri and image"),
        ({"path": "/a", "uri": "s3://a/b"}, "exactly one of job, path, uri and image"),
        ({"job": {"name": "a", "kind": "rayjob"}}, 'spec.source.job.kind: Invalid value: \\"rayjob\\"'),
        ({"job": {"name": "a", "apiVersion": "v1"}}, 'spec.source.job.apiVersion: Invalid value: \\"v1\\"'),
        ({"uri": "models/digits"}, "spec.source.uri"),
        ({"uri": "simplecache::s3://bucket/x"}, "spec.source.uri"),
        ({"uri": "zip://m.zip::s3://bucket/x"}, "chains"),
        ({"uri": "ftp://user:secret@host/x"}, "uri must have no password"),
        ({"uri": "local:///var/lib"}, "uri must name files of this machine by file://"),
        ({"uri": "asynclocal:///var/lib"}, "uri must name files of this machine by file://"),
        ({"image": "digits:v1"}, "spec.source.image"),
        ({"image": "Registry.example/Digits:v1"}, "spec.source.image"),
        ({"image": "slipway.local/default/digits:v1"}, "no registry has that name"),
    ],
    ids=str,
)
def test_a_source_that_cannot_be_honoured_is_refused_by_its_field(
    post: Post, source: Object, words: str
) -> None:
    answer = post(kinds.MODEL_VERSION, version(**source))
    assert answer.status_code == 422
    assert words in answer.text


def test_a_models_policies_are_accepted(post: Post) -> None:
    spec = {
        "registry": {"repository": "127.0.0.1:5000/models/digits", "secretName": "registry.credentials"},
        "compression": "zstd",
        "retention": {"keep": 3},
        "signing": {"secretName": "signing-key"},
        "verification": {"keys": [PEM]},
    }
    assert post(kinds.MODEL, spec).status_code == 201


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"registry": {"repository": "registry.example/digits:v1"}}, "spec.registry.repository"),
        ({"registry": {"repository": "slipway.local/default/digits"}}, "no registry has that name"),
        ({"registry": {}}, "spec.registry.repository"),
        ({"signing": {"secretName": "key"}}, "signing needs a registry"),
        ({"compression": "gzip"}, "spec.compression"),
        ({"retention": {"keep": 0}}, "spec.retention.keep"),
        ({"verification": {"keys": []}}, "spec.verification.keys"),
        ({"verification": {"keys": ["no key"]}}, "spec.verification.keys[0]"),
        ({"verification": {"keys": [PEM, PEM]}}, "spec.verification.keys[1]"),
    ],
    ids=str,
)
def test_a_policy_that_cannot_be_honoured_is_refused_by_its_field(
    post: Post, spec: Object, words: str
) -> None:
    answer = post(kinds.MODEL, spec)
    assert answer.status_code == 422
    assert words in answer.text
