"""Requests that the client does not send."""

import pytest

from autoscaler.targets import Targets
from serving import errors
from serving.kube.connection.client import Configuration, Kube
from serving.resources import kinds


def unreachable() -> Kube:
    return Kube(Configuration(host="http://127.0.0.1:1"), field_manager="test")


async def test_object_of_another_kind_or_namespace_is_not_asked_for_when_a_name_leads_there() -> None:
    async with unreachable() as kube:
        with pytest.raises(errors.Invalid, match=r"metadata\.name: .*'\.\./\.\./default/secrets/prod'"):
            await kube.get(kinds.CONFIG_MAP, "evil", "../../default/secrets/prod")
        with pytest.raises(errors.Invalid, match=r"metadata\.namespace"):
            await kube.get(kinds.SECRET, "evil/../default", "prod")
        with pytest.raises(errors.Invalid, match=r"metadata\.name"):
            await kube.delete(kinds.CONFIG_MAP, "evil", "../secrets/prod")
        with pytest.raises(errors.Invalid, match="path: "):
            await kube.raw("/api/v1/nodes/../namespaces/default/secrets/prod/proxy")


async def test_target_is_refused_when_its_api_version_is_another_path() -> None:
    async with unreachable() as kube:
        with pytest.raises(errors.Permanent, match=r"there is no kind Pod of \.\./\.\./api/v1") as refused:
            await Targets(kube).kind("../../api/v1", "Pod")
    assert refused.value.reason == "UnsupportedTarget"
