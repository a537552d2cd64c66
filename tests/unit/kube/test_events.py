"""Events."""

from serving.kube import EventRecorder
from serving.resources import kinds
from tests.fakes.kube import FakeKube

INFERENCE = {
    "apiVersion": "slipway.dev/v1alpha1",
    "kind": "Inference",
    "metadata": {"name": "digits", "namespace": "default", "uid": "u"},
}


async def test_new_event_takes_one_request() -> None:
    api = FakeKube()
    await EventRecorder(api, "inference").emit(INFERENCE, "Ready", "all is well")
    assert len(api.writes) == 1
    (event,) = api.find(kinds.EVENT_V1)
    assert (event["reason"], event["count"]) == ("Ready", 1)


async def test_repeated_event_raises_its_count() -> None:
    api = FakeKube()
    recorder = EventRecorder(api, "inference")
    for _ in range(3):
        await recorder.emit(INFERENCE, "Ready", "all is well")
    await recorder.emit(INFERENCE, "Ready", "all is better")
    assert sorted(event["count"] for event in api.find(kinds.EVENT_V1)) == [1, 3]
