from serving.cli.model import contents

PICKLE = {"path": "model.pkl", "format": "Pickle"}
UNKNOWN = {"path": "weights.bin", "format": "Unrecognized"}


def test_an_image_that_is_not_examined_has_no_lines() -> None:
    assert contents.lines({}) == []


def test_files_with_code_are_named_apart_from_files_that_may_have_some() -> None:
    status = {"contents": {"containsCode": True, "files": [PICKLE, UNKNOWN]}, "signedBy": []}
    assert contents.lines(status) == [
        "contains code, which each replica runs: model.pkl (Pickle)",
        "may contain code, as the format is not known: weights.bin (Unrecognized)",
        "not signed by a known key",
    ]


def test_an_image_without_code_is_described_with_its_signers() -> None:
    status = {"contents": {"containsCode": False}, "signedBy": ["sha256:a", "sha256:b"]}
    assert contents.lines(status) == [
        "contains no code: every file holds data alone",
        "signed by sha256:a, sha256:b",
    ]


def test_a_path_of_an_image_has_escapes_for_what_a_terminal_would_obey() -> None:
    files = [{"path": "a\nb\x1b[31m.bin", "format": "Compressed"}]
    lines = contents.lines({"contents": {"containsCode": True, "files": files}})
    assert lines[0] == r"may contain code, as the format is not known: a\nb\x1b[31m.bin (Compressed)"
