"""What trials are measured with: a generator of load, the node's figures, the model's own description. Imported with the first trial."""

import base64
import logging
from contextlib import AbstractAsyncContextManager

import aiohttp

from serving import errors
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds
from serving.resources.cadvisor import ContainerUsage
from serving.resources.load import KeyOf
from serving.resources.trial import TrialSpec, TrialStatus
from tuner.load import requests
from tuner.load.generator import Generator
from tuner.load.plan import LoadPlan
from tuner.settings import LoadSettings, TunerSettings
from tuner.trials import machine_load, usage
from tuner.trials.cores import Cores
from tuner.trials.replicas import Replicas
from tuner.trials.run import Run
from tuner.trials.trial_status import Report

log = logging.getLogger(__name__)

_UNKNOWN = (errors.Temporary, errors.Unavailable, errors.Forbidden)
"""Answers of a node that does not say what is used: a trial goes on without."""


class Instruments:
    """The real ones."""

    def __init__(self, kube: Kube, settings: LoadSettings) -> None:
        self._kube = kube
        self._settings = settings

    async def plan(self, trial: Object, spec: TrialSpec, url: str) -> LoadPlan:
        """Return what is to be sent, by the trial's load and the model's description."""
        namespace = trial["metadata"]["namespace"]
        load = spec.load
        description = None
        if requests.needs_description(load):
            description = await self._description(f"{url}/v2/models/{spec.model_name}")
        return requests.plan(
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

    def generator(
        self, url: str, plan: LoadPlan, cores: tuple[int, ...]
    ) -> AbstractAsyncContextManager[Generator]:
        """Start locust on these cores."""
        return Generator.start(url, plan, self._settings, cores)

    async def usage(self, pod: Object) -> ContainerUsage | None:
        """Read what the replica has used."""
        try:
            return await usage.read(self._kube, pod)
        except _UNKNOWN as error:
            log.info("usage of %s: %s", pod["metadata"]["name"], error)
            return None

    def busy(self, address: str, cores: tuple[int, ...]) -> float | None:
        """Return for how long these cores have worked since the boot."""
        return machine_load.busy(address, cores)

    async def machine(self, pod: Object) -> str:
        """Return what the replica runs on."""
        try:
            return await usage.machine(self._kube, pod["spec"].get("nodeName") or "")
        except (*_UNKNOWN, errors.NotFound) as error:
            log.info("machine of %s: %s", pod["metadata"]["name"], error)
            return ""

    async def _description(self, url: str) -> Object | None:
        """Return the model's metadata by the Open Inference Protocol; None where it has none."""
        timeout = aiohttp.ClientTimeout(total=self._settings.request_timeout)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
                found = await response.json(content_type=None) if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            log.info("GET %s: %s", url, error)
            return None
        return found if isinstance(found, dict) else None

    async def _text(self, namespace: str, wanted: KeyOf | None) -> str | None:
        """Return a key of a ConfigMap.

        Raises:
            errors.Permanent: `LoadFailed`, there is none.
        """
        if wanted is None:
            return None
        try:
            found = await self._kube.get(kinds.CONFIG_MAP, namespace, wanted.name)
        except errors.NotFound as error:
            raise errors.Permanent("LoadFailed", f"there is no ConfigMap {wanted.name}") from error
        if wanted.key in (found.get("data") or {}):
            return str(found["data"][wanted.key])
        if wanted.key in (found.get("binaryData") or {}):
            return base64.b64decode(found["binaryData"][wanted.key]).decode()
        raise errors.Permanent("LoadFailed", f"ConfigMap {wanted.name} has no key {wanted.key}")


async def measure(
    kube: Kube, settings: TunerSettings, trial: Object, cores: Cores, *, replicas: Replicas, report: Report
) -> TrialStatus:
    """Measure one trial with the real instruments."""
    tools = Instruments(kube, settings.load)
    run = Run(trial, cores, replicas=replicas, tools=tools, report=report, settings=settings)
    return await run.measure()
