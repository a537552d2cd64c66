"""URLs in messages have no credentials; addresses of listeners."""

import pytest

from serving.system.network import addresses


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://prometheus.example:9090/path?a=b", "http://prometheus.example:9090/path?a=b"),
        ("https://user:secret@prometheus.example:9090/path", "https://prometheus.example:9090/path"),
        ("https://user:sec@ret@prometheus.example", "https://prometheus.example"),
        ("http://user@[::1]:9090", "http://[::1]:9090"),
        ("ftp://user:secret@prometheus.example", "ftp://prometheus.example"),
        ("prometheus.example:9090", "prometheus.example:9090"),
        ("http://[broken", "http://[broken"),
    ],
)
def test_address_is_shown_without_its_credentials(url: str, shown: str) -> None:
    assert addresses.without_credentials(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@[broken",
        "http://user:secret@host:port",
        "http://user:secret@host:99999",
        "http://user:secret@\u2100",
        "user:secret@host",
        "http://user:sec/ret@host",
        "http://user:12/secret@host",
        "http://user:12#secret@host",
        "http://user:12?secret@host",
    ],
)
def test_address_is_not_shown_when_its_credentials_have_no_certain_end(url: str) -> None:
    assert addresses.without_credentials(url) == addresses.INVALID


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("10.0.0.7", "10.0.0.7"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "::1"),
        ("fd00::7", "fd00::7"),
    ],
)
def test_wildcard_listener_is_reached_at_loopback_and_any_other_at_its_own_address(
    host: str, local: str
) -> None:
    assert addresses.local(host) == local


@pytest.mark.parametrize(
    ("host", "authority"),
    [("10.0.0.7", "10.0.0.7:80"), ("0.0.0.0", "0.0.0.0:80"), ("::", "[::]:80"), ("fd00::7", "[fd00::7]:80")],
)
def test_authority_has_ipv6_addresses_in_brackets(host: str, authority: str) -> None:
    assert addresses.authority(host, 80) == authority
