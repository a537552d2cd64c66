"""OpenAI's own client through Envoy to the runtime: the same answers, and the same counts of tokens."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
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
MOST = 220
"""Tokens of an answer, near the context of the checkpoint: the engine is to be ended before them."""


@contextmanager
def started(base: Path) -> Iterator[Running]:
    """A ready runtime of language models."""
    (base / "out").mkdir()
    checkpoints.write(base / "out")
    store = ModelStore(base / "store")
    digest = build_image(base / "out", store, repository="r", lineage={}).digest
    module = "serving.runtimes.transformers.server"
    server = runtime_process.start(["-m", module], digest, store.tree(digest) / "models", base / "log")
    try:
        wait_ready(server)
        yield server
    finally:
        server.process.kill()
        server.process.wait()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with started(tmp_path_factory.mktemp("llm")) as server:
        yield server


@pytest.fixture
async def rig(engine: Running, tmp_path: Path) -> AsyncIterator[GatewayRig]:
    async with before(engine, tmp_path) as gateway:
        yield gateway


@asynccontextmanager
async def before(engine: Running, root: Path, **of_gateway: Any) -> AsyncIterator[GatewayRig]:
    """A gateway before the engine."""
    host, _, port = engine.address.partition(":")
    async with gateway_rig(root, **of_gateway) as gateway:
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


def resident_mib(rig: GatewayRig) -> float:
    """Return the memory of the gateway's Envoy."""
    running = rig.process.running()
    assert running is not None
    pages = int(Path(f"/proc/{running.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


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


@pytest.mark.parametrize("path", ["openai", MODEL])
@pytest.mark.parametrize("megabytes", [10, 60])
async def test_large_prompt_is_refused_in_openais_form_and_is_not_kept(
    rig: GatewayRig, path: str, megabytes: int
) -> None:
    memory = resident_mib(rig)
    messages = [{"role": "user", "content": "word " * (megabytes * 200_000)}]
    async with openai.AsyncOpenAI(
        base_url=f"{rig.url}/default/{path}/v1", api_key="none", max_retries=0
    ) as own:
        with pytest.raises(openai.APIStatusError) as refused:
            await own.chat.completions.create(**{**QUESTION, "messages": messages})
    assert (refused.value.status_code, refused.value.code) == (413, "request_too_large")
    await settled(rig)
    assert resident_mib(rig) - memory < 32


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
async def test_client_gets_an_error_and_no_tokens_wait_when_the_engine_ends_or_hangs_in_mid_stream(
    tmp_path: Path, number: signal.Signals
) -> None:
    with started(tmp_path) as engine:
        async with before(engine, tmp_path / "gateway", stream_idle_seconds=1.0) as rig:
            base_url = f"{rig.url}/default/openai/v1"
            async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
                stream = await client.chat.completions.create(
                    stream=True, extra_body={"ignore_eos": True}, **{**QUESTION, "max_tokens": MOST}
                )
                read = 0

                async def read_all() -> None:
                    nonlocal read
                    async for _ in stream:
                        read += 1
                        if read == 5:
                            engine.process.send_signal(number)

                with pytest.raises((openai.APIError, httpx.TransportError)):
                    await read_all()
                counts = await settled(rig)
    assert 5 <= read < MOST
    # The gateway may have got some tokens more than the client.
    assert read - 1 <= counts.generated_tokens < MOST
