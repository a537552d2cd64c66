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
