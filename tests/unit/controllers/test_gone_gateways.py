"""What gateways that are gone have left is removed after long."""

import datetime as dt

import pytest

from serving import clock, errors
from serving.controllers.gone_gateways import GoneGateways
from serving.kube import Kube, Watches
from serving.objects import Object
from serving.resources import kinds
from serving.settings import ControllerSettings
from tests.fakes.kube import FakeKube
from tests.rig.control_plane.convergence import running, until
from tests.rig.servers.gateway import route

NS = "default"
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SECONDS = 3600.0


class Installation:
    """An API with a Route and an Autoscaler, into which gateways and activators write, and the time."""

    def __init__(self) -> None:
        self.api = FakeKube()
        self.seconds = 0.0
        self.watches = Watches(self.api.client("controllers"))
        settings = ControllerSettings(gone_gateway_seconds=SECONDS)
        self.controller = GoneGateways(self.api.client("controllers"), settings, self.watches)
        spec = route("digits", [("stable", 10_000)])["spec"]
        self.api.add(kinds.ROUTE, {"metadata": {"name": "digits", "namespace": NS}, "spec": spec})
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
        meta = {"name": "digits-a", "namespace": NS}
        self.api.add(kinds.AUTOSCALER, {"metadata": meta, "spec": {"scaleTargetRef": target}})

    def now(self) -> dt.datetime:
        return START + dt.timedelta(seconds=self.seconds)

    async def report(self, name: str) -> None:
        """Write what a gateway and its activator write."""
        entry = {"name": name, "acceptedGeneration": 1, "address": "", "weights": [], "message": ""}
        await self._apply(kinds.ROUTE, "digits", {"gateways": [entry]}, f"slipway-gateway-{name}")
        demand = {"reporter": f"activator-{name}", "inFlight": 0}
        await self._apply(kinds.AUTOSCALER, "digits-a", {"demand": [demand]}, f"slipway-activator-{name}")
        await self.renew(name)

    async def renew(self, name: str) -> None:
        spec = {"renewTime": clock.rfc3339_micro(self.now()), "leaseDurationSeconds": 15}
        meta = {"name": f"slipway-gateway-{name}", "namespace": NS}
        await self.api.apply(kinds.LEASE, {"metadata": meta, "spec": spec}, manager=meta["name"])

    async def _apply(self, kind: kinds.Kind, name: str, status: Object, manager: str) -> None:
        meta = {"metadata": {"name": name, "namespace": NS}}
        await self.api.apply_status(kind, meta, status, manager=manager)

    async def pass_(self, seconds: float, *alive: str) -> None:
        """Let the time pass, at the end of which these gateways renew their Leases."""
        self.seconds += seconds
        for name in alive:
            await self.renew(name)
        await until(self._is_watched, "the watches have all objects")
        await self.controller.sweep()

    def _is_watched(self) -> bool:
        caches = (self.controller._routes, self.controller._autoscalers, self.controller._leases)
        return all(list(cache) == self.api.find(cache.kind) for cache in caches)

    def left(self) -> tuple[list[str], list[str], list[str]]:
        """Return the names in the statuses of the Route and the Autoscaler, and those of Leases."""
        [served], [scaled] = self.api.find(kinds.ROUTE), self.api.find(kinds.AUTOSCALER)
        return (
            [entry["name"] for entry in (served.get("status") or {}).get("gateways") or []],
            [entry["reporter"] for entry in (scaled.get("status") or {}).get("demand") or []],
            [lease["metadata"]["name"] for lease in self.api.find(kinds.LEASE)],
        )

    def managers(self) -> set[str]:
        stored = [*self.api.find(kinds.ROUTE), *self.api.find(kinds.AUTOSCALER)]
        return {entry["manager"] for obj in stored for entry in obj["metadata"].get("managedFields") or []}


@pytest.fixture
def installation(monkeypatch: pytest.MonkeyPatch) -> Installation:
    made = Installation()
    monkeypatch.setattr(clock, "now", made.now)
    monkeypatch.setattr(clock, "monotonic", lambda: made.seconds)
    return made


LIVE = (["a"], ["activator-a"], ["slipway-gateway-a"])
BOTH = (["a", "b"], ["activator-a", "activator-b"], ["slipway-gateway-a", "slipway-gateway-b"])


@pytest.mark.parametrize("has_lease", [True, False], ids=["killed", "ended"])
async def test_entries_and_lease_are_removed_when_a_gateway_is_gone_for_long(
    installation: Installation, *, has_lease: bool
) -> None:
    async with running(installation.watches.run()):
        for name in ("a", "b"):
            await installation.report(name)
        if not has_lease:
            installation.api.remove(kinds.LEASE, NS, "slipway-gateway-b")
        await installation.pass_(20, "a")
        await installation.pass_(SECONDS - 1, "a")
        assert installation.left()[:2] == BOTH[:2]
        await installation.pass_(2, "a")
        assert installation.left() == LIVE
        assert not any(manager.endswith("-b") for manager in installation.managers())


async def test_a_gateway_that_returns_in_time_keeps_its_entries(installation: Installation) -> None:
    async with running(installation.watches.run()):
        for name in ("a", "b"):
            await installation.report(name)
        await installation.pass_(20, "a")
        await installation.pass_(SECONDS - 10, "a", "b")
        await installation.pass_(20, "a")
        await installation.pass_(SECONDS - 10, "a")
        assert installation.left() == BOTH


async def test_nothing_is_removed_when_no_lease_was_renewed_while_the_api_was_away(
    installation: Installation,
) -> None:
    async with running(installation.watches.run()):
        for name in ("a", "b"):
            await installation.report(name)
        await installation.pass_(20)
        await installation.pass_(2 * SECONDS, "a")
        assert installation.left() == BOTH
        await installation.pass_(SECONDS + 1, "a")
        assert installation.left() == LIVE


async def test_the_rest_is_removed_by_the_next_sweep_when_the_api_fails(installation: Installation) -> None:
    async with running(installation.watches.run()):
        for name in ("a", "b"):
            await installation.report(name)
        await installation.pass_(20, "a")
        installation.seconds += SECONDS + 1
        await installation.renew("a")
        installation.api.fail_next(errors.Unavailable("away"), skip=1)
        with pytest.raises(errors.Unavailable):
            await installation.pass_(0)
        assert installation.left() == (LIVE[0], BOTH[1], BOTH[2])
        await installation.pass_(0)
        assert installation.left() == LIVE


async def test_the_rest_is_removed_when_one_route_refuses_the_write(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Kube.withdraw_status

    async def withdraw(kube: Kube, kind: kinds.Kind, namespace: str, name: str, *, manager: str) -> None:
        if kind is kinds.ROUTE and refuses:
            raise errors.ApiError(403, "Forbidden", "a policy of the namespace")
        await real(kube, kind, namespace, name, manager=manager)

    refuses = True
    monkeypatch.setattr(Kube, "withdraw_status", withdraw)
    async with running(installation.watches.run()):
        for name in ("a", "b"):
            await installation.report(name)
        await installation.pass_(20, "a")
        await installation.pass_(SECONDS + 1, "a")
        assert installation.left() == (BOTH[0], LIVE[1], BOTH[2])
        refuses = False
        await installation.pass_(0, "a")
        assert installation.left() == LIVE
