"""The runtime of language models as a process, asked by OpenAI's own client."""

import asyncio
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving.images.building.model_image import build_image
from serving.images.store.model_store import ModelStore
from tests.objects.models import checkpoints
from tests.rig import optional_modules
from tests.rig.servers import runtime_process
from tests.rig.servers.runtime_process import DEADLINE, Running, wait_ready

torch = optional_modules.torch()
openai = optional_modules.openai()
tokenizers = optional_modules.tokenizers()

MODEL = "digits"
"""The name that the rig gives to every model."""
PROMPT = "The harbour master says that"
MODULE = "serving.runtimes.transformers.server"


def begin(base: Path, *, template: bool = True, **environment: str) -> tuple[Running, Any]:
    (base / "out").mkdir()
    model = checkpoints.write(base / "out", template=template)
    store = ModelStore(base / "store")
    digest = build_image(base / "out", store, repository="r", lineage={}).digest
    models = store.tree(digest) / "models"
    server = runtime_process.start(["-m", MODULE], digest, models, base / "log", **environment)
    return server, model


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Any]]:
    server, model = begin(tmp_path_factory.mktemp("llm"))
    wait_ready(server)
    yield server, model
    server.process.kill()
    server.process.wait()


@pytest.fixture
def client(served: tuple[Running, Any]) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"http://{served[0].address}/v1", api_key="none", max_retries=0) as client:
        yield client


def metric(server: Running, name: str) -> float:
    page = httpx.get(f"http://{server.address}/metrics", verify=False).text
    (line,) = [line for line in page.splitlines() if line.startswith(name)]
    return float(line.split()[-1])


def greedy(model: Any, prompt: list[int], tokens: int) -> list[int]:
    """Return the tokens that Transformers' own `generate` adds to a prompt."""
    ids = torch.tensor([prompt])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, eos_token_id=None
    )
    return [int(token) for token in out[0, ids.shape[1] :]]


def test_greedy_tokens_are_those_of_generate_alone_and_in_a_batch(served: tuple[Running, Any]) -> None:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    server, model = served
    prompts = {length: [(7 * place + length) % 256 for place in range(length)] for length in (3, 8, 40, 90)}
    lengths = [*prompts] * 4

    async def ask() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"http://{server.address}/v1", api_key="none") as client:
            return await asyncio.gather(
                *(
                    client.completions.create(
                        model=MODEL,
                        prompt=prompts[length],
                        max_tokens=30,
                        temperature=0,
                        logprobs=0,
                        extra_body={"ignore_eos": True},
                    )
                    for length in lengths
                )
            )

    expected = {length: greedy(model, prompt, 30) for length, prompt in prompts.items()}
    tokenizer = tokenizers.Tokenizer.from_file(str(server.log.parent / "out" / "tokenizer.json"))
    byte_of = {letter: byte for byte, letter in bytes_to_unicode().items()}

    def text(token: int) -> str:
        form = tokenizer.id_to_token(token)
        return bytes([byte_of[form]]).decode(errors="backslashreplace") if form in byte_of else form

    for length, answer in zip(lengths, asyncio.run(ask()), strict=True):
        logprobs = answer.choices[0].logprobs
        assert logprobs.tokens == [text(token) for token in expected[length]]
        assert [list(top) for top in logprobs.top_logprobs] == [[token] for token in logprobs.tokens]
        assert max(logprobs.text_offset) <= len(answer.choices[0].text)
        assert answer.usage.completion_tokens == 30


def test_stream_is_the_answer_in_parts(client: Any) -> None:
    arguments = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "temperature": 0}
    whole = client.chat.completions.create(max_tokens=40, **arguments)
    stream = list(
        client.chat.completions.create(
            max_tokens=40, stream=True, stream_options={"include_usage": True}, **arguments
        )
    )
    assert "".join(c.choices[0].delta.content or "" for c in stream[:-1]) == whole.choices[0].message.content
    assert stream[0].choices[0].delta.role == "assistant"
    assert stream[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert stream[-1].usage == whole.usage
    assert stream[-1].choices == []


def test_stream_has_no_usage_unless_it_is_asked_for(client: Any) -> None:
    arguments = {"model": MODEL, "prompt": PROMPT, "max_tokens": 3, "extra_body": {"ignore_eos": True}}
    stream = list(client.completions.create(stream=True, **arguments))
    assert all(chunk.usage is None for chunk in stream)
    assert stream[-1].choices[0].finish_reason == "length"


def test_seed_repeats_a_sample_and_another_seed_does_not(client: Any) -> None:
    def ask(seed: int) -> str:
        answer = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=40, seed=seed)
        return str(answer.choices[0].text)

    assert ask(1) == ask(1)
    assert ask(1) != ask(2)


