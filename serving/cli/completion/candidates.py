"""Completers of kinds, names of objects, arms and namespaces, by the API and the table of kinds."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from serving.cli.completion.values import Candidates, Typed

if TYPE_CHECKING:
    from serving.cli.target import Target

_LOG_OWNERS = ("pods", "jobs", "deployments")
"""Kinds of which `slipway logs KIND/NAME` prints logs."""


def kinds_and_names(typed: Typed) -> list[str]:
    """Return candidates for `KIND NAME...` and `KIND/NAME...`."""
    from serving.resources import kinds

    if typed.arguments and "/" not in typed.arguments[0]:
        return _others(_names(typed, typed.arguments[0]), typed.arguments)
    kind, slash, _ = typed.word.partition("/")
    if slash:
        return _others([f"{kind}/{name}" for name in _names(typed, kind)], typed.arguments)
    before, comma, _ = typed.word.rpartition(",")  # several kinds, as in `get jobs,mv`
    return [f"{before}{comma}{kind.plural}" for kind in kinds.ALL] if not typed.arguments else []


def used_kinds_and_names(typed: Typed) -> list[str]:
    """Return candidates for `KIND NAME...` of the kinds that `slipway top` shows."""
    return kinds_and_names(typed) if typed.arguments or "/" in typed.word else ["inferences", "pods"]


def names_of(plural: str) -> Candidates:
    """Return the completer of the names of a kind's objects, without names that are arguments already."""
    return lambda typed: _others(_names(typed, plural), typed.arguments)


def log_owners(typed: Typed) -> list[str]:
    """Return candidates for `INFERENCE`, and for `pod/NAME`, `job/NAME` and `deployment/NAME`."""
    kind, slash, _ = typed.word.partition("/")
    if slash:
        return [f"{kind}/{name}" for name in _names(typed, kind)]
    return [*_names(typed, "inferences"), *(f"{plural.removesuffix('s')}/" for plural in _LOG_OWNERS)]


def arms(typed: Typed) -> list[str]:
    """Return the arms of the Inference that is the first argument."""
    return (
        [predictor["name"] for predictor in _inference(typed)["spec"]["predictors"]]
        if typed.arguments
        else []
    )


def arms_to_weigh(typed: Typed) -> list[str]:
    """Return `ARM=` for each arm to which the arguments give no weight yet."""
    weighed = {argument.partition("=")[0] for argument in typed.arguments[1:]}
    return [f"{arm}=" for arm in arms(typed) if arm not in weighed]


def namespaces(typed: Typed) -> list[str]:
    """Return the names of all namespaces."""
    return _names(typed, "namespaces")


def _others(names: list[str], arguments: tuple[str, ...]) -> list[str]:
    """Return the names that are not arguments already."""
    return [name for name in names if name not in arguments]


def _names(typed: Typed, word: str) -> list[str]:
    """Return the names of the objects of a kind, which `word` names as on the command line."""
    from serving.cli.completion import reading
    from serving.cli.target import kind_of

    kind, target = kind_of(word), _target(typed)
    items = reading.metadata(target.kubeconfig, kind.path(target.namespace if kind.namespaced else None))
    return [item["metadata"]["name"] for item in items]


def _inference(typed: Typed) -> Any:
    from serving.cli.completion import reading
    from serving.resources import kinds

    target = _target(typed)
    return reading.get(target.kubeconfig, kinds.INFERENCE.path(target.namespace, typed.arguments[0]))


def _target(typed: Typed) -> "Target":
    """Return the API and the namespace that the typed options choose."""
    from serving.cli.target import resolve

    kubeconfig, data_dir = (
        Path(value) if (value := typed.options.get(option)) else None for option in ("kubeconfig", "data_dir")
    )
    return resolve(kubeconfig, data_dir, typed.options.get("namespace"))
