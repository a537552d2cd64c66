"""Exports, loads and runs a tiny program on import: imported before forks only, never in an ordinary start.

The first `torch.export.load` of a process imports a thousand modules and fills caches, which took 0.5 s of
each fork. Starts no thread and leaves no files.
"""

import io

import torch

from serving.runtimes import threads


class _Tiny(torch.nn.Module):  # type: ignore[misc] # PyTorch has no types here
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.layers(x.to(torch.float32)).softmax(dim=1)
        return {"a": scores, "b": scores.argmax(dim=1)}


def _run_tiny_model() -> None:
    example = torch.zeros(2, 2, dtype=torch.float64)
    sizes = {"x": {0: torch.export.Dim("batch", min=1, max=4)}}
    program, weights = io.BytesIO(), io.BytesIO()
    exported = torch.export.export(_Tiny().eval(), (example,), dynamic_shapes=sizes)
    torch.export.save(exported, program)
    torch.save(dict(exported.state_dict), weights)
    for file in (program, weights):
        file.seek(0)
    module = torch.export.load(program).module()
    module.load_state_dict(torch.load(weights, weights_only=True), assign=True)
    with torch.inference_mode():
        module(example)


_run_tiny_model()
threads.loaded()  # inspects the loaded numeric libraries, once for all forks
