"""The next token of each row."""

import pytest

from serving.runtimes.transformers.generation import Sampling
from tests.rig import optional_modules

torch = optional_modules.torch()
sampler = optional_modules.lazy("serving.runtimes.transformers.sampler")
NAN, INFINITE = float("nan"), float("inf")


def choose(rows: list[list[float]], *samplings: Sampling) -> list[int | None]:
    samplers = [sampler.Sampler(sampling, torch.device("cpu")) for sampling in samplings]
    return [choice and choice.token for choice in sampler.choose(torch.tensor(rows), samplers)]


@pytest.mark.parametrize(
    "sampling",
    [Sampling(temperature=0), Sampling(), Sampling(top_p=0.5), Sampling(alternatives=2)],
    ids=["greedy", "sampled", "top_p", "reported"],
)
@pytest.mark.parametrize("row", [[1.0, NAN, 2.0], [1.0, INFINITE, 2.0], [NAN] * 3, [-INFINITE] * 3], ids=str)
def test_row_has_no_token_when_its_largest_logit_is_not_finite(row: list[float], sampling: Sampling) -> None:
    certain = [0.0, -INFINITE, -INFINITE]
    assert choose([certain, row, certain], sampling, sampling, sampling) == [0, None, 0]


@pytest.mark.parametrize("temperature", [5e-324, 1e-40, 1e-37, 9e-6])
def test_most_probable_token_is_taken_when_the_temperature_is_nearly_0(temperature: float) -> None:
    assert choose([[-900.0, 3.0, 3.001, -INFINITE]], Sampling(temperature=temperature)) == [2]


def test_small_temperature_is_no_0() -> None:
    sampling = Sampling(temperature=sampler.LEAST_TEMPERATURE)
    drawn = {choose([[1.0, 3.0, 3.0]], sampling)[0] for _ in range(100)}
    assert drawn == {1, 2}


def test_equal_seeds_draw_equal_tokens() -> None:
    row = [0.0] * 1000
    tokens = choose([row] * 3, Sampling(seed=4), Sampling(seed=4), Sampling(seed=5))
    assert tokens[0] == tokens[1] != tokens[2]
