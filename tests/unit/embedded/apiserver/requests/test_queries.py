"""The Accept header of a request."""

import pytest

from serving import errors
from serving.embedded.apiserver.requests import queries
from serving.embedded.apiserver.requests.queries import Accepted


def test_a_group_and_version_do_not_count_when_there_is_no_form() -> None:
    assert queries.accepted("application/json;g=apidiscovery.k8s.io;v=x1") == Accepted()


def test_a_version_of_aggregated_discovery_is_refused_when_it_does_not_exist() -> None:
    header = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
    assert queries.accepted(header.format("v2")).version == "v2"
    with pytest.raises(errors.ApiError) as refused:
        queries.accepted(header.format("x1"))
    assert refused.value.code == 406
