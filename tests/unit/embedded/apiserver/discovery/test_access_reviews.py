"""Reviews of access, and what is refused with words of its own."""

from typing import Any

import pytest

from serving import errors
from serving.embedded.apiserver.discovery import access_reviews, api_groups, empty_kinds, not_offered
from serving.embedded.apiserver.requests import paths
from serving.embedded.apiserver.schema.stored_kinds import StoredKinds
from serving.resources import kinds
from tests.objects.stored_kinds import SERVED_KINDS, STORED_KINDS


def review(**attributes: str) -> dict[str, Any]:
    body = {"spec": {"resourceAttributes": attributes}}
    status: dict[str, Any] = access_reviews.answer(SERVED_KINDS, api_groups.SELF_SUBJECT_ACCESS_REVIEW, body)[
        "status"
    ]
    return status


def test_every_verb_of_every_served_resource_is_allowed_and_no_other() -> None:
    for kind in SERVED_KINDS:
        for verb in api_groups.VERBS:
            allowed = review(group=kind.group, resource=kind.plural, verb=verb)["allowed"]
            assert allowed == (verb in api_groups.verbs(kind)), (kind, verb)
    assert not review(group="nothing.dev", resource="things", verb="get")["allowed"]


def test_rules_are_those_by_which_reviews_are_answered() -> None:
    answer = access_reviews.answer(
        SERVED_KINDS, api_groups.SELF_SUBJECT_RULES_REVIEW, {"spec": {"namespace": "a"}}
    )
    for rule in answer["status"]["resourceRules"]:
        (group,), (name,) = rule["apiGroups"], rule["resources"]
        plural, _, subresource = name.partition("/")
        for verb in rule["verbs"]:
            assert review(group=group, resource=plural, subresource=subresource, verb=verb)["allowed"], rule


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec.resourceAttributes"),
        ([], "spec"),
        ({"resourceAttributes": {"verb": 1}}, "spec.resourceAttributes.verb"),
        (
            {"resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"path": "/"}},
            "spec.resourceAttributes",
        ),
    ],
)
def test_a_review_that_asks_for_nothing_or_both_is_refused_by_field(spec: object, field: str) -> None:
    with pytest.raises(errors.Invalid) as refused:
        access_reviews.answer(SERVED_KINDS, api_groups.SELF_SUBJECT_ACCESS_REVIEW, {"spec": spec})
    assert [cause.field for cause in refused.value.causes] == [field]


def test_resource_that_is_not_offered_is_not_served() -> None:
    served = {(kind.group, kind.plural): kind for kind in SERVED_KINDS}
    for group, plural, subresource in not_offered.SUBRESOURCES:
        assert subresource not in api_groups.subresources(served[group, plural])
    for group, plural in not_offered.RESOURCES:
        assert (group, plural) not in served
    assert not set(empty_kinds.KINDS) & {
        kind for kind in served.values() if "create" in api_groups.verbs(kind)
    }


def refusal(path: str, stored_kinds: StoredKinds = STORED_KINDS) -> errors.ApiError:
    resource = paths.split(path)
    assert resource is not None
    return not_offered.refusal(stored_kinds, resource)


def test_a_subresource_is_refused_with_the_message_of_its_kind_when_the_kind_is_given() -> None:
    with_messages = [(kind, name) for kind in SERVED_KINDS for name in kind.not_offered]
    assert (kinds.INFERENCE, "scale") in with_messages
    for kind, name in with_messages:
        assert name not in api_groups.subresources(kind)
        path, message = kind.path("a", "b", name), kind.not_offered[name]
        assert (refusal(path).code, refusal(path).message) == (405, message)
        denied = review(group=kind.group, resource=kind.plural, subresource=name, verb="update")
        assert denied == {"allowed": False, "reason": message}
        assert refusal(path, StoredKinds(())).code == 404


def test_a_refusal_names_what_to_use_or_is_a_plain_404() -> None:
    attach = refusal("/api/v1/namespaces/a/pods/b/attach")
    assert (attach.code, attach.message) == (405, "attach is not offered: use kubectl logs --follow")
    scaler = refusal("/apis/autoscaling/v2/namespaces/a/horizontalpodautoscalers")
    assert (scaler.code, "use an Autoscaler" in scaler.message) == (404, True)
    plain = refusal("/apis/apps/v1/nothings")
    assert (plain.code, plain.message) == (404, "the server could not find the requested resource")
