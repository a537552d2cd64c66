"""A share of a GPU as each mechanism has it: exact names, values that are legal, and never less than was asked."""

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.planning.gpu import mig, pod
from serving.planning.gpu.share import GIB, MIB, GpuShare, RenderedShare, describe_rounding
from serving.planning.inference import revision
from serving.resources import names
from serving.resources.inference import Gpu, Predictor, Resources

GPU_TYPES = list(mig.LADDERS)


def _gpu(
    mechanism: str, memory: str | None = "4Gi", cores: int | None = 30, gpu_type: str | None = None
) -> Gpu:
    return Gpu.model_validate({"memory": memory, "cores": cores, "mechanism": mechanism, "type": gpu_type})


def _revision(share: Gpu | None, **template: Any) -> revision.Revision:
    predictor = Predictor.model_validate(
        {
            "name": "a", "modelVersion": "m-1", "template": template or None,
            "resources": Resources(cpu="1", gpu=share).model_dump(by_alias=True, exclude_none=True),
        }
    )  # fmt: skip
    version = {"metadata": {"name": "m-1"}, "status": {"image": "i", "digest": "sha256:d"}}
    return revision.render("inf", "pytorch", predictor, version)


def _parts(share: Gpu) -> dict[str, Any]:
    """Return what a share adds to a Pod."""
    found, without = _revision(share), _revision(None)
    container = found.template["spec"]["containers"][0]
    before = without.template["spec"]["containers"][0]
    env = {e["name"]: e["value"] for e in container["env"] if e not in before["env"]}
    assert env.pop(names.DEVICE_ENV) == "cuda"
    limits = {k: v for k, v in container["resources"]["limits"].items() if k != "cpu"}
    assert container["resources"]["requests"] == container["resources"]["limits"]
    parts: dict[str, Any] = {"limits": limits, "env": env}
    parts |= {k: v for k, v in found.template["spec"].items() if k not in without.template["spec"]}
    return {name: part for name, part in parts.items() if part}


