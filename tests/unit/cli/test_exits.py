import pytest

from serving import errors
from serving.cli import main
from serving.cli.exits import Exit, code, words


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (404, "NotFound", Exit.NOT_FOUND),
        (409, "Conflict", Exit.CONFLICT),
        (409, "AlreadyExists", Exit.CONFLICT),
        (422, "Invalid", Exit.INVALID),
        (400, "BadRequest", Exit.INVALID),
        (401, "Unauthorized", Exit.FORBIDDEN),
        (500, "InternalError", Exit.FAILED),
    ],
)
def test_each_status_has_its_exit_code(status: int, reason: str, expected: Exit) -> None:
    assert code(errors.from_status(status, {"reason": reason, "message": "no"})) == expected


def test_an_unreachable_api_has_its_exit_code_and_a_hint() -> None:
    error = errors.Unavailable("GET /version: refused")
    assert code(error) == Exit.UNREACHABLE
    assert "slipway up" in words(error)


def test_every_broken_rule_is_printed_once_with_its_field() -> None:
    causes = [errors.Cause("spec.a", "must be positive, got -3"), errors.Cause("spec.b", "is required")]
    message = words(errors.Invalid(422, "Invalid", "digits is invalid: [spec.a: ..., spec.b: ...]", causes))
    assert message.splitlines() == [
        "digits is invalid",
        "  spec.a: must be positive, got -3",
        "  spec.b: is required",
    ]


def test_a_missing_object_is_reported_with_the_command_that_lists_objects() -> None:
    error = errors.NotFound(404, "NotFound", 'pods "x" not found', details={"kind": "pods", "name": "x"})
    assert "`slipway get pods`" in words(error)
    assert words(errors.NotFound(404, "NotFound", "no such path")) == "no such path"


def test_a_missing_namespace_is_reported_with_the_command_that_lists_namespaces() -> None:
    error = errors.NotFound(404, "NotFound", 'namespaces "x" not found', details={"kind": "namespaces"})
    assert words(error).endswith("\n`slipway get namespaces` lists what there is.")


def test_a_hung_api_is_unreachable_and_its_hint_does_not_start_another() -> None:
    error = errors.Hung("the API at https://h:1 accepts connections, but has not answered for 4 s")
    assert code(error) == Exit.UNREACHABLE
    assert "slipway up" not in words(error)


def test_no_kubeconfig_is_unreachable_and_other_mistakes_of_the_user_are_failures() -> None:
    assert code(errors.NoApi("no API to talk to")) == Exit.UNREACHABLE
    assert code(errors.UserError("there is no kind 'x'")) == Exit.FAILED


def test_a_missing_permission_is_shown_as_the_api_words_it() -> None:
    message = 'models.slipway.dev is forbidden: User "ann" cannot list resource "models"'
    error = errors.from_status(403, {"reason": "Forbidden", "message": message})
    assert words(error) == message
    assert code(error) == Exit.FORBIDDEN


def test_an_unknown_token_is_reported_with_the_option_that_names_another() -> None:
    assert "token is not accepted" in words(errors.from_status(401, {"reason": "Unauthorized"}))


def test_a_single_broken_rule_is_printed_once() -> None:
    cause = errors.Cause("spec", 'Invalid value: "object": at least one predictor needs a weight')
    message = f'Inference.slipway.dev "digits" is invalid: {cause.field}: {cause.message}'
    assert words(errors.Invalid(422, "Invalid", message, [cause])).splitlines() == [
        'Inference.slipway.dev "digits" is invalid',
        f"  {cause.field}: {cause.message}",
    ]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied", "/a/kubeconfig"), "/a/kubeconfig: Permission denied"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_a_failure_of_the_system_is_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: OSError, message: str
) -> None:
    def fail(_: list[str]) -> None:
        raise error

    monkeypatch.setattr(main, "_run", fail)
    with pytest.raises(SystemExit) as ended:
        main.run(["get"])
    assert ended.value.code == Exit.FAILED
    assert capsys.readouterr().err == f"error: {message}\n"


TITLE = "\x1b]0;x\x07"
"""An escape sequence that sets the title of a terminal."""


@pytest.mark.parametrize(
    "error",
    [
        errors.UserError(f"it has failed: the registry answered 403\n{TITLE}denied"),
        errors.Invalid(422, "Invalid", "is invalid", [errors.Cause("spec.a", f"got\n{TITLE}denied")]),
        OSError(13, f"Permission\n{TITLE}denied", "file"),
    ],
    ids=["message", "cause", "system"],
)
def test_no_terminal_obeys_a_foreign_text_in_the_message_of_a_failure(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: list[str]) -> None:
        raise error

    monkeypatch.setattr(main, "_run", fail)
    with pytest.raises(SystemExit):
        main.run(["get"])
    message = capsys.readouterr().err
    assert message.isascii()
    assert message.endswith("\n\\x1b]0;x\\x07denied\n")
    assert "\x1b" not in message
