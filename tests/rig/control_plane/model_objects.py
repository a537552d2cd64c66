"""The objects of the controllers of models over an API in memory."""

import json
import re

from serving.objects import Object
from serving.resources import kinds, names
from tests.fakes.kube import FakeKube


def find(api: FakeKube, kind: kinds.Kind, name: str) -> Object:
    """Return an object; an empty one if there is none."""
    return next((obj for obj in api.find(kind) if obj["metadata"]["name"] == name), {})


def is_held(api: FakeKube, name: str) -> bool:
    """Whether a Job has the finalizer of the hand-off."""
    return names.HANDOFF_FINALIZER in (find(api, kinds.JOB, name)["metadata"].get("finalizers") or [])


def final_state(api: FakeKube, *, specs: bool = True) -> Object:
    """Return everything that the controllers write, without times and uids.

    Args:
        api: has the objects.
        specs: whether specs are compared too; not where they have paths of one run.
    """
    result: Object = {}
    for kind in (kinds.JOB, kinds.MODEL_VERSION, kinds.MODEL):
        for obj in api.find(kind):
            meta, status = obj["metadata"], dict(obj.get("status") or {})
            condition_list = [(c["type"], c["status"], c.get("reason")) for c in status.pop("conditions", [])]
            status.pop("finishTime", None)
            metadata = {key: meta.get(key) for key in ("labels", "annotations", "finalizers")}
            spec = obj["spec"] if specs else None
            result[f"{kind.kind} {meta['name']}"] = (metadata, spec, status, condition_list)
    return json.loads(re.sub(r"uid-?\d+", "uid", json.dumps(result)))