def test_small_top_p_takes_the_most_probable_tokens(client: Any) -> None:
    arguments = {"model": MODEL, "prompt": PROMPT, "max_tokens": 20}
    sampled = client.completions.create(top_p=1e-6, **arguments)
    assert sampled.choices[0].text == client.completions.create(temperature=0, **arguments).choices[0].text


def test_models_are_listed_and_retrieved(client: Any) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "slipway"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_errors_are_those_of_the_client(client: Any) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model=MODEL, prompt=PROMPT, temperature=3)
    assert refused.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="other", prompt=PROMPT)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="must be less than 256 tokens, got 300"):
        client.completions.create(model=MODEL, prompt="x" * 300)
    with pytest.raises(openai.BadRequestError, match="must be at most 246"):
        client.completions.create(model=MODEL, prompt="x" * 10, max_tokens=247)
    with pytest.raises(openai.BadRequestError, match=r"prompt\[1\]: must be a token"):
        client.completions.create(model=MODEL, prompt=[1, 10**6])


def test_disconnected_client_leaves_the_batch(served: tuple[Running, Any]) -> None:
    server, _ = served
    before = metric(server, 'vllm:request_success_total{finished_reason="abort"')
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 200, "stream": True, "ignore_eos": True}
    with httpx.stream("POST", f"http://{server.address}/v1/completions", json=body, verify=False) as response:
        next(response.iter_bytes())
    deadline = time.monotonic() + DEADLINE
    while metric(server, 'vllm:request_success_total{finished_reason="abort"') == before:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert metric(server, "vllm:num_requests_running") == 0


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Start a server with one sequence, one waiting request and no chat template; the last test ends it."""
    folder = tmp_path_factory.mktemp("small")
    settings = {"SLIPWAY_RUNTIMES__WAITING_SEQUENCES": "1", "SLIPWAY_RUNTIMES__LINGER_SECONDS": "0"}
    server, _ = begin(folder, template=False, SLIPWAY_BATCH_SIZE="1", **settings)
    wait_ready(server)
    yield server
    server.process.kill()
    server.process.wait()


def test_full_engine_answers_429_with_retry_after(small: Running) -> None:
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 200, "ignore_eos": True}

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(
            base_url=f"http://{small.address}", timeout=DEADLINE, verify=False
        ) as client:
            return await asyncio.gather(*(client.post("/v1/completions", json=body) for _ in range(12)))

    responses = asyncio.run(ask())
    refused = [response for response in responses if response.status_code == 429]
    assert refused
    assert {response.status_code for response in responses} == {200, 429}
    assert refused[0].headers["retry-after"] == "1"
    assert refused[0].json()["error"]["type"] == "rate_limit_error"


def test_chat_is_refused_without_a_template(small: Running) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "a"}]}
    response = httpx.post(f"http://{small.address}/v1/chat/completions", json=body, verify=False)
    assert response.status_code == 400
    assert response.json()["error"]["message"] == "messages: the model has no chat template"


def test_sigterm_lets_a_stream_end(small: Running) -> None:
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 200, "stream": True, "ignore_eos": True}
    url = f"http://{small.address}/v1/completions"
    with httpx.stream("POST", url, json=body, timeout=DEADLINE, verify=False) as response:
        chunks = response.iter_text()
        text = next(chunks)
        small.process.send_signal(signal.SIGTERM)
        text += "".join(chunks)
    assert text.endswith("data: [DONE]\n\n")
    assert len(re.findall("^data: {", text, re.MULTILINE)) <= 200
    assert small.process.wait(DEADLINE) == 0
