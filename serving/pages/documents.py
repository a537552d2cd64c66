"""A page as one HTML document: its templates, style and script within it, allowed by their hashes and nothing else.

Every text that is put in is escaped by Jinja and MarkupSafe, whatever it contains.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_FILES = PackageLoader("serving.pages", "files")


def environment(package: str, folder: str) -> Environment:
    """Return the templates of a package's folder, with the macros, style and script that all pages share."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(package, folder), _FILES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(templates: Environment, data: Mapping[str, Any], **shown: Any) -> str:
    """Return the document of `page.html`.

    Args:
        templates: as `environment` returns them.
        data: embedded as JSON, which the page lets people save.
        shown: what the template names.
    """
    style, script = (templates.get_template(name).render() for name in ("page.css", "page.js"))
    return templates.get_template("page.html").render(
        style=Markup(style),  # noqa: S704 our own file
        script=Markup(script),  # noqa: S704 our own file
        style_hash=allowance(style),
        script_hash=allowance(script),
        data=embedded(data),
        **shown,
    )


def allowance(text: str) -> str:
    """Return by which a Content-Security-Policy allows this one script or style, and so no other:
    https://www.w3.org/TR/CSP3/.
    """
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def embedded(data: Mapping[str, Any]) -> Markup:
    """Return the JSON so that it can stand in a script element: nothing in it can end the element, or begin
    a comment in it.
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704 escaped here
