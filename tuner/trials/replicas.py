"""Starts, watches and removes the replicas of trials through the API."""

import asyncio

from serving import errors
from serving.kube import Key, Kube, Watches
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.tuning.trial import TrialSpec
from tuner.settings import TrialSettings
from tuner.trials import replica_state, trial_deployment
from tuner.trials.cores import Cores
from tuner.trials.replica_state import TrialReplicaState

REMOVAL_POLL_SECONDS = 0.1
"""Pause between checks that a replica has been removed; a removal takes a second or two."""
_TRIAL = "trial"
"""Index of the Pods by the key of their trial."""


class TrialReplicas:
    """The replicas of all trials, each a Deployment of the trial's name; one object per process."""

    def __init__(self, kube: Kube, settings: TrialSettings, watches: Watches) -> None:
        self._kube = kube
        self._settings = settings
        self._deployments = watches.of(kinds.DEPLOYMENT)
        self._pods = watches.of(kinds.POD, labels=names.TRIAL_LABEL)
        self._pods.index(
            _TRIAL, lambda pod: [str(Key(pod["metadata"]["namespace"], replica_state.of_trial(pod)))]
        )
        self._pods.on_change(self._pod_changed)
        self._deployments.on_change(lambda before, after: self._wake(Key.of(after or before or {})))
        self._changes: dict[Key, asyncio.Event] = {}
        """Set at the next change of a trial's Deployment or Pods, and then dropped; by the trial's key."""
        self.informers = (self._deployments, self._pods)
        """Run by `watches`; to wait for before the first call."""

    async def start(self, trial: Object, spec: TrialSpec, cores: Cores) -> None:
        """Create the Deployment, unless the trial has one.

        Raises:
            errors.Permanent: `Refused`, the API refuses it; `Interrupted`, a Deployment of its name is not
                the trial's, which says nothing about the spec.
        """
        body = trial_deployment.deployment(trial, spec, cores, self._settings.grace_seconds)
        try:
            await self._kube.create(kinds.DEPLOYMENT, body)
        except errors.AlreadyExists as error:
            if await self._owned(trial) is None:
                raise errors.Permanent("Interrupted", f"{error}, and is not this trial's") from error
        except errors.ApiError as error:
            if not errors.is_refusal(error):
                raise
            raise errors.Permanent("Refused", str(error)) from error

    def state(self, trial: Object, pod_uid: str = "") -> TrialReplicaState:
        """Return the state of the replica; with a `pod_uid`, another Pod is an interruption."""
        key = Key.of(trial)
        pods = self._pods.by_index(_TRIAL, str(key))
        return replica_state.state_of(self._deployments.get(*key), pods, pod_uid)

    def pod(self, trial: Object, pod_uid: str) -> Object | None:
        """Return the Pod from the cache; None if it is not there."""
        pods = self._pods.by_index(_TRIAL, str(Key.of(trial)))
        return next((pod for pod in pods if pod["metadata"]["uid"] == pod_uid), None)

    async def until(self, trial: Object, *states: str, pod_uid: str = "") -> TrialReplicaState:
        """Return the replica once its `state` is one of `states`; `pod_uid` is as for `state()`."""
        while True:
            change = self._changes.setdefault(Key.of(trial), asyncio.Event())
            replica = self.state(trial, pod_uid)
            if replica.state in states:
                return replica
            await change.wait()

    async def remove(self, trial: Object) -> None:
        """Delete the trial's Deployment, if it has one, and wait until its Pods are gone.

        Raises:
            errors.Temporary: `NotRemoved`, it exists after `removal_seconds`.
        """
        deployment = await self._owned(trial)
        if deployment is None:
            return
        meta = deployment["metadata"]
        await self._kube.delete(
            kinds.DEPLOYMENT, meta["namespace"], meta["name"], uid=meta["uid"], propagation="Foreground"
        )
        try:
            async with asyncio.timeout(self._settings.removal_seconds):
                while await self._owned(trial) is not None:  # noqa: ASYNC110 the cache may be behind
                    await asyncio.sleep(REMOVAL_POLL_SECONDS)
        except TimeoutError as error:
            raise errors.Temporary("NotRemoved", f"Deployment {meta['name']} is not removed") from error

    def has(self, trial: Object) -> bool:
        """Return whether the cache has a Deployment of the trial's name."""
        return self._deployments.get(*Key.of(trial)) is not None

    async def _owned(self, trial: Object) -> Object | None:
        """Return the Deployment that the trial owns, from the API; None if there is none."""
        meta = trial["metadata"]
        try:
            deployment = await self._kube.get(kinds.DEPLOYMENT, meta["namespace"], meta["name"])
        except errors.NotFound:
            return None
        owners = deployment["metadata"].get("ownerReferences") or []
        return deployment if any(owner["uid"] == meta["uid"] for owner in owners) else None

    def _pod_changed(self, before: Object | None, after: Object | None) -> None:
        pod = after or before or {}
        self._wake(Key(pod["metadata"]["namespace"], replica_state.of_trial(pod)))

    def _wake(self, key: Key) -> None:
        if (change := self._changes.pop(key, None)) is not None:
            change.set()
