"""How a Status becomes an exception."""

from serving import errors


def test_an_apply_that_does_not_fit_the_schema_is_invalid_though_a_cluster_answers_500() -> None:
    said = "failed to create typed patch object (default/a; apps/v1, Kind=Deployment): .spec.x: field not declared in schema"
    found = errors.from_status(500, {"message": said, "code": 500})
    assert isinstance(found, errors.Invalid)
    assert (found.code, str(found)) == (422, said)


def test_another_500_stays_what_it_is() -> None:
    found = errors.from_status(500, {"message": "the disk is full", "reason": "InternalError"})
    assert (type(found), found.code) == (errors.ApiError, 500)
