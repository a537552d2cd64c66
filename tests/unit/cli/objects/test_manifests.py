import json
import time
from pathlib import Path
from typing import NoReturn

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.cli.objects import json_values, manifests
from serving.cli.target import Target

HERE = Target(Path("kubeconfig"), "default", explicit=False)
GOOD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"


def test_every_document_has_its_file_number_and_namespace(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(GOOD + "---\n" + GOOD.replace("name: a", "name: b, namespace: team"))
    first, second = manifests.read([str(file)], HERE)
    assert (first.source, first.name, first.namespace) == (f"{file} document 1", "a", "default")
    assert (second.source, second.name, second.namespace) == (f"{file} document 2", "b", "team")


@pytest.mark.parametrize("method", ["is_dir", "iterdir"])
def test_a_directory_that_may_not_be_entered_is_refused_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def refuse(path: Path) -> NoReturn:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, method, refuse)
    with pytest.raises(errors.UserError, match=f"cannot read {tmp_path}: Permission denied"):
        manifests.bodies([str(tmp_path)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "one.yaml:2:1: not YAML"),
        ("- 1", "must be an object"),
        ("kind: Pod", "apiVersion is missing"),
        ("apiVersion: v9\nkind: Thing\nmetadata: {name: a}", "Thing of v9 is not a kind"),
        ("apiVersion: v1\nkind: Pod", "metadata.name is missing"),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ../secrets/prod}",
            "one.yaml: .*'../secrets/prod'",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b/..}",
            "one.yaml: .*namespace: .*'b/..'",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: 2024}",
            "one.yaml: ConfigMap: metadata.namespace: must be a string, not int",
        ),
        ("kind: List\nitems: 5", "one.yaml: List: items: must be a list, not int"),
        ("kind: List\nitems: {a: b}", "one.yaml: List: items: must be a list, not dict"),
        ("kind: List\nitems: false", "one.yaml: List: items: must be a list, not bool"),
        ("kind: List\nitems:", "no objects"),
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{a: [1, {b: 99999999999999999999}]}", r"one.yaml: a\[1\].b: must be an integer of 64 bits"),
        ('{"a": {"b": -9223372036854775809}}', "one.yaml: a.b: must be an integer of 64 bits"),
        ('{"a": "\\ud800"}', "one.yaml: a: must be Unicode"),
        ('{"a": {"\\ud800": 1}}', "one.yaml: a: keys must be Unicode"),
        ("a: {1: x}", "one.yaml: a: keys must be strings: write '1' with quotes"),
        ("a: .inf", "one.yaml: a: must be a finite number"),
        ("a: !!binary aGk=", "one.yaml: a: must be a value of JSON, not bytes"),
        ("[" * 50_000 + "]" * 50_000, "one.yaml: nested too deep: at most 100 levels"),
        ('{"a":' * 50_000 + "1" + "}" * 50_000, "one.yaml: nested too deep: at most 100 levels"),
        ("[" * 101 + "]" * 101, "one.yaml: nested too deep: at most 100 levels"),
        ("a: &a [*a]", "one.yaml: nested too deep: at most 100 levels"),
    ],
    ids=range(11),
)
def test_a_value_that_json_cannot_have_is_refused_by_its_field_and_rule(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(text)
    with pytest.raises(errors.UserError, match=message):
        manifests.bodies([str(file)])


def test_a_character_beyond_the_basic_plane_is_read_from_its_two_escapes(tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    file.write_text('{"a": "\\ud83d\\ude00"}')
    assert manifests.bodies([str(file)]) == [(str(file), {"a": "😀"})]


def test_values_up_to_the_bounds_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    value = {"a": [2**63 - 1, -(2**63), 1.5, True, None, "é"]}
    file.write_text(json.dumps(value))
    assert manifests.bodies([str(file)]) == [(str(file), value)]
    file.write_text("[" * 100 + "]" * 100)
    assert len(manifests.bodies([str(file)])) == 1


@given(value=st.recursive(st.integers(-(2**63), 2**63 - 1) | st.text(), st.lists, max_leaves=20))
def test_a_value_of_json_is_accepted(value: object) -> None:
    assert json_values.broken_rule(value) == ""
    assert orjson.loads(orjson.dumps(value)) == value


BOMBS = {
    "sequences": "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40)),
    "mappings": "a0: &a0 {b: c}\n"
    + "".join(f"a{n}: &a{n} {{b: *a{n - 1}, c: *a{n - 1}}}\n" for n in range(1, 60)),
    "merges": "a0: &a0 {b: c, d: e}\n"
    + "".join(f"a{n}: &a{n} {{<<: [{','.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 40)),
    "many merges": "a: &a {"
    + ", ".join(f"k{n}: 1" for n in range(4_500))
    + "}\n"
    + "b:\n"
    + "- {<<: *a}\n" * 2_000,
    "text": f"a: &a {'x' * 10_000}\nb: [{','.join(['*a'] * 10_000)}]\n",
    "itself": "a: &a [*a, *a]\n",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_document_is_refused_at_once_when_its_aliases_multiply(tmp_path: Path, bomb: str) -> None:
    file = tmp_path / "bomb.yaml"
    file.write_text(GOOD + BOMBS[bomb])
    begun = time.process_time()
    with pytest.raises(errors.UserError, match=r"bomb.yaml.*(at most \d+ (characters|keys|levels))"):
        manifests.read([str(file)], HERE)
    assert time.process_time() - begun < 2


def test_document_is_read_when_it_has_ordinary_aliases_and_merges(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(GOOD + "x: &x {a: '1'}\ndata: {<<: *x, b: '2'}\nmore: [*x, *x]\n")
    (document,) = manifests.read([str(file)], HERE)
    assert document.body["data"] == {"a": "1", "b": "2"}
    assert document.body["more"] == [{"a": "1"}, {"a": "1"}]
