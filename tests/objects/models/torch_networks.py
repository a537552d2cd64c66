"""Networks of PyTorch. A test file imports this module at its first use, as it imports PyTorch."""

from typing import Any

import torch
import torch._dynamo  # torch.export imports it for seconds at its first use, which is in a test with a limit


class Mixed(torch.nn.Module):
    """Two inputs by position, one by keyword, and two outputs of no name."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(10, 3)

    def forward(self, ids: Any, weights: Any, *, scale: Any) -> Any:
        mean = (self.table(ids) * weights.unsqueeze(2)).sum(dim=1) * scale
        return mean, mean > 0


class Giving(torch.nn.Module):
    """Returns given outputs."""

    def __init__(self, give: Any) -> None:
        super().__init__()
        self.give = give

    def forward(self, x: Any) -> Any:
        return self.give(x)


class Tied(torch.nn.Module):
    """Tied weights, a buffer that is kept and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.there = torch.nn.Linear(4, 4)
        self.back = torch.nn.Linear(4, 4)
        self.back.weight = self.there.weight
        self.register_buffer("kept", torch.rand(4))
        self.register_buffer("constant", torch.rand(4), persistent=False)

    def forward(self, x: Any) -> Any:
        return self.back(self.there(x)) + self.kept * self.constant


class Normalised(torch.nn.Module):
    """A network with scalars in its state: the counter of its normalisation, and a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)
        self.scale = torch.nn.Parameter(torch.tensor(2.5))

    def forward(self, x: Any) -> Any:
        return self.norm(x) * self.scale


class Renamed(torch.nn.Module):
    """A network whose input is named x."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Any) -> Any:
        return self.net(x)


class Counting(torch.nn.Module):
    """Has an input that is not a tensor."""

    def forward(self, x: Any, times: Any) -> Any:
        return x * times