GOLDEN: dict[str, tuple[Gpu, dict[str, Any]]] = {
    "mps": (
        _gpu("mps"),
        {
            "limits": {"nvidia.com/gpu": "1"},
            "env": {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M"},
        },
    ),
    "mps, memory only": (
        _gpu("mps", "1500000000", None),
        {"limits": {"nvidia.com/gpu": "1"}, "env": {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1431M"}},
    ),
    "mig A100-40GB": (_gpu("mig", gpu_type="A100-40GB"), {"limits": {"nvidia.com/mig-3g.20gb": "1"}}),
    "mig A100-80GB": (_gpu("mig", "4Gi", 14, "A100-80GB"), {"limits": {"nvidia.com/mig-1g.10gb": "1"}}),
    "mig A30": (_gpu("mig", "6Gi", None, "A30"), {"limits": {"nvidia.com/mig-2g.12gb": "1"}}),
    "mig H200": (_gpu("mig", "16Gi", None, "H200"), {"limits": {"nvidia.com/mig-1g.35gb": "1"}}),
    "mig B200": (_gpu("mig", None, 100, "B200"), {"limits": {"nvidia.com/mig-7g.180gb": "1"}}),
    "hami": (
        _gpu("hami"),
        {
            "limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096", "nvidia.com/gpucores": "30"},
            "env": {"GPU_CORE_UTILIZATION_POLICY": "force"},
        },
    ),
    "hami, memory only": (
        _gpu("hami", cores=None),
        {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096"}},
    ),
    "ack": (
        _gpu("ack", "4100Mi", 31),
        {
            "limits": {"aliyun.com/gpu-mem": "5", "aliyun.com/gpu-core.percentage": "35"},
            "nodeSelector": {"ack.node.gpu.schedule": "core_mem"},
        },
    ),
    "ack, memory only": (
        _gpu("ack", "4Gi", None),
        {"limits": {"aliyun.com/gpu-mem": "4"}, "nodeSelector": {"ack.node.gpu.schedule": "cgpu"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GOLDEN)
def test_a_pod_says_what_the_mechanism_reads(case: str) -> None:
    share, parts = GOLDEN[case]
    assert _parts(share) == parts


def test_dra_has_a_claim_template_of_the_revisions_name() -> None:
    found = _revision(_gpu("dra", "4000Mi", 30))
    assert found.claim == {
        "spec": {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}],
                "config": [
                    {
                        "requests": ["gpu"],
                        "opaque": {
                            "driver": "gpu.nvidia.com",
                            "parameters": {
                                "apiVersion": "resource.nvidia.com/v1beta1",
                                "kind": "GpuConfig",
                                "sharing": {
                                    "strategy": "MPS",
                                    "mpsConfig": {
                                        "defaultActiveThreadPercentage": 30,
                                        "defaultPinnedDeviceMemoryLimit": "4000Mi",
                                    },
                                },
                            },
                        },
                    }
                ],
            }
        }
    }
    spec = found.template["spec"]
    assert spec["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": found.name}]
    assert spec["containers"][0]["resources"]["claims"] == [{"name": "gpu"}]
    assert found.name != _revision(_gpu("dra", "4000Mi", 31)).name, "the claim is part of what is hashed"


def test_a_revision_without_a_gpu_is_what_it_was() -> None:
    assert _revision(None).claim is None
    assert names.GPU_ANNOTATION not in _revision(None).template["metadata"]["annotations"]


def test_what_a_container_says_itself_counts_more() -> None:
    mine = {"name": "predictor", "env": [{"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "50"}]}
    container = _revision(_gpu("mps"), containers=[mine]).template["spec"]["containers"][0]
    assert {"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "50"} in container["env"]


def test_the_annotation_says_what_was_asked_granted_and_must_hold() -> None:
    told = json.loads(
        _revision(_gpu("ack", "4100Mi", 31)).template["metadata"]["annotations"][names.GPU_ANNOTATION]
    )
    assert told["mechanism"] == "ack"
    assert told["asked"] == {"memoryMiB": 4100, "coresPercent": 31}
    assert told["granted"] == {"memoryMiB": 5120, "coresPercent": 35}
    assert told["snapped"] == "memory 4100Mi became 5120Mi; cores 31% became 35%"
    assert "cGPU" in told["enforcedIf"][0]


def test_a_share_that_no_profile_has_is_refused_with_what_there_is() -> None:
    with pytest.raises(
        errors.Permanent, match=r"resources.gpu.memory: 39Gi; of a whole A100-40GB \(7g.40gb\) 38Gi"
    ):
        pod.render(_gpu("mig", "39Gi", None, "A100-40GB"))


def test_ack_without_memory_is_refused() -> None:
    with pytest.raises(errors.Permanent, match=r"resources\.gpu\.memory: ack shares cores with memory only"):
        pod.render(_gpu("ack", None, 30))


def test_every_type_of_gpu_that_can_be_named_has_a_ladder_that_only_rises() -> None:
    annotation = Gpu.model_fields["type"].annotation
    named = next(option for option in get_args(annotation) if option is not type(None))
    assert set(get_args(named)) == set(mig.LADDERS)
    for ladder in mig.LADDERS.values():
        for less, more in zip(ladder.profiles, ladder.profiles[1:], strict=False):
            assert less[0] <= more[0]
            assert less[1] <= more[1]


MECHANISMS = st.sampled_from(
    [("mps", None), ("hami", None), ("ack", None), ("dra", None), *(("mig", t) for t in GPU_TYPES)]
)
MEMORIES = st.integers(1, 20 * GIB)
CORES = st.integers(1, 100)


def _render(kind: tuple[str, str | None], memory: int | None, cores: int | None) -> RenderedShare:
    return pod.render(
        Gpu.model_validate(
            {
                "memory": None if memory is None else str(memory),
                "cores": cores,
                "mechanism": kind[0],
                "type": kind[1],
            }
        )
    )


def _at_least(granted: GpuShare, asked: GpuShare) -> bool:
    def enough(got: int | None, wanted: int | None) -> bool:
        return wanted is None or (got is not None and got >= wanted)

    return enough(granted.memory, asked.memory) and enough(granted.cores, asked.cores)


@given(MECHANISMS, MEMORIES, st.none() | CORES)
def test_never_less_than_asked_and_granting_what_was_granted_changes_nothing(
    kind: tuple[str, str | None], memory: int, cores: int | None
) -> None:
    once = _render(kind, memory, cores)
    assert _at_least(once.granted, GpuShare(memory, cores))
    again = _render(kind, once.granted.memory, once.granted.cores)
    assert again.granted == once.granted
    assert again == once, "the Pod says the same"
    assert not describe_rounding(once.granted, again.granted)


@given(MECHANISMS, MEMORIES, CORES, MEMORIES, CORES)
def test_who_asks_for_more_never_gets_less(
    kind: tuple[str, str | None], memory: int, cores: int, more_memory: int, more_cores: int
) -> None:
    less = _render(kind, min(memory, more_memory), min(cores, more_cores)).granted
    assert _at_least(_render(kind, max(memory, more_memory), max(cores, more_cores)).granted, less)


@given(MEMORIES)
def test_memory_is_granted_in_whole_units_with_less_than_one_over(memory: int) -> None:
    for kind, unit in (("mps", MIB), ("hami", MIB), ("dra", MIB), ("ack", GIB)):
        granted = _render((kind, None), memory, None).granted.memory
        assert granted is not None
        assert granted % unit == 0
        assert granted - memory < unit
