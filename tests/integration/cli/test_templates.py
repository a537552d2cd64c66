"""`-o jsonpath` and `-o custom-columns` print what the real kubectl prints for the same objects."""

from pathlib import Path

import pytest

from serving.data_dir import DataDir
from serving.kube import Kube
from serving.resources import kinds
from tests.rig.command_line import Slipway
from tests.rig.control_plane.kubectl import Kubectl, needs_kubectl

pytestmark = needs_kubectl

ACTIONS = [
    "{.kind}",
    "{.items[0].metadata.name}",
    "{.items[*].metadata.name}",
    "{.items[-1:].metadata.name}",
    "{.items[0:2].metadata.name}",
    "{.items[0,1].metadata.name}",
    "{.items[:1].spec.predictors}",
    "{.items[0].spec.predictors[0].trafficWeight}",
    "{.items[0].metadata['name','namespace']}",
    r"{.items[*].metadata.labels.team\.example/name}",
    "{.items[0].metadata.labels}",
    "{.items[0].metadata.annotations}{.items[0].metadata.annotations.note}",
    "{.items[*].spec.nope}",
    "{.items[0].spec.predictors.nope}",
    '{.items[?(@.metadata.name=="faces")].spec.predictors[*].name}',
    "{.items[?(@.metadata.name!='faces')].metadata.name}",
    "{.items[*].spec.predictors[?(@.trafficWeight>20)].name}",
    "{.items[*].spec.predictors[?(@.trafficWeight<=10)].name}",
    "{.items[?(@.metadata.labels)].metadata.name}",
    "{.items[?(@.spec.nope)].metadata.name}",
    "{..modelVersion}",
    '{range .items[*]}{.metadata.name}{"\\t"}{.spec.predictors[*].trafficWeight}{"\\n"}{end}',
    "{range .items[*]}{range .spec.predictors[*]}{.name}={.trafficWeight} {end};{end}",
    "{range .nope[*]}x{end}",
    "{range .items[*]}{@.metadata.name},{end}",
    "{'single' }{\"a\\u00e9\\x41\"}",
    "{.metadata.resourceVersion}{3}{true}{2.50}",
    "text {.kind} outside",
]
# kubectl visits the fields of an object in random order.
RECURSIVE = "{.items..name}"
NOT_A_TEMPLATE = ["{.kind", "{.items[a]}", "{kind}", "{end}", "{..  ..a}", '{"a}']
DOES_NOT_FIT = ["{.items[7]}", "{.kind[0]}", "{.items[*].spec.predictors[?(@.name==1)]}", "{.items[2:1]}"]
COLUMNS = (
    "NAME:.metadata.name,Arms:.spec.predictors[*].name,first:{.spec.predictors[0]},LABELS:metadata.labels,"
    "NONE:.spec.nope,W:.spec.predictors[?(@.trafficWeight>20)].trafficWeight,ALL:.spec.predictors"
)


@pytest.fixture
async def kubectl(kube: Kube, api_server: DataDir, tmp_path: Path) -> Kubectl:
    """kubectl in a namespace with three Inferences."""
    for name, weights in (("digits", (90, 10)), ("faces", (30,)), ("words", (0, 5, 95))):
        predictors = [
            {"name": f"arm{number}", "modelVersion": f"{name}-v{number}", "trafficWeight": weight}
            for number, weight in enumerate(weights)
        ]
        labels = {} if name == "words" else {"labels": {"team.example/name": name, "a": "b"}}
        note = {"annotations": {"note": "<a & b>"}}
        await kube.create(
            kinds.INFERENCE,
            {
                "metadata": {"name": name, **labels, **note},
                "spec": {"framework": "sklearn", "predictors": predictors},
            },
        )
    return Kubectl(api_server.kubeconfig, tmp_path, kube.namespace)


async def test_a_template_prints_what_kubectl_prints(kubectl: Kubectl, slipway: Slipway) -> None:
    for target in (["inf"], ["inf", "faces"]):
        actions = ACTIONS if len(target) == 1 else [each for each in ACTIONS if ".items[0]" not in each]
        output = "jsonpath=" + "\n|".join(actions)
        expected = kubectl("get", *target, "-o", output)
        code, out, err = await slipway("get", *target, "-o", output)
        assert (code, out.split("\n|"), err) == (0, expected.split("\n|"), "")


async def test_recursive_descent_visits_every_field_that_kubectl_visits(
    kubectl: Kubectl, slipway: Slipway
) -> None:
    expected = kubectl("get", "inf", "-o", f"jsonpath={RECURSIVE}")
    code, out, err = await slipway("get", "inf", "-o", f"jsonpath={RECURSIVE}")
    assert (code, sorted(out.split()), err) == (0, sorted(expected.split()), "")


@pytest.mark.parametrize("template", [*NOT_A_TEMPLATE, *DOES_NOT_FIT])
async def test_template_is_refused_when_kubectl_refuses_it(
    template: str, kubectl: Kubectl, slipway: Slipway
) -> None:
    kubectl.fails("get", "inf", "-o", f"jsonpath={template}")
    code, out, err = await slipway("get", "inf", "-o", f"jsonpath={template}")
    assert (code, out) == (1 if template in DOES_NOT_FIT else 2, "")
    assert "-o jsonpath" in err


async def test_columns_have_the_cells_of_kubectl(kubectl: Kubectl, slipway: Slipway) -> None:
    for target in (["inf"], ["inf", "faces"], ["inf", "-l", "no=such"]):
        expected = kubectl("get", *target, "-o", f"custom-columns={COLUMNS}")
        code, out, _ = await slipway("get", *target, "-o", f"custom-columns={COLUMNS}")
        assert code == 0
        assert [line.split() for line in out.splitlines()] == [line.split() for line in expected.splitlines()]
