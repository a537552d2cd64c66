"""The requests of a trial: templates, recordings, and requests generated from a model's metadata."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import Permanent
from serving.resources.tuning.load import ExperimentLoad, KeyOf, RequestTemplate
from tuner.load import requests
from tuner.load.plan import LoadRequest

RECORDED = KeyOf(name="recorded", key="requests")
DESCRIPTION = {"name": "digits", "inputs": [{"name": "input", "datatype": "FP64", "shape": [-1, 64]}]}


def recorded(*lines: str, mode: str = "closed") -> tuple[LoadRequest, ...]:
    return requests.plan(
        ExperimentLoad(mode=mode, requests=RECORDED), None, "digits", recorded="\n".join(lines)
    ).requests


def test_template_parameters_are_replaced_in_path_headers_and_body() -> None:
    template = RequestTemplate(
        path="/v2/models/${model}/infer",
        headers={"x-batch": "${batch}"},
        body='{"n": ${batch}, "m": "$${batch} $"}',
    )
    plan = requests.plan(ExperimentLoad(request_template=template), None, "digits", parameters={"batch": "8"})
    (request,) = plan.requests
    assert request.path == "/v2/models/digits/infer"
    assert request.headers == {"x-batch": "8", "content-type": "application/json"}
    assert request.body == b'{"n": 8, "m": "${batch} $"}'


def test_unknown_parameter_is_refused_with_its_field() -> None:
    template = RequestTemplate(path="/", body="${bach}")
    with pytest.raises(
        Permanent, match=r"load.requestTemplate.body: .* one of batch, model, not \"\$\{bach\}\""
    ):
        requests.plan(ExperimentLoad(request_template=template), None, "digits", parameters={"batch": "8"})


@pytest.mark.parametrize(
    ("path", "body", "stream"),
    [
        ("/v1/completions", '{"stream": true}', True),
        ("/v1/chat/completions?x=1", '{"stream": true}', True),
        ("/v1/completions", '{"stream": false}', False),
        ("/v1/completions", "no json", False),
        ("/v1/embeddings", '{"stream": true}', False),
    ],
)
def test_stream_is_detected_by_path_and_body(path: str, body: str, *, stream: bool) -> None:
    template = RequestTemplate(path=path, body=body)
    assert requests.templated(template, {}).stream is stream


def test_body_of_a_template_may_be_nested_too_deeply_to_read() -> None:
    body = "[" * 100_000
    assert requests.templated(RequestTemplate(path="/", body=body), {}).body == body.encode()


def test_recorded_requests_keep_their_order_and_times() -> None:
    sent = recorded(
        '{"path": "/a", "method": "GET", "at": 1}',
        "",
        '{"path": "/b", "body": {"x": 1}, "headers": {"x-a": "b"}, "at": 1.5}',
    )
    assert [(each.method, each.path, each.at) for each in sent] == [("GET", "/a", 1.0), ("POST", "/b", 1.5)]
    assert sent[1].body == b'{"x": 1}'
    assert sent[1].headers == {"x-a": "b", "content-type": "application/json"}


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85"])
def test_recorded_line_is_whole_when_a_string_has_a_separator(separator: str) -> None:
    (first, second) = recorded(f'{{"path": "/a", "body": "x{separator}y"}}\r', '{"path": "/b"}')
    assert (first.body.decode(), second.path) == (f"x{separator}y", "/b")
    with pytest.raises(Permanent, match="line 2: must be JSON"):
        recorded(f'{{"path": "/a", "body": "x{separator}y"}}', "{")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"path": "/"}', "{"], "line 2: must be JSON"),
        (["[]"], "line 1: must be a JSON object"),
        (['{"path": "/", "url": "x"}'], 'line 1: has only .*, not "url"'),
        (["{}"], "line 1: path: must begin with one /, .*|line 1: path: must begin"),
        (['{"path": "//host/x"}'], "line 1: path"),
        (['{"path": "/a b"}'], "line 1: path"),
        (
            ['{"path": "/caf\\u00e9"}'],
            r'line 1: path: must begin with one / and be printable ASCII .* not "/caf\\u00e9"',
        ),
        (['{"path": "/v1/日本"}'], "line 1: path"),
        (
            ['{"path": "/", "method": "DELETE"}'],
            'line 1: method: must be one of GET, POST, PUT, not "DELETE"',
        ),
        (['{"path": "/", "headers": {"a": 1}}'], "line 1: headers: must be an object of strings"),
        (['{"path": "/", "headers": {"a": "b\\r\\nc: d"}}'], "line 1: headers"),
        (
            ['{"path": "/", "headers": {"Content-Length": "3"}}'],
            "must not include a header derived from the body",
        ),
        (['{"path": "/", "at": -1}'], "line 1: at: must be seconds"),
        (['{"path": "/", "at": true}'], "line 1: at: must be seconds"),
        (['{"path": "/", "at": NaN}'], "line 1: at: must be seconds"),
        (['{"path": "/", "body": ' + "[" * 100_000], "line 1: must be JSON"),
        (['{"path": "/", "body": "\\ud800"}'], "line 1: body: must be text in Unicode"),
        (['{"path": "/", "at": 1}', '{"path": "/"}'], "line 2: at: must be in every line or in none"),
        (['{"path": "/", "at": 1}', '{"path": "/", "at": 0}'], "line 2: at: must not be before"),
        ([""], "must have a request"),
    ],
)
def test_invalid_line_is_refused_with_its_number(lines: list[str], message: str) -> None:
    with pytest.raises(Permanent, match=message) as raised:
        recorded(*lines)
    assert raised.value.reason == "LoadFailed"


def test_requests_are_generated_from_metadata_by_seed() -> None:
    def generated(seed: int) -> tuple[LoadRequest, ...]:
        return requests.plan(
            ExperimentLoad(), DESCRIPTION, "digits", parameters={"batch": "3"}, seed=seed
        ).requests

    first = generated(4)
    assert len(first) == 16
    assert len({request.body for request in first}) == 16
    (tensor,) = json.loads(first[0].body)["inputs"]
    assert first[0].path == "/v2/models/digits/infer"
    assert (tensor["name"], tensor["datatype"], tensor["shape"]) == ("input", "FP64", [3, 64])
    assert len(tensor["data"]) == 192
    assert all(0 <= value <= 1 for value in tensor["data"])
    assert first == generated(4)
    assert first != generated(5)


@pytest.mark.parametrize(
    ("datatype", "kinds"), [("INT32", int), ("UINT8", int), ("BOOL", bool), ("BYTES", str), ("FP32", float)]
)
def test_values_have_the_type_of_the_datatype(datatype: str, kinds: type) -> None:
    description = {"inputs": [{"name": "x", "datatype": datatype, "shape": [-1, -1, 4]}]}
    (request, *_) = requests.random_requests(description, "m", batch=2, seed=0)
    (tensor,) = json.loads(request.body)["inputs"]
    assert tensor["shape"] == [2, 1, 4]
    assert {type(value) for value in tensor["data"]} == {kinds}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (None, "has no inputs of the model"),
        ([], "has no inputs of the model"),
        (5, r"inputs is not a list: 5"),
        ({"name": "x"}, "inputs is not a list"),
        ([5], r"inputs\[0\] has no name"),
        ([{"name": "x", "datatype": ["FP32"], "shape": [1]}], r"inputs\[0\].datatype is not text"),
        ([{"datatype": "FP32", "shape": [1]}], r"inputs\[0\] has no name"),
        ([{"name": "x", "datatype": "BF16", "shape": [1]}], r"inputs\[0\].datatype cannot be sent as JSON"),
        ([{"name": "x", "datatype": "FP32", "shape": "many"}], r"inputs\[0\].shape is not a list"),
        ([{"name": "x", "datatype": "FP32", "shape": [10**9]}], "has more than"),
        (
            [{"name": name, "datatype": "BYTES", "shape": [1_500_000]} for name in "ab"],
            r"inputs\[1\].shape has more than 2000000 elements, with those of the inputs before it",
        ),
        ([{"name": "x", "datatype": "FP32", "shape": [999] * 200_000}], "has more than"),
    ],
)
def test_requests_are_refused_when_metadata_is_insufficient(inputs: object, message: str) -> None:
    with pytest.raises(Permanent, match=message):
        requests.random_requests({"inputs": inputs}, "m", batch=1, seed=0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
INPUTS = st.lists(
    st.fixed_dictionaries(
        {"name": st.just("x") | JSON, "datatype": st.sampled_from(["FP32", "BOOL"]) | JSON},
        optional={"shape": st.lists(st.integers(-2, 4) | JSON, max_size=3) | JSON},
    )
    | JSON,
    max_size=3,
)


@given(st.fixed_dictionaries({"inputs": INPUTS | JSON}) | JSON.filter(lambda value: isinstance(value, dict)))
def test_arbitrary_metadata_gives_requests_or_is_refused(metadata: dict[str, object]) -> None:
    try:
        generated = requests.random_requests(metadata, "m", batch=2, seed=0)
    except Permanent:
        return
    assert all(isinstance(json.loads(request.body)["inputs"], list) for request in generated)


def test_large_inputs_give_few_requests() -> None:
    description = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 400_000]}]}
    assert len(requests.random_requests(description, "m", batch=1, seed=0)) == 1


def test_locustfile_is_unchanged_and_requires_a_closed_loop() -> None:
    reference = KeyOf(name="load", key="locustfile.py")
    assert (
        requests.plan(ExperimentLoad(locustfile=reference), None, "m", locustfile="x = 1").locustfile
        == "x = 1"
    )
    with pytest.raises(Permanent, match=r"load.mode: must be closed with a locustfile"):
        requests.plan(ExperimentLoad(locustfile=reference, mode="open"), None, "m", locustfile="x = 1")
