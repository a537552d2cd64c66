import json
from pathlib import Path

import pytest

from serving.router.envoy import wire
from serving.router.envoy.bootstrap import bootstrap
from serving.router.envoy.render import File, Renderer, cluster_file, weights_file
from serving.router.plan import assemble, service_of
from serving.settings import GatewaySettings
from tests.fakes.gateway import endpoint_slice, route

GOLDEN = Path(__file__).parents[2] / "golden" / "router"
SETTINGS = GatewaySettings()
WATCHED = ("clusters", "weights", "public", "private", "admin", "probe")


def plan():
    digits = route(
        "digits",
        [("stable", 9000), ("candidate", 1000)],
        unweighted=["next"],
        sticky={"header": "X-User-Id", "salt": "spring"},
    )
    slices = {
        "digits-stable": [endpoint_slice("digits-stable", ["127.77.0.3", "127.77.0.2"])],
        "digits-candidate": [endpoint_slice("digits-candidate", ["127.77.0.4"])],
    }
    away = route("away", [("only", 10_000)], namespace="team")
    return assemble([service_of(digits, slices), service_of(away, {})])


def decoded(file: File) -> object:
    return wire.decode("DiscoveryResponse", file.content)


def compare(name: str, found: object) -> None:
    path = GOLDEN / name
    text = json.dumps(found, indent=1, sort_keys=True) + "\n"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        pytest.fail(f"{path} did not exist: look at it, and commit it")
    assert text == path.read_text()


def test_clusters_are_as_in_the_golden_file() -> None:
    compare("clusters.json", decoded(cluster_file(Renderer(SETTINGS).render(plan()).clusters)))


def test_weights_are_as_in_the_golden_file() -> None:
    compare("weights.json", decoded(weights_file(Renderer(SETTINGS).render(plan()).weights)))


@pytest.mark.parametrize("name", ["public", "private"])
def test_routes_are_as_in_the_golden_file(name: str) -> None:
    rendered = Renderer(SETTINGS).render(plan())
    compare(f"{name}.json", decoded(getattr(rendered, name)))


def test_the_bootstrap_is_as_in_the_golden_file() -> None:
    files = {n: f"/data/gateway/{n}" for n in WATCHED}
    compare("bootstrap.json", bootstrap(SETTINGS, port=8080, files=files))


def test_the_same_plan_has_the_same_versions_and_another_has_others() -> None:
    renderer = Renderer(SETTINGS)
    first, again = renderer.render(plan()), renderer.render(plan())
    assert (first.public.version, first.private.version) == (again.public.version, again.private.version)
    assert first.public.version != Renderer(SETTINGS).render(assemble([])).public.version


def test_a_salt_with_any_characters_is_only_ever_a_digest_in_the_pattern() -> None:
    odd = route("digits", [("a", 5000), ("b", 5000)], sticky={"header": "x-user", "salt": "\\9 (.*"})
    slices = {f"digits-{a}": [endpoint_slice(f"digits-{a}", ["127.77.0.2"])] for a in "ab"}
    content = Renderer(SETTINGS).render(assemble([service_of(odd, slices)])).public.content
    assert b"(.*$" not in content.replace(b"^(.*)$", b"")
    assert b"\\9" not in content


def test_neither_file_count_nor_watches_grow_with_services() -> None:
    text = json.dumps(bootstrap(SETTINGS, port=1, files=dict.fromkeys(WATCHED, "/x")))
    assert text.count("path_config_source") == len({"clusters", "weights", "public", "private"})
