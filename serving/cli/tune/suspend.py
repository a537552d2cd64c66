"""`slipway tune stop` and `slipway tune resume`."""

from typing import TYPE_CHECKING

from serving.cli.objects.conflicts import TUNE_MANAGER
from serving.cli.options import with_target
from serving.cli.session import with_kube
from serving.cli.target import Target, full_name
from serving.cli.tune import summary
from serving.cli.tune.status import ExperimentName
from serving.resources import kinds
from serving.resources.kubernetes.patch_types import MERGE_PATCH

if TYPE_CHECKING:
    from serving.kube import Kube


@with_target
def stop(target: Target, name: ExperimentName) -> None:
    """Start no more trials.

    Running trials finish, and their results stay.
    """
    _suspend(name, target, suspended=True)


@with_target
def resume(target: Target, name: ExperimentName) -> None:
    """Resume a stopped experiment."""
    _suspend(name, target, suspended=False)


def _suspend(name: str, target: Target, *, suspended: bool) -> None:
    async def work(kube: "Kube") -> None:
        path = kinds.PROFILING_EXPERIMENT.path(target.namespace, name)
        experiment = await kube.request("GET", path)
        result = await _set(kube, path, experiment, suspended=suspended)
        print(f"{full_name(kinds.PROFILING_EXPERIMENT, name)} {result}")

    with_kube(target.kubeconfig, work)


async def _set(kube: "Kube", path: str, experiment: dict[str, object], *, suspended: bool) -> str:
    if summary.has_ended(experiment):
        return f"has ended ({summary.phase(experiment)}); nothing changed"
    spec = experiment["spec"]
    assert isinstance(spec, dict)
    if bool(spec.get("suspend")) == suspended:
        return f"is {'stopped' if suspended else 'active'} already"
    await kube.request(
        "PATCH",
        path,
        body={"spec": {"suspend": suspended}},
        query={"fieldManager": TUNE_MANAGER},
        content_type=MERGE_PATCH,
    )
    return "stopped: running trials finish, and no more are started" if suspended else "resumed"
