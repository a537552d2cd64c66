"""The configuration: defaults, file, environment and options, in this order, validated."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.cli.config import snapshot
from serving.cli.config.configuration import load
from serving.cli.config.explain import SettingDescription, settings
from serving.cli.config.schema import Configuration, paths, variable_of
from serving.data_dir import DataDir

EVERY = {setting.path: setting for setting in settings()}


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path)


def value_at(configuration: Configuration, path: str) -> Any:
    value: Any = configuration
    for name in path.split("."):
        value = getattr(value, name)
    return value


def refused(data_dir: DataDir, text: str = "", **environment: str) -> str:
    data_dir.config.write_text(text)
    with pytest.raises(errors.UserError) as refusal:
        load(data_dir, environment=environment)
    return str(refusal.value)


def test_every_setting_has_its_default_without_a_file(data_dir: DataDir) -> None:
    resolved = load(data_dir, environment={})
    assert resolved.configuration == Configuration()
    assert resolved.sources == {}


def test_options_override_the_environment_which_overrides_the_file(data_dir: DataDir) -> None:
    data_dir.config.write_text("gateway: {port: 1, concurrency: 2, retries: 3}\n")
    environment = {"SLIPWAY_GATEWAY__PORT": "4", "SLIPWAY_GATEWAY__CONCURRENCY": "5"}
    resolved = load(data_dir, None, {"gateway.port": ("--gateway-port", 6)}, environment)
    gateway = resolved.configuration.gateway
    assert (gateway.port, gateway.concurrency, gateway.retries) == (6, 5, 3)
    assert resolved.sources == {
        "gateway.port": "--gateway-port",
        "gateway.concurrency": "SLIPWAY_GATEWAY__CONCURRENCY",
        "gateway.retries": str(data_dir.config),
    }


@pytest.mark.parametrize("path", list(paths()))
def test_a_setting_can_be_set_by_file_and_by_variable(data_dir: DataDir, path: str) -> None:
    setting = EVERY[path]
    new_value = another(setting)
    *sections, name = path.split(".")
    content: Any = {name: new_value}
    for section in reversed(sections):
        content = {section: content}
    file = yaml.safe_dump(content)
    for text, environment in ((file, {}), ("", {variable_of(path): str(new_value)})):
        data_dir.config.write_text(text)
        try:
            configuration = load(data_dir, environment=environment).configuration
        except errors.UserError as error:
            assert "must be" in str(error)  # noqa: PT017 a rule between two settings, which names both
        else:
            assert value_at(configuration, path) == new_value


def another(setting: SettingDescription) -> Any:
    """Return a value of a setting within its bounds that is not its default."""
    if setting.type == "string":
        strict = {
            "node.pod_network": "127.9",
            "node.host_path_roots": "/other, /another",
            "gateway.name": "other-1",
            "gateway.address": "[::1]:80",
            "runtime_images.prefix": "registry.corp:5000/ml/slipway",
            "runtime_images.tag": "1.2.0-rc.1",
            "runtime_images.pull_policy": "Always",
            "runtime_images.pull_secret": "login.of-registry",
            "runtime_images.copier": "model-copier",
            "runtime_images.waiter": f"registry.corp:5000/pause:3.10@sha256:{'0' * 64}",
            "models.volume": "copy",
            "models.capture": "job",
            "pages.host": "::",
        }
        return strict.get(setting.path, "http://other")
    if setting.type == "boolean":
        return not setting.default
    assert setting.least is not None
    assert setting.most is not None
    inside = [setting.default + 1, setting.default - 1, setting.default / 2]
    new_value = next(value for value in inside if setting.least <= value <= setting.most)
    return round(new_value) if setting.type == "integer" else float(new_value)


@pytest.mark.parametrize("path", [path for path, setting in EVERY.items() if setting.least is not None])
def test_a_value_out_of_bounds_is_refused_with_path_rule_and_value(data_dir: DataDir, path: str) -> None:
    setting = EVERY[path]
    assert setting.least is not None
    assert setting.most is not None
    for value in (setting.least - 1, setting.most * 2 + 1):
        number = round(value) if setting.type == "integer" else value
        message = refused(data_dir, **{variable_of(path): repr(number)})
        assert message.startswith(f"{variable_of(path)}: {path}: ")
        assert "than or equal to" in message
        assert repr(repr(number)) in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gateway: {prot: 1}", "gateway.prot: unknown setting; did you mean gateway.port?"),
        ("gatewy: {port: 1}", "gatewy: unknown setting; did you mean gateway?"),
        ("quux: 1", "quux: unknown setting; see `slipway config explain`"),
        ("gateway: 3", "gateway: Input should be a dictionary"),
        ("gateway: {port: http}", "gateway.port: Input should be a valid integer"),
        ("gateway: {port: }", "gateway.port: Input should be a valid integer, not None"),
        ("gateway: {port: 1.5}", "gateway.port: Input should be a valid integer"),
        ("gateway: {host: 1}", "gateway.host: Input should be a valid string, not 1"),
        ("autoscaler: {risk: .nan}", "autoscaler.risk: Input should be a finite number, not nan"),
        (
            "tuner: {search: {regret: 2}}",
            "tuner.search.regret: Input should be less than or equal to 1, not 2",
        ),
        ("gateway: {port: 1, port: 2}", "duplicate key port"),
        ("api: &x {port: 1}\ngateway: *x", "aliases are not supported"),
        ("- gateway", "must be a mapping of sections"),
        ("{[1]: 2}", "not YAML"),
        ("activator: {deadline_seconds: 300}", "must be below gateway.stream_idle_seconds (300), not 300"),
        (
            "activator: {bytes: 67108864, bytes_per_backend: 67108865}",
            "must be at most activator.bytes (67108864), not 67108865",
        ),
        (
            "models: {policy: {signed: true}}",
            "models.policy.signed: must be false where models.policy.keys names no key",
        ),
        ("models: {policy: {signed: true, keys: ' , '}}", "where models.policy.keys names no key, not true"),
        (
            "models: {policy: {noCode: true}}",
            "models.policy.noCode: unknown setting; did you mean models.policy.no_code?",
        ),
        ("models: {policy: {no_code: maybe}}", "models.policy.no_code: Input should be a valid boolean"),
        ("node: {pod_network: '10.1'}", "node.pod_network: must be 127.N"),
        ("node: {host_path_roots: '/srv,mnt'}", "node.host_path_roots: must be absolute paths such as /srv"),
        ("node: {host_path_roots: /srv/../etc}", "separated by commas, not '/srv/../etc'"),
        ("pages: {host: localhost}", "pages.host: must be an address such as 0.0.0.0"),
        ("gateway: {name: Local}", "gateway.name: must be a DNS label of at most 63 characters"),
        (f"gateway: {{name: {'a' * 64}}}", "gateway.name: must be a DNS label of at most 63 characters"),
        ("gateway: {address: 'http://models'}", "or empty, not 'http://models'"),
        ("runtime_images: {prefix: registry.corp/}", "must be a repository in lower case"),
        ("runtime_images: {prefix: Registry/Slipway}", "without a tag, such as registry.example.com/slipway"),
        ("runtime_images: {prefix: ''}", "must be a repository in lower case"),
        ("runtime_images: {tag: 'a b'}", "runtime_images.tag: must be a tag such as 1.2.0, or empty"),
        ("runtime_images: {pull_policy: always}", "must be Always, IfNotPresent, Never, or empty"),
        ("runtime_images: {copier: a/b}", "must be the name of an image, such as transfer, not 'a/b'"),
        ("runtime_images: {waiter: Pause}", "must be an image such as registry.example.com/pause:3.10, not"),
        ("runtime_images: {waiter: ''}", "must be an image such as registry.example.com/pause:3.10, not ''"),
        ("models: {volume: emptyDir}", "models.volume: must be one of auto, image, copy, not 'emptyDir'"),
        ("models: {capture: pod}", "models.capture: must be one of auto, local, job, not 'pod'"),
        ("runtime_images: {pull_secret: Login}", "must be the name of a Secret, or empty, not 'Login'"),
        ("controllers: {prometheus: prom:9090}", "must be a URL such as http://prometheus.example:9090"),
        ("controllers: {prometheus: 'user:secret@prom'}", "or empty, not 'an invalid URL with credentials"),
    ],
)
def test_an_invalid_file_is_refused_with_its_name(data_dir: DataDir, text: str, message: str) -> None:
    refusal = refused(data_dir, text)
    assert message in refusal
    assert str(data_dir.config) in refusal


def test_all_errors_are_reported_at_once_when_a_file_has_several(data_dir: DataDir) -> None:
    lines = refused(data_dir, "api: {port: -1}\nnode: {nmae: x}", SLIPWAY_GATEWAY__PORT="x").splitlines()
    assert [line.split(": ")[1] for line in lines] == ["api.port", "node.nmae", "gateway.port"]


def test_a_variable_of_an_unknown_setting_is_refused(data_dir: DataDir) -> None:
    assert "SLIPWAY_GATEWAY__PROT: gateway.prot: unknown setting" in refused(
        data_dir, SLIPWAY_GATEWAY__PROT="1"
    )


@pytest.mark.parametrize("text", ["", "gateway: {port: 8080}"])
def test_a_variable_below_a_setting_is_refused_when_the_setting_has_a_value(
    data_dir: DataDir, text: str
) -> None:
    data_dir.config.write_text(text)
    environment = {"SLIPWAY_GATEWAY__PORT__X": "1"}
    with pytest.raises(errors.UserError) as refusal:
        load(data_dir, None, {"gateway.port": ("--gateway-port", 6)}, environment)
    message = "SLIPWAY_GATEWAY__PORT__X: gateway.port.x: unknown setting; did you mean gateway.port?"
    assert str(refusal.value) == message


def test_a_section_is_refused_once_when_it_is_a_value_and_a_variable_sets_a_part(data_dir: DataDir) -> None:
    message = refused(data_dir, "gateway: 3", SLIPWAY_GATEWAY__PORT="1")
    assert message.splitlines() == [
        f"{data_dir.config}: gateway: Input should be a dictionary or an instance of GatewaySettings, not 3"
    ]


def test_unrelated_variables_are_ignored(data_dir: DataDir) -> None:
    environment = {"SLIPWAY_DATA_DIR": "/x", "SLIPWAY_LOG": "debug", "GATEWAY__PORT": "1"}
    assert load(data_dir, environment=environment).configuration == Configuration()


def test_a_named_file_must_exist(data_dir: DataDir) -> None:
    with pytest.raises(errors.UserError, match="no such file"):
        load(data_dir, data_dir.root / "absent.yaml", environment={})


@given(text=st.text(alphabet=st.characters(codec="utf-8"), max_size=200) | st.binary(max_size=200))
def test_any_text_is_loaded_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str | bytes) -> None:
    file = tmp_path_factory.mktemp("config") / "config.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    try:
        load(DataDir(file.parent), file, environment={})
    except errors.UserError as error:
        assert str(file) in str(error)  # noqa: PT017 every other exception fails the test


def test_a_snapshot_is_unchanged_when_read(data_dir: DataDir) -> None:
    data_dir.config.write_text("gateway: {port: 99}\ntuner: {search: {regret: 1.0e-9}}\n")
    configuration = load(data_dir, environment={}).configuration
    snapshot.write(data_dir.configuration, configuration)
    assert snapshot.read(data_dir.configuration) == configuration


def test_unknown_settings_are_ignored_in_a_snapshot_of_another_release(data_dir: DataDir) -> None:
    data_dir.run.mkdir()
    data_dir.configuration.write_text('{"gateway": {"port": 9, "gone": 1}, "removed": {"x": 1}}')
    expected = Configuration()
    gateway = dataclasses.replace(expected.gateway, port=9)
    assert snapshot.read(data_dir.configuration) == dataclasses.replace(expected, gateway=gateway)
