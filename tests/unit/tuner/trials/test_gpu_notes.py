"""Notes on a trial's share of a GPU."""

from typing import Any

from serving.planning.inference import revision
from serving.resources.inference import Predictor
from serving.resources.tuning.trial import Window
from tests.objects.tuning import experiments
from tuner.trials import gpu_notes

VERSION = {"metadata": {"name": "m-1"}, "status": {"image": "i", "digest": "sha256:d"}}


def _template(**gpu: Any) -> dict[str, Any]:
    predictor = Predictor.model_validate({"name": "a", "modelVersion": "m-1", "resources": {"gpu": gpu}})
    return revision.render("inf", "pytorch", predictor, VERSION).template


def _window(gpu_bytes: int) -> Window:
    return Window.model_validate(experiments.window(usage={"gpuMemoryBytes": gpu_bytes}))


def test_conditions_of_a_share_are_noted_before_the_measurement() -> None:
    (assumed,) = gpu_notes.before(_template(memory="4Gi", cores=30))
    assert assumed.startswith("GpuShareAssumed: mps keeps to it only if the node's MPS control daemon runs")
    assert "; and if on a cluster" in assumed


def test_snapped_share_is_noted() -> None:
    snapped = gpu_notes.before(_template(memory="4100Mi", cores=31, mechanism="ack"))[0]
    assert snapped == "GpuShareSnapped: memory 4100Mi became 5120Mi; cores 31% became 35%"


def test_memory_above_the_share_is_noted() -> None:
    template = _template(memory="1Gi")
    assert gpu_notes.after(template, [_window(1 << 30)]) == []
    assert gpu_notes.after(template, [_window(1 << 20), _window(1 << 31)]) == [
        "LimitNotEnforced: it used 2147483648 bytes of GPU memory of 1073741824"
    ]
    assert gpu_notes.after(_template(cores=30), [_window(1 << 31)]) == []


def test_unknown_gpu_usage_is_noted() -> None:
    assert gpu_notes.after(_template(cores=30), [_window(0)])[0].startswith("GpuUsageUnknown")


def test_no_notes_without_a_gpu() -> None:
    template = {"metadata": {}, "spec": {"containers": []}}
    assert gpu_notes.before(template) == []
    assert gpu_notes.after(template, [_window(0)]) == []
