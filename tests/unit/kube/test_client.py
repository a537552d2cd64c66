"""Requests that the client does not send."""

import asyncio
import re

import pytest

from autoscaler.targets import Targets
from serving import errors
from serving.kube.connection.client import Configuration, Kube
from serving.resources import kinds
from tests.rig.machine.tcp_server import tcp_server


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


@pytest.mark.parametrize("body", ['"unavailable"', "null", "[]", "7"])
@pytest.mark.parametrize(("status", "error"), [("403 Forbidden", errors.Forbidden), ("503 No", errors.Busy)])
async def test_error_has_the_text_of_its_response_when_that_is_no_object(
    status: str, error: type[Exception], body: str
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status}\r\nRetry-After: 3600\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(f"{head}{body}".encode())

    async with (
        tcp_server(answer) as port,
        Kube(Configuration(host=f"http://127.0.0.1:{port}"), field_manager="test") as kube,
    ):
        with pytest.raises(error, match=re.escape(body)):
            await kube.raw("/version")
