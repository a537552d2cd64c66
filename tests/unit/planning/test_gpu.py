"""GPU shares in each mechanism: exact names, valid values, and never less than requested."""

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.planning.gpu import dra, mig, pod
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
            "name": "a",
            "modelVersion": "m-1",
            "template": template or None,
            "resources": Resources(cpu="1", gpu=share).model_dump(by_alias=True, exclude_none=True),
        }
    )
    version = {"metadata": {"name": "m-1"}, "status": {"image": "i", "digest": "sha256:d"}}
    return revision.render("inf", "pytorch", predictor, version)


def _parts(share: Gpu) -> dict[str, Any]:
    """Return the fields that a share adds to a Pod."""
    with_share, without = _revision(share), _revision(None)
    container = with_share.template["spec"]["containers"][0]
    plain_container = without.template["spec"]["containers"][0]
    env = {e["name"]: e["value"] for e in container["env"] if e not in plain_container["env"]}
    assert env.pop(names.DEVICE_ENV) == "cuda"
    limits = {k: v for k, v in container["resources"]["limits"].items() if k != "cpu"}
    assert container["resources"]["requests"] == container["resources"]["limits"]
    parts: dict[str, Any] = {"limits": limits, "env": env}
    parts |= {k: v for k, v in with_share.template["spec"].items() if k not in without.template["spec"]}
    return {name: part for name, part in parts.items() if part}


@pytest.mark.parametrize("mechanism", ["mps", "mig", "hami", "ack", "dra"])
def test_share_is_refused_with_its_field_when_its_memory_is_out_of_all_bounds(mechanism: str) -> None:
    with pytest.raises(errors.Permanent, match=r"resources\.gpu\.memory.*too large"):
        pod.render(_gpu(mechanism, "1e99", gpu_type="H200" if mechanism == "mig" else None))


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
}


@pytest.mark.parametrize("case", GOLDEN)
def test_pod_carries_the_limits_and_environment_of_its_mechanism(case: str) -> None:
    share, parts = GOLDEN[case]
    assert _parts(share) == parts


def test_dra_claim_template_is_named_after_the_revision() -> None:
    rendered = _revision(_gpu("dra", "4000Mi", 30))
    assert rendered.claim == {
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
    spec = rendered.template["spec"]
    assert spec["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": rendered.name}]
    assert spec["containers"][0]["resources"]["claims"] == [{"name": "gpu"}]
    assert rendered.name != _revision(_gpu("dra", "4000Mi", 31)).name, "the claim is part of what is hashed"


