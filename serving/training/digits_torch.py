"""The digits training program in PyTorch: a network with the inputs and outputs of the scikit-learn models.

    python -m serving.training.digits_torch [--hidden N] [--epochs N] [--seed N]

Writes `weights.pt`, `model.pt2` and then `slipway.json` into `$SLIPWAY_OUTPUT_DIR`. The weights take about
4 N² bytes (N of `--hidden`), so that models of any size can be made: N = 5000 gives 100 MB.
"""

import argparse
import logging
import sys
from pathlib import Path

import torch
from sklearn.metrics import accuracy_score, log_loss
from torch import nn

from serving.runtimes.torch import files
from serving.training.digits import INPUTS, split
from serving.training.output import output_directory, write_manifest

_log = logging.getLogger("train_digits_torch")

_BRIGHTEST = 16.0
"""Largest value of a pixel in the data set."""
_LEARNING_RATE = 0.003
_BATCH_IMAGES = 128
_MAX_BATCH = 1 << 20
"""Most rows of a request; the limit of a request's body is far below."""


class Classifier(nn.Module):  # type: ignore[misc] # PyTorch has no types here
    """Two hidden layers of one width, with the inputs and outputs of the scikit-learn classifiers."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)
        )

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits [n, 10] of images [n, 64] in double precision, 0 to 16."""
        return self.layers(images.to(torch.float32) / _BRIGHTEST)

    def forward(self, input: torch.Tensor) -> dict[str, torch.Tensor]:  # noqa: A002 the input's name
        """Return the predicted digits and the probability of each digit."""
        probabilities = self.logits(input).to(torch.float64).softmax(dim=1)
        return {"predict": probabilities.argmax(dim=1), "probabilities": probabilities}


def train(hidden: int, epochs: int, seed: int) -> tuple[Classifier, dict[str, float]]:
    """Fit a network with hidden layers of this width; return it with its metrics on the held-out images."""
    torch.manual_seed(seed)
    train_x, test_x, train_y, test_y = split()
    model = Classifier(hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=_LEARNING_RATE)
    images, labels = torch.from_numpy(train_x), torch.from_numpy(train_y)
    for _ in range(epochs):
        for batch in torch.randperm(len(labels)).split(_BATCH_IMAGES):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model.logits(images[batch]), labels[batch]).backward()
            optimizer.step()
    model.eval()
    with torch.inference_mode():
        outputs = model(torch.from_numpy(test_x))
    metrics = {
        "accuracy": round(float(accuracy_score(test_y, outputs["predict"].numpy())), 6),
        "logLoss": round(float(log_loss(test_y, outputs["probabilities"].numpy())), 6),
        "trainingImages": float(len(train_y)),
        "heldOutImages": float(len(test_y)),
    }
    return model, metrics


def write(model: Classifier, metrics: dict[str, float], output: Path) -> None:
    """Write the model, then its manifest, each file atomically."""
    output.mkdir(parents=True, exist_ok=True)
    batch = torch.export.Dim("batch", min=1, max=_MAX_BATCH)
    # Two images, as the export takes a size of 1 for constant.
    example = torch.zeros(2, 64, dtype=torch.float64)
    program = torch.export.export(model, (example,), dynamic_shapes={"input": {0: batch}})
    files.save(program, output)
    write_manifest("pytorch", metrics, output, source=Path(__file__), inputs=INPUTS)


def main(arguments: list[str] | None = None) -> None:
    """Train a network with the options of the command line and write it to `$SLIPWAY_OUTPUT_DIR`.

    Raises:
        errors.UserError: `$SLIPWAY_OUTPUT_DIR` is not set.
    """
    parser = argparse.ArgumentParser(description="Train a digits classifier with PyTorch.")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    output = output_directory()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    _log.info("training a network of width %d with seed %d", options.hidden, options.seed)
    model, metrics = train(options.hidden, options.epochs, options.seed)
    write(model, metrics, output)
    _log.info("accuracy %.4f on %d held-out images", metrics["accuracy"], metrics["heldOutImages"])


if __name__ == "__main__":
    main()
