"""The API, namespace and kinds that a command acts on."""

from dataclasses import dataclass
from pathlib import Path

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


def resolve(kubeconfig: Path | None, data_dir: Path | None, namespace: str | None = None) -> Target:
    """Return what --kubeconfig, --data-dir and -n choose.

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


def named(words: list[str]) -> list[tuple[Kind, str | None]]:
    """Parse `KIND`, `KIND NAME...`, `KIND/NAME...` or `KIND,KIND`; a name of None means all.

    Raises:
        errors.UserError: an unknown kind, or forms that do not go together.
    """
    if any("/" in word for word in words):
        if not all("/" in word for word in words):
            raise errors.UserError("give either KIND NAME... or KIND/NAME..., not both")
        return [(kind_of(word.split("/", 1)[0]), word.split("/", 1)[1]) for word in words]
    selected = [k for k in kinds.ALL if words[0] in k.categories] or [kind_of(w) for w in words[0].split(",")]
    if len(words) == 1:
        return [(kind, None) for kind in selected]
    if len(selected) > 1:
        raise errors.UserError("names can only be given with one kind")
    return [(selected[0], name) for name in words[1:]]


def full_name(kind: Kind, name: str) -> str:
    """Return `inference.slipway.dev/digits`, as kubectl prints it."""
    return f"{kind.singular}.{kind.group}/{name}" if kind.group else f"{kind.singular}/{name}"
