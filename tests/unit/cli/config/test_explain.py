"""`slipway config explain`: every setting has a unit and a reason."""

import json
from pathlib import Path

import pytest
import yaml

from serving import errors
from serving.cli.config import printing
from serving.cli.config.explain import sections, settings
from serving.cli.config.schema import paths


def test_every_setting_has_a_reason_and_a_default_within_its_bounds() -> None:
    explained = list(settings())
    assert [setting.path for setting in explained] == list(paths())
    for setting in explained:
        assert len(setting.reason) > 10, setting.path
        if setting.type not in ("string", "boolean"):
            assert setting.unit, setting.path
            assert setting.least is not None
            assert setting.most is not None
            assert setting.least <= setting.default <= setting.most, setting.path


def test_every_section_has_a_summary() -> None:
    assert all(section.summary for section in sections())


def test_a_setting_is_explained_with_unit_bounds_default_and_variable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printing.explain("gateway.port", "text")
    text = capsys.readouterr().out
    for part in (
        "gateway.port",
        "TCP port",
        "0 to 65535",
        "default: 8080",
        "SLIPWAY_GATEWAY__PORT",
        "listener",
    ):
        assert part in text


def test_sections_are_listed_without_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    printing.explain(None, "text")
    listed = [line.split()[0] for line in capsys.readouterr().out.split("\n\n")[0].splitlines()]
    assert listed == [section.path for section in sections()]


def test_an_unknown_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(errors.UserError, match=r"did you mean gateway\.port"):
        printing.explain("gateway.prot", "text")


def test_shown_configuration_is_a_file_with_the_same_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_TUNER__SEARCH__REGRET", "0.5")
    file = tmp_path / "config.yaml"
    file.write_text("gateway: {port: 9090}\nautoscaler: {risk: 1}\n")
    printing.show(every=False, output="yaml", data_dir=tmp_path)
    shown = capsys.readouterr().out
    expected = {"gateway": {"port": 9090}, "autoscaler": {"risk": 1.0}, "tuner": {"search": {"regret": 0.5}}}
    assert yaml.safe_load(shown) == expected
    assert "# SLIPWAY_TUNER__SEARCH__REGRET" in shown
    file.write_text(shown)
    monkeypatch.delenv("SLIPWAY_TUNER__SEARCH__REGRET")
    printing.show(every=False, output="json", data_dir=tmp_path)
    assert json.loads(capsys.readouterr().out) == expected


@pytest.mark.parametrize("end", ["", "\n"])
def test_shown_configuration_is_a_file_when_a_value_is_long(
    end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    roots = ", ".join(f"/srv/models/of-team-{number}" for number in range(8)) + end
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"node": {"host_path_roots": roots}}))
    printing.show(every=False, output="yaml", data_dir=tmp_path)
    assert yaml.safe_load(capsys.readouterr().out) == {"node": {"host_path_roots": roots}}


def test_a_setting_is_not_shown_when_it_is_set_to_its_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text("gateway: {port: 8080}\nautoscaler: {risk: 1}\n")
    printing.show(every=False, output="json", data_dir=tmp_path)
    assert json.loads(capsys.readouterr().out) == {"autoscaler": {"risk": 1.0}}


def test_a_variable_is_shown_when_its_section_is_empty_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text("gateway: {}\n")
    monkeypatch.setenv("SLIPWAY_GATEWAY__PORT", "9000")
    printing.show(every=False, output="json", data_dir=tmp_path)
    assert json.loads(capsys.readouterr().out) == {"gateway": {"port": 9000}}


def test_every_setting_is_shown_with_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printing.show(every=True, output="yaml", data_dir=tmp_path)
    shown = yaml.safe_load(capsys.readouterr().out)
    assert set(shown) == {section.path for section in sections() if "." not in section.path}
