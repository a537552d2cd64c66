"""Docker's configuration and Secrets of that form."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.images.registry.auth.docker_config import DockerConfig, Login, parse


def config(value: Any, *, programs: bool = True) -> DockerConfig:
    return parse(json.dumps(value).encode(), "config.json", programs=programs)


def auth(text: str) -> dict[str, str]:
    return {"auth": base64.b64encode(text.encode()).decode()}


def test_login_is_found_by_host_and_port() -> None:
    docker_config = config({"auths": {"r.example:5000": auth("alice:pa:ss")}})
    assert docker_config.login("r.example:5000", "a") == Login("alice", "pa:ss")
    assert docker_config.login("r.example", "a") is None


@pytest.mark.parametrize("key", ["https://r.example", "http://r.example/v2/", "r.example", "R.example/v1/"])
def test_keys_of_auths_may_be_urls(key: str) -> None:
    assert config({"auths": {key: auth("a:b")}}).login("r.example", "m") == Login("a", "b")


@pytest.mark.parametrize("key", ["https://index.docker.io/v1/", "docker.io", "registry-1.docker.io"])
def test_docker_hub_has_many_names(key: str) -> None:
    assert config({"auths": {key: auth("a:b")}}).login("docker.io", "library/x") == Login("a", "b")


def test_longest_prefix_of_the_repository_wins() -> None:
    docker_config = config(
        {"auths": {"r.example": auth("a:1"), "r.example/team": auth("b:2"), "r.example/team/x": auth("c:3")}}
    )
    assert docker_config.login("r.example", "other") == Login("a", "1")
    assert docker_config.login("r.example", "team/y") == Login("b", "2")
    assert docker_config.login("r.example", "team/x/deep") == Login("c", "3")
    assert docker_config.login("r.example", "teams") == Login("a", "1")


def test_wildcard_matches_one_dns_label() -> None:
    docker_config = config({"auths": {"*.r.example": auth("a:1")}})
    assert docker_config.login("x.r.example", "m") == Login("a", "1")
    assert docker_config.login("x.y.r.example", "m") is None
    assert docker_config.login("r.example", "m") is None


@pytest.mark.parametrize("key", ["[::1]:5000", "[::1]:5000/team"])
def test_login_is_found_when_the_host_is_an_ipv6_address(key: str) -> None:
    docker_config = config({"auths": {key: auth("a:1")}})
    assert docker_config.login("[::1]:5000", "team/m") == Login("a", "1")
    assert docker_config.login("[::2]:5000", "team/m") is None


def test_identity_token_is_a_login() -> None:
    docker_config = config({"auths": {"r.example": {**auth("<token>:"), "identitytoken": "refresh"}}})
    login = docker_config.login("r.example", "m")
    assert login is not None
    assert login.identity_token == "refresh"
    assert "refresh" not in repr(login)


def test_empty_entry_is_left_to_the_helper() -> None:
    docker_config = config(
        {"auths": {"r.example": {}}, "credsStore": "desktop", "credHelpers": {"gcr.io": "gcloud"}}
    )
    assert docker_config.login("r.example", "m") is None
    assert docker_config.helper("r.example") == "desktop"
    assert docker_config.helper("gcr.io") == "gcloud"


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ([], "must be an object"),
        ({"auths": []}, "auths: must be an object"),
        ({"auths": {"r": "x"}}, "auths['r']: must be an object"),
        ({"auths": {"r": {"auth": 1}}}, "auths['r']: auth: must be a string"),
        ({"auths": {"r": {"auth": "%"}}}, "auths['r']: auth: must be base64"),
        ({"auths": {"r": {"auth": "é"}}}, "auths['r']: auth: must be base64"),
        ({"auths": {"r": auth("nocolon")}}, "auths['r']: auth: must hold USER:PASSWORD"),
        ({"credsStore": "../evil"}, "credsStore: must match"),
        ({"credHelpers": {"r": "a b"}}, "credHelpers['r']: must match"),
    ],
)
def test_invalid_configuration_is_refused_with_its_field(value: Any, part: str) -> None:
    with pytest.raises(errors.Permanent, match=r"config\.json: ") as raised:
        config(value)
    assert raised.value.reason == "InvalidCredentials"
    assert part in str(raised.value)
    assert "nocolon" not in str(raised.value)


def test_secret_must_not_name_programs() -> None:
    for value in ({"credsStore": "desktop"}, {"credHelpers": {"r": "x"}}):
        with pytest.raises(errors.Permanent, match="must not"):
            config(value, programs=False)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=5), x, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["auths", "credsStore", "credHelpers", "x"]), JSON))
def test_any_json_is_parsed_or_refused_with_a_reason(value: dict[str, Any]) -> None:
    try:
        docker_config = config(value)
    except errors.Permanent as error:
        if error.reason != "InvalidCredentials":
            raise
    else:
        docker_config.login("r.example", "m")
        docker_config.helper("r.example")


@given(st.text(), st.text())
def test_user_and_password_of_any_characters_are_read(user: str, password: str) -> None:
    password = password.rstrip("\0")
    user = user.replace(":", "")
    login = config({"auths": {"r": auth(f"{user}:{password}")}}).login("r", "m")
    assert login == (Login(user, password) if user or password else None)
