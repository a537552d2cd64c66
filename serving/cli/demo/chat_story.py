"""The steps of `slipway demo --llm`: from two training Jobs to streamed chats, then to zero replicas and
back.

Uses the tools of every user: `slipway up` as a process, the API through its kubeconfig, and an unmodified
`openai` client. Every number is measured in this run; a failed check makes the exit code 1.
"""

import asyncio
import itertools
import statistics
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import NamedTuple

import aiohttp
import orjson
from scipy.stats import binom

from serving import clock, errors, metrics
from serving.cli.demo import gpu, scaling
from serving.cli.demo.chats import ChatResult, Chats, failures
from serving.cli.demo.console import Story
from serving.cli.demo.objects import NAMESPACE, sample, train, until
from serving.cli.demo.report import CONFIDENCE
from serving.cli.output import tables
from serving.data_dir import DataDir
from serving.kube import Kube, connect
from serving.objects import Object
from serving.quantile import nearest_rank
from serving.resources import kinds, metric_names
from serving.system.network import http_reading
from serving.training import harbour_text

NAME = "chat"
ELASTIC = "chat-elastic"
ARM = f"{ELASTIC}/only"
TRAINING_SECONDS = 240.0
USERS = 8
CHATS = 120
BURST_USERS = 24
BURST_REPLICAS = 2
"""Replicas that the burst must add up to."""
TOLERANCE = 0.01
"""Largest difference between the token counts of gateway and engines, as a fraction of the engines' count."""
PAGE_SECONDS = 10.0
"""Timeout of a gateway's metrics page."""
HEADERS = (
    "Arm",
    "Share",
    "Expected",
    "Chats",
    "First token p50 ms",
    "p99 ms",
    "Between tokens p50 ms",
    "Tokens/s of one chat",
)


class ChatTokens(NamedTuple):
    """Tokens of prompts, and generated tokens."""

    prompt: float
    generated: float


async def steps(story: Story, data_dir: DataDir, *, on_gpu: bool) -> None:
    """Run all steps; with `on_gpu` the Jobs and the replicas share the machine's GPU."""
    base = f"http://127.0.0.1:{orjson.loads(data_dir.ports.read_bytes())['gateway']}/{NAMESPACE}"
    async with await connect(data_dir.kubeconfig, component="demo", pool=8) as kube:
        await train(
            story,
            kube,
            "chat-jobs.yaml",
            {"Perplexity": "perplexity", "Exact answers": "exactAnswers"},
            seconds=TRAINING_SECONDS,
            change=gpu.of_job if on_gpu else None,
        )
        chats = Chats.of(f"{base}/{NAME}", NAME)
        try:
            await _serve(story, kube, on_gpu=on_gpu)
            await _talk(story, chats)
            await _compare(story, kube, data_dir, chats)
        finally:
            await chats.end()
        await _scale(story, kube, f"{base}/{ELASTIC}", on_gpu=on_gpu)


def _inference(story: Story, file: str, title: str, *, on_gpu: bool) -> Object:
    """Begin the step that applies a sample's Inference; return the Inference to apply."""
    (inference,) = sample(file)
    story.step(f"{title}: slipway apply -f manifests/samples/{file}")
    if not on_gpu:
        return inference
    share = ", ".join(f"{name}: {amount}" for name, amount in gpu.SHARE.items())
    story.show(f"with resources: {{gpu: {{{share}}}}} in every predictor")
    return gpu.of_inference(inference)


async def _serve(story: Story, kube: Kube, *, on_gpu: bool) -> None:
    inference = _inference(story, "chat.yaml", "One endpoint over both, 80/20", on_gpu=on_gpu)
    await kube.apply(kinds.INFERENCE, inference, manager="slipway")
    story.doing("starting replicas, and proving each through the gateway before it gets traffic")
    ready = await until(kube, kinds.INFERENCE, NAME, "Ready")
    story.show(tables.text(*tables.overview([ready], namespaced=False)))


async def _talk(story: Story, chats: Chats) -> None:
    story.step(f"Three streamed chats with {chats.client.base_url}, by the openai client")
    _, held_out = harbour_text.split()
    right = 0
    for conversation in held_out[:3]:
        result = await chats.ask(conversation.question, temperature=0)
        right += result.text.strip() == conversation.answer
        story.show(f"> {conversation.question}\n{result.text or result.error}")
    story.check("the answers, to questions that were not in the training, are right", holds=right == 3)


async def _compare(story: Story, kube: Kube, data_dir: DataDir, chats: Chats) -> None:
    story.step(f"{CHATS} streamed stories, by {USERS} users at once")
    before = await _counts_of_gateways(data_dir)
    earlier = len(chats.results)
    began = clock.monotonic()
    chats.start(USERS, itertools.islice(_requests(), CHATS), temperature=0.8, max_tokens=96)
    await chats.finish(lambda count: story.doing(f"{count - earlier} of {CHATS}"))
    seconds = clock.monotonic() - began
    results = chats.results[earlier:]
    predictors = (await kube.get(kinds.INFERENCE, NAMESPACE, NAME))["spec"]["predictors"]
    _show_results(story, results, predictors)
    by_engines = ChatTokens(sum(r.prompt_tokens for r in results), sum(r.tokens for r in results))
    rate = by_engines.generated / seconds
    story.show(f"{by_engines.generated:.0f} tokens in {seconds:.1f} s, {rate:.0f} tokens/s in all")
    after = await _counts_of_gateways(data_dir)
    by_gateway = ChatTokens(after.prompt - before.prompt, after.generated - before.generated)
    story.show(
        f"prompt and generated tokens by the engines: {by_engines.prompt:.0f} and {by_engines.generated:.0f};"
        f" by the gateway: {by_gateway.prompt:.0f} and {by_gateway.generated:.0f}"
    )
    agree = all(
        abs(gateway - engines) <= TOLERANCE * engines
        for gateway, engines in zip(by_gateway, by_engines, strict=True)
    )
    story.check("the gateway counts the tokens that the engines report", holds=agree)


