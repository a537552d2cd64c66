"""Redirects of the standard library's HTTP client."""

import urllib.request
from typing import Any


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an HTTPError: it could take the request, and its token, to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None
