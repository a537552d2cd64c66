"""The exception of a Status."""

from serving import errors


def test_a_schema_error_of_an_apply_is_invalid_when_a_cluster_answers_500() -> None:
    message = (
        "failed to create typed patch object (default/a; apps/v1, Kind=Deployment): "
        ".spec.x: field not declared in schema"
    )
    error = errors.from_status(500, {"message": message, "code": 500})
    assert isinstance(error, errors.Invalid)
    assert (error.code, str(error)) == (422, message)


def test_another_500_is_a_failure_of_the_api() -> None:
    error = errors.from_status(500, {"message": "the disk is full", "reason": "InternalError"})
    assert (type(error), error.code) == (errors.Internal, 500)


def test_a_refusal_is_of_one_object_when_the_namespace_is_not_terminating() -> None:
    for code, is_refusal in ((400, True), (401, False), (403, True), (409, False), (422, True), (500, False)):
        assert errors.is_refusal(errors.from_status(code, {"code": code})) is is_refusal
    cause = {"reason": "NamespaceTerminating", "field": "metadata.namespace", "message": "it is terminated"}
    status = {"code": 403, "reason": "Forbidden", "details": {"causes": [cause]}}
    error = errors.from_status(403, status)
    assert (errors.is_namespace_terminating(error), errors.is_refusal(error)) == (True, False)
    assert not errors.is_namespace_terminating(errors.from_status(403, {"code": 403}))
