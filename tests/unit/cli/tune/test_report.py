"""The layout of the sentences of `slipway tune report`, and the settings by which it judges trials."""

from pathlib import Path

import pytest

from serving import errors
from serving.cli.config import configuration, snapshot
from serving.cli.target import Target
from serving.cli.tune import report
from serving.data_dir import DataDir

SECTIONS = {
    "headline": ["Run cpu 2."],
    **dict.fromkeys(("cautions", "current", "alternative", "runnerUp", "impossible", "details"), ()),
    **dict.fromkeys(("prices", "bounds", "fronts", "shares", "model", "question", "trials"), ()),
    "spent": ["4\u00a0trials were made, for a space of 96.", "They took 3 min."],
}


def test_each_sentence_has_a_line_without_a_terminal() -> None:
    assert report.plain(SECTIONS) == (
        "Run cpu 2.\n\nCost of the search:\n  4 trials were made, for a space of 96.\n  They took 3 min.\n"
    )


def test_escape_sequences_of_a_replicas_error_are_shown_as_text() -> None:
    noted = {**SECTIONS, "cautions": ["Trial 1: RequestsFailed: status 500: \x1b]0;mine\x07\u202e"]}
    for width in (None, 80):
        assert "status 500: \\x1b]0;mine\\x07\\u202e" in report.plain(noted, width)


def test_sentences_are_wrapped_and_indented_on_a_terminal() -> None:
    assert report.plain(SECTIONS, 24).splitlines()[3:6] == [
        "  4 trials were made,",
        "    for a space of 96.",
        "  They took 3 min.",
    ]


REGRET = "SLIPWAY_TUNER__SEARCH__REGRET"


@pytest.fixture
def own_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    """The default data directory of the command, with a configuration file."""
    directory = DataDir(tmp_path / "own")
    directory.root.mkdir()
    directory.config.write_text("tuner: {search: {regret: 0.01}}\n")
    monkeypatch.setenv("SLIPWAY_DATA_DIR", str(directory.root))
    monkeypatch.delenv(REGRET, raising=False)
    return directory


def after_up(directory: DataDir, regret: float) -> DataDir:
    """Return the directory as `slipway up` writes it, with a regret that was set for `up` alone."""
    directory.root.mkdir(exist_ok=True)
    directory.kubeconfig.touch()
    resolved = configuration.load(directory, environment={REGRET: str(regret)})
    snapshot.write(directory.configuration, resolved.configuration)
    return directory


def regret(kubeconfig: Path, file: Path | None = None) -> float:
    target = Target(kubeconfig, "default", explicit=False)
    return report.tuner_settings(target, file).search.regret


def test_settings_are_those_of_up_when_its_file_and_environment_were_others(
    own_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_up(own_dir, 0.02)
    monkeypatch.setenv(REGRET, "0.03")
    assert regret(own_dir.kubeconfig) == 0.02


def test_settings_are_those_of_the_up_whose_kubeconfig_is_used_when_the_default_directory_is_another(
    own_dir: DataDir, tmp_path: Path
) -> None:
    after_up(own_dir, 0.02)
    other = after_up(DataDir(tmp_path / "other"), 0.04)
    assert regret(other.kubeconfig) == 0.04
    link = tmp_path / "config"
    link.symlink_to(other.kubeconfig)
    assert regret(link) == 0.04


def test_settings_are_those_of_the_file_when_one_is_given(own_dir: DataDir, tmp_path: Path) -> None:
    after_up(own_dir, 0.02)
    file = tmp_path / "given.yaml"
    file.write_text("tuner: {search: {regret: 0.05}}\n")
    assert regret(own_dir.kubeconfig, file) == 0.05
    file.write_text("tuner: {search: {regret: -1}}\n")
    with pytest.raises(errors.UserError, match=r"given\.yaml: tuner\.search\.regret: .*not -1"):
        regret(own_dir.kubeconfig, file)


def test_settings_are_none_of_this_machines_up_when_the_api_is_a_clusters(
    own_dir: DataDir, tmp_path: Path
) -> None:
    after_up(own_dir, 0.02)
    cluster = tmp_path / "kube" / "config"
    cluster.parent.mkdir()
    cluster.with_name("config.yaml").write_text("apiVersion: v1\nkind: Config\n")  # another kubeconfig
    assert regret(cluster) == 0.01
    file = tmp_path / "config-map.yaml"
    file.write_text("tuner: {search: {regret: 0.05}}\n")
    assert regret(cluster, file) == 0.05
