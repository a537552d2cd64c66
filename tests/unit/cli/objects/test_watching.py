"""`slipway get -w` where the API has forgotten changes."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from serving import errors
from serving.cli.objects import watching
from serving.cli.output.formats import OutputFormat
from serving.kube.connection.client import Listing, WatchEvent
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kinds import Kind
from tests.fakes.kube import FakeKube


class Ended(Exception):
    """The end of a watch that would last."""


class ForgetfulKube(FakeKube):
    """Its first watch is too old, and its second one ends."""

    def __init__(self) -> None:
        super().__init__()
        self.watches: list[tuple[str, str]] = []
        """The resourceVersion and the field selector of each."""

    async def watch(
        self,
        kind: Kind,
        namespace: str | None,
        resource_version: str,
        *,
        labels: str = "",
        fields: str = "",
        timeout_seconds: int = 300,
        accept: str = "application/json",
    ) -> AsyncIterator[WatchEvent]:
        self.watches.append((resource_version, fields))
        raise errors.Gone(410, "Expired", "too old") if len(self.watches) == 1 else Ended
        yield WatchEvent("BOOKMARK", {})


def _map(name: str) -> Object:
    return {"metadata": {"name": name, "namespace": "default"}}


async def test_an_object_alone_is_printed_when_the_api_has_forgotten_its_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kube = ForgetfulKube()
    kube.add(kinds.CONFIG_MAP, _map("chosen"))
    newest = kube.add(kinds.CONFIG_MAP, _map("other"))["metadata"]["resourceVersion"]
    selection = watching.WatchedObjects(kinds.CONFIG_MAP, "default", "chosen")
    with pytest.raises(Ended):
        await watching.follow(kube, selection, OutputFormat("name"), by_arm=False)
    assert kube.watches == [(newest, "metadata.name=chosen")] * 2
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(line.endswith("/chosen") for line in lines)


async def test_an_object_that_does_not_exist_is_not_waited_for() -> None:
    kube = ForgetfulKube()
    selection = watching.WatchedObjects(kinds.CONFIG_MAP, "default", "absent")
    with pytest.raises(errors.NotFound):
        await watching.follow(kube, selection, OutputFormat("name"), by_arm=False)
    assert not kube.watches


class RestartingKube(ForgetfulKube):
    """Its second list meets a restart."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0

    async def list(self, *arguments: Any, **options: Any) -> Listing:
        self.lists += 1
        if self.lists == 2:
            raise errors.Unavailable("restarting")
        return await super().list(*arguments, **options)


async def test_an_api_that_restarts_is_waited_for_when_it_has_forgotten_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "RETRY_SECONDS", 0)
    kube = RestartingKube()
    newest = kube.add(kinds.CONFIG_MAP, _map("a"))["metadata"]["resourceVersion"]
    with pytest.raises(Ended):
        await watching.follow(
            kube, watching.WatchedObjects(kinds.CONFIG_MAP, "default"), OutputFormat("name"), by_arm=False
        )
    assert (kube.lists, kube.watches) == (3, [(newest, "")] * 2)