def _requests() -> Iterator[str]:
    """Return questions that ask for stories, without end."""
    return (conversation.question for conversation in harbour_text.stories("demo"))


def _show_results(story: Story, results: Sequence[ChatResult], predictors: Sequence[Object]) -> None:
    """Print the arms' results, and check shares and failures."""
    failed = failures(results)
    answered = [result for result in results if not result.error]
    rows, as_expected = [], True
    total = sum(float(predictor["trafficWeight"]) for predictor in predictors)
    for predictor in predictors:
        own = [result for result in answered if result.arm == predictor["name"]]
        expected = float(predictor["trafficWeight"]) / total
        low, high = binom.interval(CONFIDENCE, len(answered), expected)
        as_expected &= bool(own) and low <= len(own) <= high
        if own:
            rows.append([predictor["name"], *_cells(own, len(answered), expected)])
    story.show(tables.text(HEADERS, rows))
    if failed:
        story.show(f"first failure: {failed[0]}")
    story.check(f"{len(results)} chats, {len(failed)} errors", holds=bool(results) and not failed)
    story.check("the arms' shares are what their weights say", holds=as_expected)


def _cells(own: Sequence[ChatResult], answered: int, expected: float) -> list[object]:
    first = [1000 * result.first for result in own]
    between = [1000 * result.inter_token for result in own]
    return [
        f"{len(own) / answered:.1%}",
        f"{expected:.1%}",
        len(own),
        f"{statistics.median(first):.0f}",
        f"{nearest_rank(first, 0.99):.0f}",
        f"{statistics.median(between):.1f}",
        f"{statistics.median(result.tokens / result.end for result in own):.0f}",
    ]


async def _counts_of_gateways(data_dir: DataDir) -> ChatTokens:
    """Return the counts on the gateways' metrics pages, since the start of Envoy."""
    totals = {metric_names.PROMPT_TOKENS: 0.0, metric_names.GENERATED_TOKENS: 0.0}
    await asyncio.sleep(1.5)  # a gateway reads Envoy's counts once a second
    async with http_reading.session() as session:
        for page in metrics.pages(data_dir.pages):
            if not page.component.startswith("gateway"):
                continue
            for line in (await _read(session, page)).splitlines():
                name = line.partition("{")[0]
                if name in totals:
                    totals[name] += float(line.rpartition(" ")[2])
    return ChatTokens(totals[metric_names.PROMPT_TOKENS], totals[metric_names.GENERATED_TOKENS])


async def _read(session: aiohttp.ClientSession, page: metrics.MetricsPage) -> str:
    """Return a metrics page.

    Raises:
        errors.UserError: it does not answer, or with an error.
    """
    try:
        answer = await http_reading.get(session, page.url, limit=metrics.MAX_BYTES, seconds=PAGE_SECONDS)
    except errors.Unavailable as error:  # of the page, and not of the API
        raise errors.UserError(f"the metrics page of {page.component} cannot be read: {error}") from error
    if answer.status != HTTPStatus.OK:
        raise errors.UserError(f"the metrics page of {page.component} answers with status {answer.status}")
    return answer.text


async def _scale(story: Story, kube: Kube, url: str, *, on_gpu: bool) -> None:
    title = "A model that is sized by waiting tokens"
    inference = _inference(story, "chat-elastic.yaml", title, on_gpu=on_gpu)
    await kube.apply(kinds.INFERENCE, inference, manager="slipway")
    story.doing("starting a replica, and proving it")
    await until(kube, kinds.INFERENCE, ELASTIC, "Ready")
    chats = Chats.of(url, ELASTIC)
    table = scaling.ScalingTable(story, kube, ARM)
    try:
        await _burst(story, table, chats)
        await scaling.silence(story, table)
        await _wake(story, table, chats)
    finally:
        await chats.end()


async def _burst(story: Story, table: scaling.ScalingTable, chats: Chats) -> None:
    story.step(
        f"A burst of {BURST_USERS} users, with a replica for each 600 waiting tokens:"
        f" slipway autoscale status {ARM} -w"
    )
    table.head()
    enough = asyncio.Event()
    chats.start(BURST_USERS, itertools.takewhile(lambda _: not enough.is_set(), _requests()), temperature=0.8)
    reached = await table.until(
        lambda status: status.get("readyReplicas", 0) >= BURST_REPLICAS,
        lambda: story.doing(f"{len(chats.results)} chats answered"),
    )
    enough.set()
    await chats.finish(lambda count: story.doing(f"{count} chats answered"))
    story.check(f"the burst brought {BURST_REPLICAS} replicas or more", holds=reached)
    failed = failures(chats.results)
    if failed:
        story.show(f"first failure: {failed[0]}")
    story.check(f"{len(chats.results)} chats, {len(failed)} errors", holds=not failed)


async def _wake(story: Story, table: scaling.ScalingTable, chats: Chats) -> None:
    story.step("One chat: it is held, not refused, and then streams")
    table.head()
    asked = asyncio.create_task(chats.ask(next(_requests())))
    awake = await table.until(lambda status: status.get("readyReplicas", 0) > 0)
    result = await asked
    story.check("it was answered, by a replica that it woke", holds=awake and not failures([result]))
    story.show(
        f"its first token came after {result.first:.2f} s, {result.tokens} tokens after {result.end:.2f} s"
    )
