import pytest

from serving.embedded.pod_spec import environment as container_environment

POD = {"metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"a/b": "c"}}, "spec": {}}


def environment(container: dict, maps: dict | None = None, secrets: dict | None = None) -> dict[str, str]:
    return container_environment.environment(
        POD,
        container,
        ip="127.77.1.1",
        node="local",
        programs="/opt/venv/bin",
        maps=maps or {},
        secrets=secrets or {},
    )


def test_references_are_expanded_as_kubernetes_does():
    env = {"A": "1", "B": "$(A)", "1X": "2", "a b": "3"}
    for text, expected in [
        ("$(A)x", "1x"),
        ("$$(A)", "$(A)"),
        ("$(NO)", "$(NO)"),
        ("$(B)", "$(A)"),
        ("$", "$"),
        ("$(", "$("),
        ("$$$(A)", "$1"),
        ("$(1X)", "2"),
        ("$(a b)", "3"),
        ("$()", "$()"),
        ("$($(A)", "$($(A)"),
    ]:
        assert container_environment.expand(text, env) == expected, text


def test_address_and_first_port_are_set_unless_the_pod_sets_them():
    env = environment({"ports": [{"containerPort": 8080}, {"containerPort": 9}]})
    assert (env["POD_IP"], env["HOST"], env["PORT"]) == ("127.77.1.1", "127.77.1.1", "8080")
    assert environment({"env": [{"name": "HOST", "value": "x"}]})["HOST"] == "x"


def test_hostname_is_that_of_the_spec_when_it_has_one(monkeypatch: pytest.MonkeyPatch):
    assert environment({})["HOSTNAME"] == "p"
    monkeypatch.setitem(POD, "spec", {"hostname": "db-0"})
    assert environment({})["HOSTNAME"] == "db-0"


def test_programs_of_the_interpreter_come_first_in_path_unless_the_pod_sets_it():
    assert environment({})["PATH"].split(":")[:2] == ["/opt/venv/bin", "/usr/local/sbin"]
    assert container_environment.search_path("/usr/bin") == container_environment.BASE["PATH"]
    own = environment({"env": [{"name": "PATH", "value": "/mine:$(PATH)"}]})
    assert own["PATH"].startswith("/mine:/opt/venv/bin:")


def test_missing_reference_is_named_unless_it_is_optional():
    ref = {"name": "V", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    with pytest.raises(container_environment.Missing, match="secret 's' not found"):
        environment({"env": [ref]})
    with pytest.raises(container_environment.Missing, match="has no key 'k'"):
        environment({"env": [ref]}, secrets={"s": {}})
    ref["valueFrom"]["secretKeyRef"]["optional"] = True
    assert "V" not in environment({"env": [ref]})


def test_env_from_a_config_map_has_its_prefix():
    container = {"envFrom": [{"configMapRef": {"name": "c"}, "prefix": "P_"}]}
    assert environment(container, maps={"c": {"k": b"v"}})["P_k"] == "v"


def test_fields_of_the_pod_are_read():
    assert container_environment.field(POD, "metadata.labels['a/b']", "", "") == "c"
    assert container_environment.field(POD, "status.podIP", "1", "") == "1"
    assert container_environment.field(POD, "spec.priority", "", "") is None


def test_command_replaces_that_of_the_image_and_args_are_appended():
    assert container_environment.arguments({"args": ["$(A)"]}, ["python"], {"A": "1"}) == ["python", "1"]
    assert container_environment.arguments({"command": ["sh"], "args": ["x"]}, ["python"], {}) == ["sh", "x"]
