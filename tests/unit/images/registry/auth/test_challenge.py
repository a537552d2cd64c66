"""`WWW-Authenticate` headers."""

from hypothesis import given
from hypothesis import strategies as st

from serving.images.registry.auth.challenge import Challenge, parse

WORD = st.from_regex(r"[a-z]{1,8}", fullmatch=True)


def test_bearer_with_several_scopes() -> None:
    scopes = "repository:x/y:pull,push repository:a:pull"
    header = f'Bearer realm="https://a.example/token",service="r",scope="{scopes}"'
    (challenge,) = parse(header)
    assert challenge.scheme == "bearer"
    assert challenge.parameters["realm"] == "https://a.example/token"
    assert challenge.scopes == {"repository:x/y:pull,push", "repository:a:pull"}


def test_two_challenges_in_one_header() -> None:
    assert parse('Basic realm="a, b" , Bearer realm=x, error="it said \\"no\\""') == (
        Challenge("basic", {"realm": "a, b"}),
        Challenge("bearer", {"realm": "x", "error": 'it said "no"'}),
    )


def test_challenge_with_opaque_credentials_does_not_hide_the_next() -> None:
    assert [challenge.scheme for challenge in parse('Negotiate abc==, Basic realm="x"')] == [
        "negotiate",
        "basic",
    ]


def test_parameter_names_ignore_case_and_the_first_value_wins() -> None:
    assert parse("BEARER Realm=a, realm=b") == (Challenge("bearer", {"realm": "a"}),)


@given(st.text(max_size=80))
def test_any_header_is_read_without_an_error(header: str) -> None:
    parse(header)


@given(
    WORD,
    st.dictionaries(
        WORD, st.text(st.characters(min_codepoint=32, max_codepoint=126)), min_size=1, max_size=4
    ),
)
def test_quoted_values_are_read_back(scheme: str, parameters: dict[str, str]) -> None:
    quoted = ", ".join(
        '{}="{}"'.format(k, v.replace("\\", "\\\\").replace('"', '\\"')) for k, v in parameters.items()
    )
    assert parse(f"{scheme} {quoted}") == (Challenge(scheme, parameters),)
