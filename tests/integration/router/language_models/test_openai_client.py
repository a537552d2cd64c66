"""OpenAI's own client through Envoy to the runtime: the same answers, and the same counts of tokens."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving import clock
from serving.images.building.model_image import build_image
from serving.images.store.model_store import ModelStore
from serving.router.envoy.counts.token_counts import PAIRS, TokenCounts
from tests.objects.models import checkpoints
from tests.rig import optional_modules
from tests.rig.servers import runtime_process
from tests.rig.servers.gateway import GatewayRig, endpoint_slice, gateway_rig, route
from tests.rig.servers.runtime_process import Running, wait_ready

optional_modules.torch()
optional_modules.transformers()
openai = optional_modules.openai()

MODEL = "digits"
"""The name that the rig gives to every model."""
QUESTION = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "hello"}],
    "temperature": 0,
    "max_tokens": 30,
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    base = tmp_path_factory.mktemp("llm")
    (base / "out").mkdir()
    checkpoints.write(base / "out")
    store = ModelStore(base / "store")
    digest = build_image(base / "out", store, repository="r", lineage={}).digest
    module = "serving.runtimes.transformers.server"
    server = runtime_process.start(["-m", module], digest, store.tree(digest) / "models", base / "log")
    wait_ready(server)
    yield server
    server.process.kill()
    server.process.wait()


@pytest.fixture
async def rig(engine: Running, tmp_path: Path) -> AsyncIterator[GatewayRig]:
    host, _, port = engine.address.partition(":")
    async with gateway_rig(tmp_path) as gateway:
        model = route(MODEL, [("a", 10_000)])
        model["spec"]["tokenUsage"] = "continuous"
        await gateway.serve([model], [endpoint_slice(f"{MODEL}-a", [host], port=int(port))])
        yield gateway


@pytest.fixture
async def client(rig: GatewayRig) -> AsyncIterator[Any]:
    async with openai.AsyncOpenAI(
        base_url=f"{rig.url}/default/openai/v1", api_key="none", max_retries=0
    ) as own:
        yield own


def counted(engine: Running) -> tuple[float, float]:
    """Return the prompt and the generated tokens of the engine's own page."""
    values = {}
    for line in httpx.get(f"http://{engine.address}/metrics", verify=False).text.splitlines():
        if line.startswith(("vllm:prompt_tokens_total", "vllm:generation_tokens_total")):
            values[line.partition("{")[0]] = float(line.split()[-1])
    return values["vllm:prompt_tokens_total"], values["vllm:generation_tokens_total"]


async def settled(rig: GatewayRig) -> TokenCounts:
    deadline = clock.monotonic() + 5
    while True:
        counts = rig.counts().tokens(f"default/{MODEL}-a/8080")
        if not any(counts.waiting(name) for name in PAIRS):
            return counts
        assert clock.monotonic() < deadline, counts
        await asyncio.sleep(0.02)


async def test_answers_are_those_of_the_engine_itself(client: Any, engine: Running) -> None:
    with openai.OpenAI(base_url=f"http://{engine.address}/v1", api_key="none") as direct:
        expected = direct.chat.completions.create(**QUESTION).choices[0].message.content
    answer = await client.chat.completions.create(**QUESTION)
    assert answer.choices[0].message.content == expected
    stream = await client.chat.completions.create(stream=True, **QUESTION)
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == expected
    assert all(chunk.usage is None for chunk in chunks)
    completion = await client.completions.create(
        model=MODEL, prompt="hello", max_tokens=5, extra_body={"ignore_eos": True}
    )
    assert completion.usage.completion_tokens == 5


async def test_models_and_errors_are_in_openais_form(client: Any) -> None:
    assert [model.id async for model in await client.models.list()] == [MODEL]
    assert (await client.models.retrieve(MODEL)).id == MODEL
    with pytest.raises(openai.NotFoundError) as unknown:
        await client.chat.completions.create(**{**QUESTION, "model": "nobody"})
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="temperature"):
        await client.chat.completions.create(**{**QUESTION, "temperature": 9})


async def test_tokens_are_those_of_the_engine_when_a_tenth_is_cancelled(
    client: Any, engine: Running, rig: GatewayRig
) -> None:
    before = counted(engine)

    async def ask(number: int) -> None:
        stream = await client.chat.completions.create(
            stream=True, **{**QUESTION, "max_tokens": 10 + number % 30}
        )
        read = 0
        async for _ in stream:
            read += 1
            if number % 10 == 0 and read > 5:
                await stream.close()
                return

    for first in range(0, 60, 12):
        await asyncio.gather(*(ask(number) for number in range(first, first + 12)))
    counts = await settled(rig)
    prompt, generated = (now - then for now, then in zip(counted(engine), before, strict=True))
    assert counts.prompt_tokens == prompt
    # A cancelled answer has one or two tokens more, which no client got.
    assert 0 <= generated - counts.generated_tokens <= 0.02 * generated
