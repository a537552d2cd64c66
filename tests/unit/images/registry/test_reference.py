"""Image references: valid ones, and the errors of invalid ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.images.registry.reference import Reference

HEX = "0123456789abcdef" * 4
PART = st.from_regex(r"[a-z0-9]+([._-][a-z0-9]+)?", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "host", "repository", "tag", "digest"),
    [
        ("registry.example/digits", "registry.example", "digits", "", ""),
        ("registry.example:5000/models/digits:v1", "registry.example:5000", "models/digits", "v1", ""),
        (f"localhost/a/b@sha256:{HEX}", "localhost", "a/b", "", f"sha256:{HEX}"),
        (f"[::1]:5000/a:t@sha256:{HEX}", "[::1]:5000", "a", "t", f"sha256:{HEX}"),
        ("docker.io/busybox:1", "docker.io", "library/busybox", "1", ""),
    ],
)
def test_reference_is_split_into_its_parts(
    text: str, host: str, repository: str, tag: str, digest: str
) -> None:
    assert Reference.parse(text) == Reference(host, repository, tag, digest)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "must begin with the registry's host"),
        ("digits:v1", "must begin with the registry's host"),
        ("models/digits", "must begin with the registry's host"),
        ("registry.example/Digits", "the repository must be lower-case"),
        ("registry.example/", "the repository must be"),
        ("registry.example/a//b", "the repository must be"),
        ("registry.example/../b", "the repository must be"),
        ("registry.example/a:", "the tag must match"),
        ("registry.example/a:-x", "the tag must match"),
        (f"registry.example/a:{'x' * 129}", "the tag must match"),
        ("registry.example/a@sha256:abc", "64 hexadecimal digits, got 'sha256:abc'"),
        (f"registry.example/a@sha256:{HEX.upper()}", "64 hexadecimal digits"),
        ("registry.example:0/a", "the port must be 1 to 65535, got 0"),
        ("registry.example:99999/a", "the port must be 1 to 65535, got 99999"),
        ("user@registry.example/a", "the host must be a DNS name"),
        ("registry.example:80:80/a", "the host must be a DNS name"),
        ("https://registry.example/a", "the host must be a DNS name"),
        (f"registry.example/{'a' * 250}", "at most 255 characters"),
    ],
)
def test_invalid_reference_is_refused_with_rule_and_value(text: str, rule: str) -> None:
    with pytest.raises(errors.Permanent) as raised:
        Reference.parse(text)
    assert raised.value.reason == "InvalidReference"
    assert rule in str(raised.value)
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:5000", "127.0.0.1:5000", "127.9.9.9", "[::1]:5000", "[::1]"]
)
def test_addresses_of_this_machine_are_loopback(host: str) -> None:
    assert Reference.parse(f"{host}/a").loopback


@pytest.mark.parametrize(
    "host", ["127.0.0.1.example", "localhost.example:5000", "10.0.0.1", "[2001:db8::1]:80"]
)
def test_other_machines_are_not_loopback(host: str) -> None:
    assert not Reference.parse(f"{host}/a").loopback


@given(
    host=st.sampled_from(["localhost", "r.example", "r.example:5000", "10.0.0.1:80", "[::1]:5000"]),
    parts=st.lists(PART, min_size=1, max_size=4),
    tag=st.from_regex(r"([A-Za-z0-9_][-A-Za-z0-9_.]{0,20})?", fullmatch=True),
    digest=st.sampled_from(["", f"sha256:{HEX}"]),
)
def test_text_of_a_reference_is_parsed_back(host: str, parts: list[str], tag: str, digest: str) -> None:
    reference = Reference(host, "/".join(parts), tag, digest)
    assert Reference.parse(str(reference)) == reference


@given(st.text(max_size=60) | st.from_regex(r"[a-z.:/@\[\]%]{0,40}", fullmatch=True))
def test_any_text_is_parsed_or_refused_with_a_reason(text: str) -> None:
    try:
        reference = Reference.parse(text)
    except errors.Permanent as error:
        if error.reason != "InvalidReference":
            raise
    else:
        assert Reference.parse(str(reference)) == reference
        assert ".." not in reference.repository
