"""`slipway tune stop` and `resume`."""

from typing import TYPE_CHECKING

from serving.cli.objects.conflicts import TUNE_MANAGER
from serving.cli.session import with_kube
from serving.cli.target import Target, full_name
from serving.cli.tune import summary
from serving.resources import kinds

if TYPE_CHECKING:
    from serving.kube import Kube

MERGE_PATCH = "application/merge-patch+json"


def suspend(name: str, meant: Target, *, suspended: bool) -> None:
    """Let an experiment start no more trials, or go on; what is so already stays."""

    async def work(kube: "Kube") -> None:
        path = kinds.PROFILING_EXPERIMENT.path(meant.namespace, name)
        found = await kube.request("GET", path)
        print(
            f"{full_name(kinds.PROFILING_EXPERIMENT, name)} {await _set(kube, path, found, suspended=suspended)}"
        )

    with_kube(meant.kubeconfig, work)


async def _set(kube: "Kube", path: str, found: dict[str, object], *, suspended: bool) -> str:
    if summary.has_ended(found):
        return f"has ended ({summary.phase(found)}); nothing changed"
    spec = found["spec"]
    assert isinstance(spec, dict)
    if bool(spec.get("suspend")) == suspended:
        return f"{'is stopped' if suspended else 'goes on'} already"
    await kube.request(
        "PATCH", path, body={"spec": {"suspend": suspended}}, query={"fieldManager": TUNE_MANAGER},
        content_type=MERGE_PATCH,
    )  # fmt: skip
    return "stopped: trials that run are finished, and no more are started" if suspended else "goes on"
