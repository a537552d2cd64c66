"""The termination message of a capture."""

from pathlib import Path

from serving.images.capturing import process


def test_message_is_cut_between_characters_when_it_is_too_long(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert process._failed(log, "Reason", ValueError("é" * 3000 + "x"), 1) == 1
    for prefix in ("", "x"):
        process._failed(log, f"{prefix}Reason", ValueError("é" * 3000), 1)
        assert log.read_bytes().decode().endswith("é")
