"""The pages that a kubelet asks, and the option that gives them a port."""

from http import HTTPStatus
from pathlib import Path

import pytest

from serving.cli.machine import component, health
from serving.system.readiness import Readiness


async def test_readiness_page_says_why_the_component_is_not_ready() -> None:
    readiness = Readiness()
    pages = health.pages(readiness)
    obstacles = ["Envoy has acknowledged no plan yet"]
    assert (await pages["/readyz"]()).status == HTTPStatus.SERVICE_UNAVAILABLE
    readiness.follow(obstacles.pop)
    answer = await pages["/readyz"]()
    assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert answer.body == b"not ready: Envoy has acknowledged no plan yet\n"
    readiness.follow(str)
    assert (await pages["/readyz"]()).status == HTTPStatus.OK


async def test_component_is_live_when_it_is_not_ready() -> None:
    pages = health.pages(Readiness())
    assert sorted(pages) == ["/livez", "/readyz"]
    assert (await pages["/livez"]()).status == HTTPStatus.OK


@pytest.mark.parametrize(
    "arguments", [["node", "8081"], ["api", "8081"], ["gateway", "0"], ["gateway", "65536"]]
)
def test_health_port_is_refused_when_no_kubelet_could_ask_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    name, port = arguments
    with pytest.raises(SystemExit):
        component.main([name, "--data-dir", str(tmp_path), "--health-port", port])
    assert "--health-port: " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
