"""The proxy of a URL, by the variables of the environment."""

import pytest
from yarl import URL

from serving.system.network import proxies

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("no_proxy", "url", "expected"),
    [
        ("", "https://registry/v2/", PROXY),
        ("registry", "https://registry:5000/v2/", None),
        ("registry:5000", "https://registry:5000/v2/", None),
        ("registry:5000", "https://registry/v2/", PROXY),
        ("registry:443", "https://registry/v2/", None),
        (".example.com:443", "https://registry.example.com/v2/", None),
        ("2001:db8::1", "https://[2001:db8::1]:5000/v2/", None),
        ("2001:db8::1", "https://[2001:db8::2]/v2/", PROXY),
        ("", "https://localhost/v2/", None),
    ],
)
def test_proxy_is_none_when_no_proxy_has_the_host_or_the_host_with_the_port(
    monkeypatch: pytest.MonkeyPatch, no_proxy: str, url: str, expected: str | None
) -> None:
    for name in ("NO_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", PROXY)
    monkeypatch.setenv("no_proxy", no_proxy)
    assert proxies.proxy_of(URL(url)) == expected
