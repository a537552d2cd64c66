from pathlib import Path

import pytest

from serving import errors
from serving.cli.objects import manifests
from serving.cli.target import Target

HERE = Target(Path("kubeconfig"), "default", explicit=False)
GOOD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"


def test_every_document_has_its_file_number_and_namespace(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(GOOD + "---\n" + GOOD.replace("name: a", "name: b, namespace: team"))
    first, second = manifests.read([str(file)], HERE)
    assert (first.source, first.name, first.namespace) == (f"{file} document 1", "a", "default")
    assert (second.source, second.name, second.namespace) == (f"{file} document 2", "b", "team")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "one.yaml:2:1: not YAML"),
        ("- 1", "must be an object"),
        ("kind: Pod", "apiVersion is missing"),
        ("apiVersion: v9\nkind: Thing\nmetadata: {name: a}", "Thing of v9 is not a kind"),
        ("apiVersion: v1\nkind: Pod", "metadata.name is missing"),
        ("", "no objects"),
    ],
)
def test_a_document_that_is_not_an_object_is_refused_with_its_position(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(text + "\n")
    with pytest.raises(errors.UserError, match=message):
        manifests.read([str(file)], HERE)


def test_a_namespace_is_refused_when_it_contradicts_the_option(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(GOOD.replace("name: a", "name: a, namespace: team"))
    with pytest.raises(errors.UserError, match="-n says other"):
        manifests.read([str(file)], Target(Path("kubeconfig"), "other", explicit=True))
