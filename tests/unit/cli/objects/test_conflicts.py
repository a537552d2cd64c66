from serving import errors
from serving.cli.objects import conflicts

FIELD = '.spec.predictors[name="stable"].trafficWeight'


def conflict(field: str = FIELD, manager: str = "slipway-traffic") -> errors.Conflict:
    message = f'conflict with "{manager}" using slipway.dev/v1alpha1'
    return errors.Conflict(409, "Conflict", "Apply failed", [errors.Cause(field, message, conflicts.REASON)])


def obj(weight: object) -> dict[str, object]:
    predictors = [{"name": "other", "trafficWeight": 1}, {"name": "stable", "trafficWeight": weight}]
    return {"spec": {"predictors": predictors}}


def test_a_conflict_shows_field_values_manager_and_command() -> None:
    message = conflicts.words(conflict(), obj(50), obj(90))
    assert 'spec.predictors[name="stable"].trafficWeight is 50, the manifest has 90' in message
    assert "set by slipway-traffic (`slipway traffic set`)" in message
    assert "leave these fields out" in message
    assert "--force-conflicts" in message


def test_a_missing_path_shows_no_values() -> None:
    message = conflicts.words(conflict(".spec.gone[3].x", "somebody"), obj(50), obj(90))
    assert "spec.gone[3].x; set by somebody" in message


def test_values_are_looked_up_by_key_position_and_name() -> None:
    document = {"a": [{"k": 1, "j": "x", "v": 7}, 5]}
    assert conflicts.value(document, '.a[k=1,j="x"].v') == 7
    assert conflicts.value(document, ".a[1]") == 5


def test_only_conflicts_of_field_managers_have_fields() -> None:
    assert conflicts.is_of_field_managers(conflict())
    assert not conflicts.is_of_field_managers(errors.Conflict(409, "Conflict", "stale"))
