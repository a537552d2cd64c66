"""Discovery names the kinds that the controllers ask for at their start."""

import os

import pytest

from serving.kube import Kube, serves
from serving.resources import kinds
from serving.resources.kinds import Kind


@pytest.mark.server_only("the API in memory has no discovery")
async def test_kind_is_served_only_when_discovery_lists_it(kube: Kube) -> None:
    assert await serves(kube, kinds.DEPLOYMENT)
    assert await serves(kube, kinds.INFERENCE)
    assert not await serves(kube, Kind("apps", "v1", "Nothing", "nothings"))
    # The embedded server lists it, as kubectl asks for it, and refuses its objects.
    assert await serves(kube, kinds.DAEMON_SET) == ("SLIPWAY_CONTRACT_KUBECONFIG" in os.environ)
    assert not await serves(kube, Kind("none.example.com", "v1", "Nothing", "nothings"))
