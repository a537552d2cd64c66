"""The API, namespace and kinds that a command acts on."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from serving import errors
from serving.cli.session import default_namespace, find_kubeconfig
from serving.resources import kinds
from serving.resources.kinds import Kind


@dataclass(frozen=True)
class Target:
    """An API server and the namespace of objects that name none."""

    kubeconfig: Path
    namespace: str
    explicit: bool
    """The namespace was given with -n."""
    data_dir: Path | None = None
    """The value of --data-dir."""


class NamedKind(NamedTuple):
    """A kind, and the name of one object of it."""

    kind: Kind
    name: str | None
    """None: all objects of the kind."""


def resolve(kubeconfig: Path | None, data_dir: Path | None, namespace: str | None = None) -> Target:
    """Return the target that --kubeconfig, --data-dir and -n choose.

    Raises:
        errors.NoApi: there is no API to talk to.
        errors.UserError: the kubeconfig cannot be read.
    """
    path = find_kubeconfig(kubeconfig, data_dir)
    return Target(path, namespace or default_namespace(path), namespace is not None, data_dir)


def kind_of(word: str) -> Kind:
    """Return the kind of a plural, singular or short name.

    Raises:
        errors.UserError: no kind has this name; the message lists all kinds.
    """
    kind = kinds.find(word)
    if kind is None:
        kind_names = ", ".join(
            f"{k.plural} ({', '.join(k.short)})" if k.short else k.plural for k in kinds.ALL
        )
        raise errors.UserError(f"there is no kind {word!r}; there are {kind_names}")
    return kind


def named(words: list[str]) -> list[NamedKind]:
    """Parse the arguments `KIND`, `KIND NAME...`, `KIND/NAME...` or `KIND,KIND`, at least one word.

    A category, such as `all`, stands for its kinds.

    Raises:
        errors.UserError: an unknown kind, or forms that do not go together.
    """
    if any("/" in word for word in words):
        if not all("/" in word for word in words):
            raise errors.UserError("give either KIND NAME... or KIND/NAME..., not both")
        parts = [word.split("/", 1) for word in words]
        return [NamedKind(kind_of(kind_word), name) for kind_word, name in parts]
    of_category = [kind for kind in kinds.ALL if words[0] in kind.categories]
    selected = of_category or [kind_of(word) for word in words[0].split(",")]
    if len(words) == 1:
        return [NamedKind(kind, None) for kind in selected]
    if len(selected) > 1:
        raise errors.UserError("names can only be given with one kind")
    return [NamedKind(selected[0], name) for name in words[1:]]


def full_name(kind: Kind, name: str) -> str:
    """Return `inference.slipway.dev/digits`, as kubectl prints it."""
    return f"{kind.singular}.{kind.group}/{name}" if kind.group else f"{kind.singular}/{name}"
