"""The instruments of a trial: locust, the usage figures of the replica's node, the model's metadata."""

import asyncio
import base64
import logging
from contextlib import AbstractAsyncContextManager
from functools import partial

import orjson

from serving import errors
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds
from serving.resources.formats.cadvisor import ContainerUsage
from serving.resources.tuning.load import KeyOf
from serving.resources.tuning.trial import TrialSpec, TrialStatus
from serving.system.isolation.user_ids import UserIds
from serving.system.network import http_reading
from tuner.load import requests
from tuner.load.generator import Generator
from tuner.load.plan import LoadPlan
from tuner.settings import LoadSettings, TunerSettings
from tuner.trials import cpu_time, usage
from tuner.trials.cores import Cores
from tuner.trials.replicas import TrialReplicas
from tuner.trials.run import TrialRun
from tuner.trials.trial_status import Report

log = logging.getLogger(__name__)

METADATA_BYTES = 1024 * 1024
"""Most bytes of a model's metadata: ten thousand inputs and outputs of 100 bytes."""

_UNKNOWN = (errors.Temporary, errors.Unavailable, errors.Forbidden, ValueError, RuntimeError)
"""Errors when a node gives no usage figures, gives them in no known format (ValueError), or no thread can be
started to parse them (RuntimeError); the trial continues without them."""


class RealInstruments:
    """The instruments outside tests; `tuner.trials.run.TrialInstruments` describes each method."""

    def __init__(self, kube: Kube, settings: LoadSettings, user_ids: UserIds | None) -> None:
        """`user_ids` lease load generators a user; None where this process is not root."""
        self._kube = kube
        self._settings = settings
        self._user_ids = user_ids

    async def plan(self, trial: Object, spec: TrialSpec, url: str) -> LoadPlan:
        """Return the requests of the trial's load; some loads need the model's metadata from `url`.

        Raises:
            errors.Permanent: `LoadFailed`, they cannot be made.
            errors.Temporary: `LoadFailed`, the replica gives no metadata now, or no thread can be started.
        """
        namespace = trial["metadata"]["namespace"]
        load = spec.load
        description = None
        if requests.needs_description(load):
            description = await self._description(f"{url}/v2/models/{spec.model_name}")
        planning = partial(
            requests.plan,
            load,
            description,
            spec.model_name,
            parameters={
                **{setting.name: setting.value for setting in spec.settings},
                "batch": str(spec.batch),
            },
            recorded=await self._text(namespace, load.requests),
            locustfile=await self._text(namespace, load.locustfile),
            seed=spec.seed,
        )
        # In a thread: to draw the values of large inputs takes a second.
        try:
            return await asyncio.to_thread(planning)
        except RuntimeError as error:
            raise errors.Temporary("LoadFailed", f"the requests cannot be made: {error}") from error

    def generator(
        self, url: str, plan: LoadPlan, cores: tuple[int, ...]
    ) -> AbstractAsyncContextManager[Generator]:
        """Start locust on these cores; it sends the requests of `plan` to `url`."""
        return Generator.start(url, plan, self._settings, cores, user_ids=self._user_ids)

    async def usage(self, pod: Object) -> ContainerUsage | None:
        """Return the usage counters of the replica; None if its node does not report them."""
        try:
            return await usage.read(self._kube, pod)
        except _UNKNOWN as error:
            log.info("usage of %s: %s", pod["metadata"]["name"], error)
            return None

    def busy_seconds(self, address: str, cores: tuple[int, ...]) -> float | None:
        """Return the seconds that these cores have worked since boot; None on another machine."""
        return cpu_time.busy_seconds_at(address, cores)

    async def machine(self, pod: Object) -> str:
        """Return processor, cores and GPU of the replica's machine as text; empty if unknown."""
        try:
            return await usage.machine(self._kube, pod["spec"].get("nodeName") or "")
        except (*_UNKNOWN, errors.NotFound) as error:
            log.info("machine of %s: %s", pod["metadata"]["name"], error)
            return ""

    async def _description(self, url: str) -> Object | None:
        """Return the model's metadata by the Open Inference Protocol; None if the replica has none.

        An answer above METADATA_BYTES, a status below 500 other than 200 and 429, and anything but a JSON
        object count as no metadata.

        Raises:
            errors.Temporary: `LoadFailed`, there is no answer, or one of status 429 or 500 to 599.
        """
        seconds = self._settings.request_timeout
        try:
            async with http_reading.session() as session:
                page = await http_reading.get(session, url, limit=METADATA_BYTES, seconds=seconds)
            metadata = orjson.loads(page.body) if page.status == 200 else None
        except (http_reading.UnreadablePage, ValueError) as error:
            log.info("GET %s: %s", url, error)
            return None
        except errors.Unavailable as error:
            raise errors.Temporary("LoadFailed", f"GET {url}: {error}") from error
        if page.status == 429 or page.status >= 500:
            raise errors.Temporary("LoadFailed", f"GET {url}: status {page.status}")
        return metadata if isinstance(metadata, dict) else None

    async def _text(self, namespace: str, reference: KeyOf | None) -> str | None:
        """Return the text of a ConfigMap's key; None without a reference.

        Raises:
            errors.Permanent: `LoadFailed`, the ConfigMap or the key is missing, or its value is no UTF-8.
        """
        if reference is None:
            return None
        try:
            config_map = await self._kube.get(kinds.CONFIG_MAP, namespace, reference.name)
        except errors.NotFound as error:
            raise errors.Permanent("LoadFailed", f"there is no ConfigMap {reference.name}") from error
        except errors.Invalid as error:
            raise errors.Permanent("LoadFailed", str(error)) from error
        if reference.key in (config_map.get("data") or {}):
            return str(config_map["data"][reference.key])
        if reference.key in (config_map.get("binaryData") or {}):
            try:
                return base64.b64decode(config_map["binaryData"][reference.key]).decode()
            except UnicodeDecodeError as error:
                message = f"ConfigMap {reference.name}: {reference.key} must be UTF-8 ({error})"
                raise errors.Permanent("LoadFailed", message) from error
        raise errors.Permanent("LoadFailed", f"ConfigMap {reference.name} has no key {reference.key}")


async def measure(
    kube: Kube,
    settings: TunerSettings,
    trial: Object,
    cores: Cores,
    *,
    replicas: TrialReplicas,
    report: Report,
    user_ids: UserIds | None,
) -> TrialStatus:
    """Measure one trial with RealInstruments, and return its last status; the caller removes the replica."""
    run = TrialRun(
        trial,
        cores,
        replicas=replicas,
        instruments=RealInstruments(kube, settings.load, user_ids),
        report=report,
        settings=settings,
    )
    return await run.measure()
