"""What the connection takes from the environment."""

import pytest

from serving.kube.client import _session_options


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_the_environment_is_not_read_again_at_every_request() -> None:
    assert _session_options("https://127.0.0.1:7443") == {"trust_env": False}


def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://ann:secret@proxy.example:3128")
    options = _session_options("https://cluster.example:6443")
    assert str(options["proxy"]) == "http://proxy.example:3128"
    assert (options["proxy_auth"].login, options["proxy_auth"].password) == ("ann", "secret")


def test_hosts_that_the_environment_excepts_have_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "127.0.0.1,cluster.example")
    assert "proxy" not in _session_options("https://cluster.example:6443")
