import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.objects import Object
from serving.planning.models import policy
from serving.planning.models.policy import ModelPolicy
from serving.resources import names

KEY, OTHER = "sha256:key", "sha256:other"
PLAIN: Object = {"contents": {"containsCode": False}, "signedBy": [KEY]}


def code(*files: tuple[str, str]) -> Object:
    listed = [{"path": path, "format": file_format} for path, file_format in files]
    return {"contents": {"containsCode": True, "files": listed}, "signedBy": []}


def of(*rules: str, keys: tuple[str, ...] = (KEY,), place: str = "Namespace team") -> ModelPolicy:
    return ModelPolicy(place, frozenset(rules), frozenset(keys))


def blocked(status: Object, *policies: ModelPolicy, problem: str = "") -> tuple[str, str]:
    violation = policy.violation(policies, status, problem)
    return ("", "") if violation is None else (violation.reason, violation.message)


@pytest.mark.parametrize(
    ("text", "rules"),
    [("", set()), (" noCode ,signed,", {"noCode", "signed"}), ("nocode", {"nocode"})],
)
def test_rules_of_a_namespace_are_separated_by_commas(text: str, rules: set[str]) -> None:
    namespace = {"metadata": {"name": "team", "annotations": {names.MODEL_POLICY_ANNOTATION: text}}}
    assert policy.rules_of(namespace) == rules
    assert policy.rules_of({"metadata": {"name": "team"}}) == set()


def test_no_code_names_the_files_the_rule_and_its_place() -> None:
    files = [("a.pkl", "Pickle"), ("b.py", "Python"), ("c.bin", "Unrecognized"), ("d.pt", "PyTorch")]
    reason, message = blocked(code(*files), of("noCode"))
    assert reason == "ContainsCode"
    assert message.startswith("a.pkl (Pickle), b.py (Python), c.bin (Unrecognized) and 1 more contain code")
    assert "(rule noCode of Namespace team)" in message
    assert blocked(code(("a.pkl", "Pickle")), of())[0] == ""
    assert blocked(PLAIN, of("noCode")) == ("", "")


def test_signed_needs_a_signature_by_one_of_the_policys_own_keys() -> None:
    assert blocked(PLAIN, of("signed", keys=(OTHER, KEY))) == ("", "")
    reason, message = blocked(PLAIN, of("signed", keys=(OTHER,)), problem="the registry is away")
    assert (reason, "(rule signed of Namespace team)" in message) == ("NotSigned", True)
    assert "1 trusted key: the registry is away" in message


def test_signed_without_a_key_blocks_every_version() -> None:
    reason, message = blocked(PLAIN, of("signed", keys=()))
    assert (reason, "no public key" in message) == ("NotSigned", True)


def test_files_that_are_not_examined_count_as_code() -> None:
    reason, message = blocked({}, of("noCode"), problem="ImageMissing: evicted")
    assert (reason, "not examined yet: ImageMissing: evicted" in message) == ("ContainsCode", True)


def test_all_policies_must_be_satisfied_and_every_violation_is_named() -> None:
    installation = of("noCode", place="the settings models.policy")
    reason, message = blocked(code(("a.pkl", "Pickle")), installation, of("signed"))
    assert reason == "ContainsCode"
    assert "the settings models.policy" in message
    assert "rule signed of Namespace team" in message


@given(
    st.sets(st.sampled_from(["noCode", "signed"])),
    st.text(min_size=1).filter(lambda r: r not in policy.RULES),
)
def test_an_unknown_rule_blocks_every_version_and_is_named(known: set[str], unknown: str) -> None:
    reason, message = blocked(PLAIN, of(*known, unknown))
    assert reason == "PolicyInvalid"
    assert f"Namespace team: unknown rule {unknown!r}" in message


def test_keys_that_cannot_be_read_block_every_version() -> None:
    broken = ModelPolicy("Namespace team", frozenset({"signed"}), problem="must be PEM public keys, got 'x'")
    assert blocked(PLAIN, broken) == ("PolicyInvalid", "Namespace team: must be PEM public keys, got 'x'")
    assert blocked(PLAIN, ModelPolicy("Namespace team", frozenset({"noCode"}), problem="unused")) == ("", "")


def test_reason_is_that_of_the_valid_policy_when_another_is_invalid() -> None:
    broken = ModelPolicy("the settings models.policy", frozenset({"signed"}), problem="no such file")
    status = code(("a.pkl", "Pickle"))
    for policies in ([broken, of("noCode")], [of("noCode"), broken], [of("noCode"), of("nocode")]):
        assert blocked(status, *policies)[0] == "ContainsCode"
    message = blocked(status, broken, of("noCode"))[1]
    assert message.startswith("the settings models.policy: no such file; a.pkl (Pickle) contains code")
    assert blocked(PLAIN, broken, of("noCode"))[0] == "PolicyInvalid"


def test_code_is_a_violation_of_a_policy_whose_keys_cannot_be_read() -> None:
    broken = ModelPolicy("Namespace team", frozenset({"noCode", "signed"}), problem="no such file")
    reason, message = blocked(code(("a.pkl", "Pickle")), broken)
    assert reason == "ContainsCode"
    assert message.startswith("Namespace team: no such file; a.pkl (Pickle) contains code")
    assert blocked(PLAIN, broken) == ("PolicyInvalid", "Namespace team: no such file")
