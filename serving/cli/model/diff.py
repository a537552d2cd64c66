"""`slipway model diff`: the differences between two versions, like `git diff --stat`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.filesize import decimal

from serving.cli.model.store import VersionName, ready
from serving.cli.options import with_target
from serving.cli.output import tables
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.objects import Object

if TYPE_CHECKING:
    from serving.kube import Kube


@with_target
def diff(target: Target, a: VersionName, b: VersionName) -> None:
    """Compare two versions: files, metrics, lineage."""

    async def work(kube: "Kube") -> None:
        print(
            "\n".join(lines(await ready(kube, target.namespace, a), await ready(kube, target.namespace, b)))
        )

    with_kube(target.kubeconfig, work)


def lines(a: Object, b: Object) -> Iterator[str]:
    """Yield the report's lines: a note on equal images, files, metrics, lineage, and a summary last."""
    old, new = a["status"], b["status"]
    if old["digest"] == new["digest"]:
        yield f"same image: {old['digest']}"
    changes = _files(old.get("files") or [], new.get("files") or [])
    if changes:
        yield from tables.text(["", "File", "Was", "Is"], changes).splitlines()
    was, now = old.get("metrics") or {}, new.get("metrics") or {}
    yield from _section("Metrics", a, b, _values(was, now), _values(now, was))
    yield from _section("Lineage", a, b, _lineage(old), _lineage(new))
    yield _summary(changes, old, new)


def _files(old: Sequence[Object], new: Sequence[Object]) -> list[list[object]]:
    before, after = {f["path"]: f for f in old}, {f["path"]: f for f in new}
    rows: list[list[object]] = []
    for path in sorted(before.keys() | after.keys()):
        old_file, new_file = before.get(path), after.get(path)
        if old_file is None and new_file is not None:
            rows.append(["+", path, "-", decimal(new_file["size"])])
        elif new_file is None and old_file is not None:
            rows.append(["-", path, decimal(old_file["size"]), "-"])
        elif old_file is not None and new_file is not None and old_file["digest"] != new_file["digest"]:
            rows.append(["~", path, decimal(old_file["size"]), decimal(new_file["size"])])
    return rows


def _values(metrics: Object, other: Object) -> dict[str, str]:
    """Return the metrics as texts that differ from those of `other` wherever the numbers differ."""
    compared = {**metrics, **other}
    return {name: _number(value, compared[name]) for name, value in metrics.items()}


def _number(value: float, other: float) -> str:
    """Return six significant digits of `value`, and all if those of `other`, another number, are the same."""
    short = f"{value:g}"
    return repr(value) if value != other and short == f"{other:g}" else short


def _lineage(status: Object) -> dict[str, str]:
    lineage = {"framework": status.get("framework"), **(status.get("lineage") or {})}
    return {name: str(value) for name, value in lineage.items() if value}


def _section(
    title: str, a: Object, b: Object, old: Mapping[str, str], new: Mapping[str, str]
) -> Iterator[str]:
    rows = [[name, old.get(name, "-"), new.get(name, "-")] for name in sorted(old.keys() | new.keys())]
    if changed := [row for row in rows if row[1] != row[2]]:
        yield ""
        yield from tables.text([title, a["metadata"]["name"], b["metadata"]["name"]], changed).splitlines()


def _summary(changes: Sequence[Sequence[object]], old: Object, new: Object) -> str:
    counts = {mark: sum(row[0] == mark for row in changes) for mark in "+-~"}
    words = f"{counts['+']} added, {counts['-']} removed, {counts['~']} changed"
    return f"{words}; {decimal(int(old.get('size', 0)))} -> {decimal(int(new.get('size', 0)))}"
