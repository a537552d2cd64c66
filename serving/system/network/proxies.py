"""The proxy of the environment: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, as curl and Docker read them."""

import urllib.request

from yarl import URL

from serving.system.network.addresses import is_loopback


def proxy_of(url: URL) -> str | None:
    """Return the URL of the proxy for a URL; None for loopback addresses, `NO_PROXY`, or without a proxy."""
    # An entry of NO_PROXY may have a port. An IPv6 address has no brackets there.
    if is_loopback(url.host or "") or urllib.request.proxy_bypass(f"{url.host}:{url.port}"):
        return None
    return urllib.request.getproxies().get(url.scheme)
