"""One load process of the demo: Open Inference Protocol v2 by an unmodified `tritonclient`, in binary.

A process of its own, as tritonclient uses gevent, which cannot share a thread with asyncio. Prints one JSON
line per request, the fields of `report.RequestResult`: [start, ModelVersion that answered, milliseconds,
correct], with the start in seconds of the machine's monotonic clock; after a failure [start, null,
milliseconds, reason].
"""

import argparse
import sys
from collections.abc import Iterator
from http.client import HTTPException
from itertools import islice
from typing import Any

import numpy as np
import orjson
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from serving import clock
from serving.training.digits import held_out

FLUSH_ROWS = 20
"""Rows between two flushes: flushing each would be a system call per request."""


def requests(url: str, model: str, seed: int) -> Iterator[tuple[Any, ...]]:
    """Send held-out images in an order given by `seed`, and yield each result as it is printed.

    `url` is HOST:PORT/NAMESPACE/NAME. The result is a plain tuple, as orjson refuses a NamedTuple.
    """
    images, labels = held_out()
    client = InferenceServerClient(url)
    described = client.get_model_metadata(model)
    input_name, output_name = described["inputs"][0]["name"], described["outputs"][0]["name"]
    order = np.random.default_rng(seed)
    while True:
        at = int(order.integers(len(labels)))
        tensor = InferInput(input_name, [1, images.shape[1]], "FP64")
        tensor.set_data_from_numpy(images[at : at + 1], binary_data=True)
        output = InferRequestedOutput(output_name, binary_data=True)
        started = clock.monotonic()
        try:
            result = client.infer(model, [tensor], outputs=[output])
        # tritonclient lets the HTTP client's exceptions through, such as that of a closed connection.
        except (InferenceServerException, HTTPException, OSError) as error:
            yield started, None, 1000 * (clock.monotonic() - started), f"{type(error).__name__}: {error}"
            continue
        spent = 1000 * (clock.monotonic() - started)
        correct = int(result.as_numpy(output_name).reshape(-1)[0]) == int(labels[at])
        yield started, result.get_response()["model_version"], spent, correct


def main() -> None:
    """Send the number of requests in each line of standard input; exit at its end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="HOST:PORT/NAMESPACE/NAME")
    parser.add_argument("--model", required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    out = sys.stdout.buffer
    answers = requests(options.url, options.model, options.seed)
    for line in sys.stdin:
        for number, row in enumerate(islice(answers, int(line)), 1):
            out.write(orjson.dumps(row) + b"\n")
            if number % FLUSH_ROWS == 0:
                out.flush()
        out.flush()


if __name__ == "__main__":
    main()