def test_revision_without_a_gpu_has_no_claim_and_no_annotation() -> None:
    assert _revision(None).claim is None
    assert names.GPU_ANNOTATION not in _revision(None).template["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("mechanism", "container", "field", "granted", "value"),
    [
        (
            "mps",
            {"env": [{"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "50"}]},
            "env[name='CUDA_MPS_ACTIVE_THREAD_PERCENTAGE']",
            "30",
            "50",
        ),
        (
            "mps",
            {"env": [{"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "valueFrom": {"fieldRef": {}}}]},
            "env[name='CUDA_MPS_PINNED_DEVICE_MEM_LIMIT']",
            "0=4096M",
            "a reference",
        ),
        (
            "hami",
            {"env": [{"name": "GPU_CORE_UTILIZATION_POLICY", "value": "default"}]},
            "env[name='GPU_CORE_UTILIZATION_POLICY']",
            "force",
            "default",
        ),
        (
            "hami",
            {"resources": {"limits": {"nvidia.com/gpumem": "9000"}}},
            "resources.limits['nvidia.com/gpumem']",
            "4096",
            "9000",
        ),
        (
            "ack",
            {"resources": {"requests": {"aliyun.com/gpu-mem": 9}}},
            "resources.requests['aliyun.com/gpu-mem']",
            "4",
            9,
        ),
        ("mps", {"resources": {"limits": None}}, "resources.limits", {"nvidia.com/gpu": "1"}, None),
        ("mps", {"resources": {"requests": None}}, "resources.requests", {"nvidia.com/gpu": "1"}, None),
        ("dra", {"resources": {"claims": None}}, "resources.claims", [{"name": "gpu"}], None),
    ],
)
def test_container_that_changes_a_limit_of_its_share_is_refused_with_the_field(
    mechanism: str, container: dict[str, Any], field: str, granted: object, value: object
) -> None:
    with pytest.raises(errors.Permanent) as refusal:
        _revision(_gpu(mechanism), containers=[{"name": "predictor", **container}])
    assert refusal.value.reason == "TemplateInvalid"
    assert str(refusal.value) == (
        f"spec.predictors[name='a'].template.containers[name='predictor'].{field}: "
        f"must be {granted!r}, as resources.gpu sets it, got {value!r}"
    )


def test_container_keeps_its_variables_beside_those_of_its_share() -> None:
    same = {"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "30"}
    other = {"name": "OMP_NUM_THREADS", "value": "2"}
    sidecar = {"name": "monitor", "env": [{"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "5"}]}
    own = [{"name": "predictor", "env": [same, other]}, sidecar]
    containers = _revision(_gpu("mps"), containers=own).template["spec"]["containers"]
    assert [entry for entry in containers[0]["env"] if entry in (same, other)] == [same, other]
    assert containers[1]["env"] == sidecar["env"]
    free = {"name": "predictor", "env": [{"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "50"}]}
    assert (
        free["env"][0] in _revision(_gpu("hami"), containers=[free]).template["spec"]["containers"][0]["env"]
    )


def test_container_without_limits_of_its_own_is_accepted_when_its_share_is_a_claim() -> None:
    own = {"name": "predictor", "resources": {"limits": None, "requests": None}}
    container = _revision(_gpu("dra"), containers=[own]).template["spec"]["containers"][0]
    assert container["resources"]["claims"] == [{"name": pod.CLAIM}]


def test_annotation_lists_requested_and_granted_share_and_preconditions() -> None:
    annotation = json.loads(
        _revision(_gpu("ack", "4100Mi", 31)).template["metadata"]["annotations"][names.GPU_ANNOTATION]
    )
    assert annotation["mechanism"] == "ack"
    assert annotation["asked"] == {"memoryMiB": 4100, "coresPercent": 31}
    assert annotation["granted"] == {"memoryMiB": 5120, "coresPercent": 35}
    assert annotation["snapped"] == "memory 4100Mi became 5120Mi; cores 31% became 35%"
    assert "cGPU" in annotation["enforcedIf"][0]


@pytest.mark.parametrize(
    ("requested", "granted", "text"),
    [
        (4100 * MIB, 5 * GIB, "memory 4100Mi became 5120Mi"),
        (8 * GIB + 1, 8 * GIB + MIB, "memory 8589934593 became 8193Mi"),
        (1_048_575 * MIB, 1024 * GIB, "memory 1048575Mi became 1048576Mi"),
    ],
)
def test_rounding_is_described_by_exact_amounts(requested: int, granted: int, text: str) -> None:
    assert describe_rounding(GpuShare(requested), GpuShare(granted)) == text


def test_share_larger_than_every_profile_is_refused_with_the_largest() -> None:
    with pytest.raises(
        errors.Permanent, match=r"resources.gpu.memory: 39Gi; of a whole A100-40GB \(7g.40gb\) 38Gi"
    ):
        pod.render(_gpu("mig", "39Gi", None, "A100-40GB"))


@pytest.mark.parametrize("memory", ["0", "4", "1e30", "1e-30", "1025Gi", "1048575.5"])
def test_amount_of_memory_that_no_gpu_has_is_refused(memory: str) -> None:
    with pytest.raises(errors.Permanent, match=r"^resources\.gpu\.memory: ") as refused:
        pod.render(_gpu("mps", memory, None))
    assert refused.value.reason == "GpuShareInvalid"


def test_ack_without_memory_is_refused() -> None:
    with pytest.raises(errors.Permanent, match=r"resources\.gpu\.memory: ack shares cores with memory only"):
        pod.render(_gpu("ack", None, 30))


def test_every_gpu_type_has_a_ladder_of_rising_profiles() -> None:
    annotation = Gpu.model_fields["type"].annotation
    gpu_types = next(option for option in get_args(annotation) if option is not type(None))
    assert set(get_args(gpu_types)) == set(mig.LADDERS)
    for ladder in mig.LADDERS.values():
        for smaller, larger in zip(ladder.profiles, ladder.profiles[1:], strict=False):
            assert smaller.slices <= larger.slices
            assert smaller.gigabytes <= larger.gigabytes


MECHANISMS = st.sampled_from(
    [("mps", None), ("hami", None), ("ack", None), ("dra", None), *(("mig", t) for t in GPU_TYPES)]
)
MEMORIES = st.integers(MIB, 20 * GIB)
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


def _at_least(granted: GpuShare, requested: GpuShare) -> bool:
    def enough(granted_amount: int | None, requested_amount: int | None) -> bool:
        return requested_amount is None or (granted_amount is not None and granted_amount >= requested_amount)

    return enough(granted.memory, requested.memory) and enough(granted.cores, requested.cores)


@given(MECHANISMS, MEMORIES, st.none() | CORES)
def test_granted_share_covers_the_request_and_is_granted_unchanged(
    kind: tuple[str, str | None], memory: int, cores: int | None
) -> None:
    rendered = _render(kind, memory, cores)
    assert _at_least(rendered.granted, GpuShare(memory, cores))
    rendered_again = _render(kind, rendered.granted.memory, rendered.granted.cores)
    assert rendered_again.granted == rendered.granted
    assert rendered_again == rendered, "both Pods are equal"
    assert not describe_rounding(rendered.granted, rendered_again.granted)


@given(MECHANISMS, MEMORIES, CORES, MEMORIES, CORES)
def test_larger_request_never_gets_a_smaller_share(
    kind: tuple[str, str | None], memory: int, cores: int, more_memory: int, more_cores: int
) -> None:
    smaller_share = _render(kind, min(memory, more_memory), min(cores, more_cores)).granted
    assert _at_least(_render(kind, max(memory, more_memory), max(cores, more_cores)).granted, smaller_share)


@given(MEMORIES)
def test_memory_is_rounded_up_to_the_next_whole_unit(memory: int) -> None:
    for kind, unit in (("mps", MIB), ("hami", MIB), ("dra", MIB), ("ack", GIB)):
        granted = _render((kind, None), memory, None).granted.memory
        assert granted is not None
        assert granted % unit == 0
        assert granted - memory < unit


def test_parameters_of_a_claim_are_sorted_as_an_api_server_writes_them() -> None:
    claim = dra.render(GpuShare(1 << 30, 30)).claim
    assert claim is not None
    parameters = claim["spec"]["devices"]["config"][0]["opaque"]["parameters"]
    assert json.dumps(parameters) == json.dumps(parameters, sort_keys=True)
