"""One base URL for all language models of a namespace: the body's `model` names the Inference."""

import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from serving.resources.names import ARM_HEADER
from tests.fakes.language_engine import LanguageEngine
from tests.rig.machine.addresses import own
from tests.rig.servers.gateway import GatewayRig, endpoint_slice, gateway_rig, route

ADDRESS = own(68)
STICKY = {"header": "x-conversation", "salt": "s"}


def language_model(name: str, *arms: str, **options: Any) -> dict[str, Any]:
    share = 10_000 // len(arms)
    model = route(name, [(arm, share) for arm in arms], **options)
    model["spec"]["tokenUsage"] = "continuous"
    return model


def slices(*services: str) -> list[dict[str, Any]]:
    return [endpoint_slice(service, [ADDRESS]) for service in services]


@pytest.fixture
def engine() -> LanguageEngine:
    return LanguageEngine()


@pytest.fixture
async def rig(tmp_path: Path, engine: LanguageEngine) -> AsyncIterator[GatewayRig]:
    async with engine.listening(ADDRESS, 8080), gateway_rig(tmp_path) as gateway:
        models = [language_model("chat", "a", "b", sticky=STICKY), language_model("code", "a")]
        starting = route("starting", [], namespace="team", unweighted=["a"])
        starting["spec"]["tokenUsage"] = "continuous"
        other = [route("digits", [("a", 10_000)]), language_model("far", "a", namespace="team"), starting]
        await gateway.serve([*models, *other], slices("chat-a", "chat-b", "code-a", "digits-a"))
        yield gateway


async def call(
    rig: GatewayRig, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, Any, str]:
    """Return the status, the document, and the arm."""
    data = None if body is None else io.BytesIO(body)
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"{rig.url}{path}", data=data, headers=headers) as response,
    ):
        text = await response.read()
        return response.status, orjson.loads(text), response.headers.get(ARM_HEADER, "")


async def ask(rig: GatewayRig, model: str, **headers: str) -> tuple[int, Any, str]:
    body = orjson.dumps({"messages": [], "model": model, "max_tokens": 2})
    return await call(rig, "POST", "/default/openai/v1/chat/completions?a=b", body, **headers)


async def test_model_of_the_body_names_the_inference_and_its_tokens_are_counted(rig: GatewayRig) -> None:
    for model in ("chat", "code", "code"):
        status, answer, _ = await ask(rig, model)
        assert (status, answer["usage"]["completion_tokens"]) == (200, 2)
    assert rig.counts().tokens("default/code-a/8080").generated_tokens == 4


async def test_query_of_the_request_reaches_the_model(rig: GatewayRig, engine: LanguageEngine) -> None:
    await ask(rig, "code")
    assert engine.queries == ["a=b"]


async def test_models_of_the_namespace_are_listed(rig: GatewayRig) -> None:
    status, listed, _ = await call(rig, "GET", "/default/openai/v1/models")
    assert (status, [model["id"] for model in listed["data"]]) == (200, ["chat", "code"])
    status, model, _ = await call(rig, "GET", "/default/openai/v1/models/code")
    assert (status, model["id"], model["object"]) == (200, "code", "model")
    assert [m["id"] for m in (await call(rig, "GET", "/team/openai/v1/models"))[1]["data"]] == [
        "far",
        "starting",
    ]


async def test_model_without_a_replica_yet_is_unavailable(rig: GatewayRig) -> None:
    body = orjson.dumps({"messages": [], "model": "starting"})
    url = f"{rig.url}/team/openai/v1/chat/completions"
    async with aiohttp.ClientSession() as session, session.post(url, data=body) as response:
        assert response.status == 503
        assert int(response.headers["retry-after"]) > 0


async def test_another_path_of_the_api_does_not_exist(rig: GatewayRig) -> None:
    body = orjson.dumps({"messages": [], "model": "chat"})
    assert (await call(rig, "POST", "/default/openai/unknown", body))[0] == 404


@pytest.mark.parametrize("model", ["digits", "far", "*", "", "../team/far", 'x"}', "\\u0063hat", "x" * 5000])
async def test_unknown_model_is_refused_in_openais_form(rig: GatewayRig, model: str) -> None:
    status, answer, _ = await ask(rig, model)
    assert status == 404
    assert answer["error"]["code"] == "model_not_found"
    status, answer, _ = await call(rig, "GET", "/default/openai/v1/models/nobody")
    assert (status, answer["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"messages": []}', b'{"model": 3}', b"\x00" * 100])
async def test_body_without_a_model_is_refused_in_openais_form(rig: GatewayRig, body: bytes) -> None:
    status, answer, _ = await call(rig, "POST", "/default/openai/v1/chat/completions", body)
    assert (status, answer["error"]["param"]) == (400, "model")


async def test_conversation_is_sticky_by_its_header(rig: GatewayRig) -> None:
    for conversation in range(8):
        headers = {"x-conversation": f"c-{conversation}"}
        arms = {(await ask(rig, "chat", **headers))[2] for _ in range(4)}
        body = orjson.dumps({"messages": [], "max_tokens": 1})
        arms.add((await call(rig, "POST", "/default/chat/v1/chat/completions", body, **headers))[2])
        assert len(arms) == 1
    assert {(await ask(rig, "chat", **{"x-conversation": f"d-{n}"}))[2] for n in range(24)} == {"a", "b"}


async def test_caller_without_the_header_gets_a_cookie_for_its_arm(rig: GatewayRig) -> None:
    jar = aiohttp.CookieJar(unsafe=True)
    body = {"messages": [], "model": "chat", "max_tokens": 1}
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        arms = set()
        for _ in range(6):
            async with session.post(f"{rig.url}/default/openai/v1/chat/completions", json=body) as response:
                arms.add(response.headers[ARM_HEADER])
        assert len(jar) == 1
        assert len(arms) == 1


async def test_inference_named_openai_keeps_its_address(rig: GatewayRig) -> None:
    named = language_model("openai", "a")
    await rig.serve([named, language_model("code", "a")], slices("openai-a", "code-a"))
    status, answer, arm = await ask(rig, "anything")
    assert (status, answer["usage"]["completion_tokens"], arm) == (200, 2, "a")


async def test_removed_model_leaves_the_list(rig: GatewayRig) -> None:
    await rig.serve([language_model("code", "a")], slices("code-a"))
    assert [m["id"] for m in (await call(rig, "GET", "/default/openai/v1/models"))[1]["data"]] == ["code"]
    assert (await ask(rig, "chat"))[0] == 404
