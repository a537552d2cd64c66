"""Probes candidates through the gateway's private listener, on the path that traffic will take."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import aiohttp

from serving import clock, errors, protobuf
from serving.kube import Key
from serving.router.plan.service import Candidate, GatewayService
from serving.settings import GatewaySettings
from serving.system.network import http_reading

ANSWER_BYTES = 1024 * 1024
"""Longest answer to a probe, whose status alone counts: lists of models are shorter."""
RETRY_SECONDS = 1.0
"""Between probes of a revision that did not answer 200: long beside a probe, short beside a roll-out."""
TEXT_SECONDS = 30.0
"""Between reports of one candidate's failures that differ only in their text, which may have a counter."""

_READY = (1, 1)
"""Field number and value of `ready: true` in a ServerReadyResponse."""


class Prober:
    """Sends the probes of candidates to Envoy's private listener; only success proves a revision.

    Envoy must have acknowledged the configuration of the candidate.
    """

    def __init__(self, socket: Path, timeout: float) -> None:
        """Must be called in a running event loop.

        Args:
            socket: the Unix socket of the private listener.
            timeout: seconds for one request.
        """
        self._socket = socket
        self._timeout = timeout
        self._session = http_reading.session("http://probe", aiohttp.UnixConnector(path=str(socket)))

    async def first_failure(self, candidate: Candidate) -> str:
        """Return the first failure of a request; empty if every one succeeds."""
        for path in candidate.probe:
            request = self._grpc_failure if candidate.h2c else self._get_failure
            if failure := await request(f"{candidate.address}{path}"):
                return f"{'gRPC' if candidate.h2c else 'GET'} {path}: {failure}"
        return ""

    async def _get_failure(self, path: str) -> str | None:
        """Return why the path does not answer 200; None if it does."""
        try:
            page = await http_reading.get(self._session, path, limit=ANSWER_BYTES, seconds=self._timeout)
        except errors.Unavailable as error:
            return str(error)
        if page.status != 200:
            return f"{page.status} {' '.join(page.text.split())[:200]}".strip()
        return None

    async def _grpc_failure(self, method: str) -> str | None:
        """Return why the method does not answer `ready: true`; None if it does.

        The answer UNIMPLEMENTED is a success: the server need not speak the Open Inference Protocol, and its
        readiness probe has succeeded.
        """
        import grpc  # noqa: PLC0415 10 MB that only services with gRPC containers need

        async with grpc.aio.insecure_channel(f"unix:{self._socket}") as channel:
            call = channel.unary_unary(method, request_serializer=None, response_deserializer=None)
            try:
                response: bytes = await call(b"", timeout=self._timeout)
                is_ready = _READY in list(protobuf.parts(response))
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    return None  # from the replica: Envoy itself answers NOT_FOUND where it has no route
                return f"{error.code().name} {error.details()}"[:200].strip()
            except protobuf.Malformed as error:
                return f"not a ServerReadyResponse: {error}"
        return None if is_ready else "ready is false"

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


class CandidateProbes:
    """Probes the candidates of each Route that have a replica, again and again until they succeed."""

    def __init__(
        self, prober: Prober, settings: GatewaySettings, report: Callable[[Key, dict[str, str]], None]
    ) -> None:
        """Probe nothing yet.

        Args:
            prober: sends the requests.
            settings: of the gateway.
            report: called when a result has changed, with the Route and the results of all its candidates by
                backend: the failure, empty for a success. A failure that differs only in its text waits
                until `TEXT_SECONDS` after the last such report.
        """
        self._prober = prober
        self._report = report
        self._concurrency = asyncio.Semaphore(settings.probes_at_once)
        self._running: dict[Key, dict[Candidate, asyncio.Task[None]]] = {}
        """The probes of each Route. A probe that has succeeded is a finished task here, and not repeated."""
        self._results: dict[Key, dict[str, str]] = {}
        """By Route and backend, as in `report`."""
        self._group = asyncio.TaskGroup()

    async def run(self) -> None:
        """Send probes until cancelled; must run before `follow` is called."""
        try:
            async with self._group:
                await asyncio.Event().wait()
        finally:
            await self._prober.close()

    def follow(self, key: Key, service: GatewayService | None) -> dict[str, str]:
        """Probe the candidates of this service of a Route, and no others of the Route, from now on.

        Return the results so far, as in `report`.
        """
        due = {candidate for candidate in (service.candidates if service else ()) if candidate.has_replica}
        tasks = self._running.pop(key, {})
        for candidate in tasks.keys() - due:
            tasks.pop(candidate).cancel()
        for candidate in due - tasks.keys():
            tasks[candidate] = self._group.create_task(self._probe(key, candidate))
        names = {candidate.backend for candidate in due}
        results = {name: text for name, text in self._results.pop(key, {}).items() if name in names}
        if due:
            self._running[key], self._results[key] = tasks, results
        return dict(results)

    async def _probe(self, key: Key, candidate: Candidate) -> None:
        """Probe a candidate until it succeeds."""
        may_report_text = 0.0  # on the monotonic clock
        while True:
            async with self._concurrency:
                failure = await self._prober.first_failure(candidate)
            results, now = self._results[key], clock.monotonic()
            before = results.get(candidate.backend)
            differs_in_text = bool(before and failure)
            if before != failure and (not differs_in_text or now >= may_report_text):
                if differs_in_text:
                    may_report_text = now + TEXT_SECONDS
                results[candidate.backend] = failure
                self._report(key, dict(results))
            if not failure:
                return
            await asyncio.sleep(RETRY_SECONDS)
