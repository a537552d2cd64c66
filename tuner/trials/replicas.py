"""The replicas that trials measure, through the API: start one, see how it stands, take it away. It measures nothing."""

import asyncio

from serving import errors
from serving.kube import Key, Kube, Watches
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.trial import TrialSpec
from tuner.settings import TrialSettings
from tuner.trials import replica_state, trial_deployment
from tuner.trials.cores import Cores
from tuner.trials.replica_state import ReplicaState

_TRIAL = "trial"
_REFUSALS = (400, 403, 422)
"""Answers to an object that will not become better by itself."""


class Replicas:
    """One per process."""

    def __init__(self, kube: Kube, settings: TrialSettings, watches: Watches) -> None:
        self._kube = kube
        self._settings = settings
        self._deployments = watches.of(kinds.DEPLOYMENT)
        self._pods = watches.of(kinds.POD, labels=names.TRIAL_LABEL)
        self._pods.index(
            _TRIAL, lambda pod: [str(Key(pod["metadata"]["namespace"], replica_state.of_trial(pod)))]
        )
        self._pods.on_change(self._pod_changed)
        self._deployments.on_change(lambda before, after: self._tell(Key.of(after or before or {})))
        self._news: dict[Key, asyncio.Event] = {}
        self.informers = (self._deployments, self._pods)

    async def start(self, trial: Object, spec: TrialSpec, cores: Cores) -> None:
        """Create the Deployment.

        Raises:
            errors.Permanent: `Refused`.
        """
        body = trial_deployment.deployment(trial, spec, cores, self._settings.grace_seconds)
        try:
            await self._kube.create(kinds.DEPLOYMENT, body)
        except errors.AlreadyExists as error:
            if await self._owned(trial) is None:
                raise errors.Permanent("Refused", f"{error}, and is not this trial's") from error
        except errors.ApiError as error:
            if error.code not in _REFUSALS:
                raise
            raise errors.Permanent("Refused", str(error)) from error

    def seen(self, trial: Object, uid: str = "") -> ReplicaState:
        """Return how the replica stands; with the `uid` of its Pod, whether that is still so."""
        key = Key.of(trial)
        return replica_state.look(self._deployments.get(*key), self._pods.by_index(_TRIAL, str(key)), uid)

    def pod(self, trial: Object, uid: str) -> Object | None:
        """Return the Pod as the cache has it."""
        found = self._pods.by_index(_TRIAL, str(Key.of(trial)))
        return next((pod for pod in found if pod["metadata"]["uid"] == uid), None)

    async def until(self, trial: Object, *states: str, uid: str = "") -> ReplicaState:
        """Wait until the replica is in one of these states."""
        while True:
            news = self._news.setdefault(Key.of(trial), asyncio.Event())
            seen = self.seen(trial, uid)
            if seen.state in states:
                return seen
            await news.wait()

    async def remove(self, trial: Object) -> None:
        """Delete the Deployment, and wait until its Pods have gone with it."""
        deployment = await self._owned(trial)
        if deployment is None:
            return
        meta = deployment["metadata"]
        await self._kube.delete(
            kinds.DEPLOYMENT, meta["namespace"], meta["name"], uid=meta["uid"], propagation="Foreground"
        )
        try:
            async with asyncio.timeout(self._settings.removal_seconds):
                while await self._owned(trial) is not None:  # noqa: ASYNC110 no watch of ours says it for sure
                    await asyncio.sleep(self._settings.removal_poll_seconds)
        except TimeoutError as error:
            raise errors.Temporary("NotRemoved", f"Deployment {meta['name']} does not go") from error

    def has(self, trial: Object) -> bool:
        """Whether there is a Deployment of the trial's name, as far as the cache knows."""
        return self._deployments.get(*Key.of(trial)) is not None

    async def _owned(self, trial: Object) -> Object | None:
        meta = trial["metadata"]
        try:
            found = await self._kube.get(kinds.DEPLOYMENT, meta["namespace"], meta["name"])
        except errors.NotFound:
            return None
        owners = found["metadata"].get("ownerReferences") or []
        return found if any(owner["uid"] == meta["uid"] for owner in owners) else None

    def _pod_changed(self, before: Object | None, after: Object | None) -> None:
        pod = after or before or {}
        self._tell(Key(pod["metadata"]["namespace"], replica_state.of_trial(pod)))

    def _tell(self, key: Key) -> None:
        if (news := self._news.pop(key, None)) is not None:
            news.set()
