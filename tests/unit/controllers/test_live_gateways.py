"""Which gateways count as alive, while Leases expire and the API hangs."""

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from serving import clock
from serving.controllers.gateways import CONFIRM_SECONDS, LiveGateways
from serving.kube import Informer
from serving.objects import Object
from serving.resources.leases import LEASE_PREFIX, NOT_SERVING_ANNOTATION

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Leases:
    """A cache of Leases, and the time."""

    def __init__(self) -> None:
        self.stored: dict[str, Object] = {}
        self.seconds = 0.0
        self._callbacks: list[Callable[[Any, Any], None]] = []

    def __iter__(self) -> Iterator[Object]:
        return iter(self.stored.values())

    def on_change(self, callback: Callable[[Any, Any], None]) -> None:
        self._callbacks.append(callback)

    def now(self) -> dt.datetime:
        return START + dt.timedelta(seconds=self.seconds)

    def renew(self, name: str, problem: str = "") -> None:
        self.stored[name] = {
            "metadata": {
                "name": LEASE_PREFIX + name,
                "annotations": {NOT_SERVING_ANNOTATION: problem} if problem else {},
            },
            "spec": {"renewTime": clock.rfc3339_micro(self.now()), "leaseDurationSeconds": 15},
        }
        self._changed()

    def delete(self, name: str) -> None:
        del self.stored[name]
        self._changed()

    def _changed(self) -> None:
        for callback in self._callbacks:
            callback(None, None)


class Gateways:
    """The live gateways, with an API that answers or hangs."""

    def __init__(self, leases: Leases) -> None:
        self.leases = leases
        self.api_hangs = False
        self.changes = 0
        self.live = LiveGateways(cast("Informer", leases), self._changed, self._api_answers)

    def _changed(self) -> None:
        self.changes += 1

    async def _api_answers(self) -> bool:
        return not self.api_hangs

    async def wait(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.leases.seconds += 1
            await self.live.check()


@pytest.fixture
def gateways(monkeypatch: pytest.MonkeyPatch) -> Gateways:
    leases = Leases()
    monkeypatch.setattr(clock, "now", leases.now)
    monkeypatch.setattr(clock, "monotonic", lambda: leases.seconds)
    return Gateways(leases)


async def test_gateway_is_dead_when_its_lease_has_stayed_expired_while_the_api_answers(
    gateways: Gateways,
) -> None:
    gateways.leases.renew("a")
    await gateways.wait(15 + CONFIRM_SECONDS - 1)
    assert gateways.live.alive == {"a"}
    await gateways.wait(3)
    assert gateways.live.alive == frozenset()
    assert gateways.changes == 2


async def test_no_gateway_dies_while_the_api_hangs_and_just_after(gateways: Gateways) -> None:
    gateways.leases.renew("a")
    gateways.api_hangs = True
    await gateways.wait(120)
    gateways.api_hangs = False
    await gateways.wait(CONFIRM_SECONDS - 1)
    assert gateways.live.alive == {"a"}
    gateways.leases.renew("a")
    await gateways.wait(14)
    assert (gateways.live.alive, gateways.changes) == ({"a"}, 1)


async def test_gateway_whose_lease_is_deleted_is_dead_at_once(gateways: Gateways) -> None:
    gateways.leases.renew("a")
    gateways.leases.renew("b")
    gateways.leases.delete("a")
    assert gateways.live.alive == {"b"}


async def test_problem_of_a_live_gateway_is_known_until_it_is_gone(gateways: Gateways) -> None:
    gateways.leases.renew("a", "Envoy does not answer")
    assert gateways.live.problems == {"a": "Envoy does not answer"}
    gateways.leases.renew("a")
    assert gateways.live.problems == {}
    assert gateways.changes == 2
