"""Renders a page as one HTML document with its style and script, which a content policy allows by their
hashes.

Jinja and MarkupSafe escape every text. Content-Security-Policy: https://www.w3.org/TR/CSP3/.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_FILES = PackageLoader("serving.report_pages", "files")


def environment(package: str, folder: str) -> Environment:
    """Return the templates of a package's folder, and the macros, style and script that all pages share."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(package, folder), _FILES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(templates: Environment, data: Mapping[str, Any], **variables: Any) -> str:
    """Return the document of the template `page.html`.

    Args:
        templates: returned by `environment`.
        data: embedded as JSON, which the reader can save.
        variables: variables of the template.
    """
    style, script = (templates.get_template(name).render() for name in ("page.css", "page.js"))
    return templates.get_template("page.html").render(
        style=Markup(style),  # noqa: S704 our own file
        script=Markup(script),  # noqa: S704 our own file
        style_hash=_content_hash(style),
        script_hash=_content_hash(script),
        data=_embedded(data),
        **variables,
    )


def _content_hash(text: str) -> str:
    """Return the hash by which a Content-Security-Policy allows a script or style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _embedded(data: Mapping[str, Any]) -> Markup:
    """Return the JSON for a script element, escaped so that it cannot end the element or begin a comment."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    escaped = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(escaped)  # noqa: S704 escaped above
