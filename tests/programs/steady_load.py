"""Clients that send requests to one Inference continuously and record each result.

    python steady_load.py HOST:PORT/NAMESPACE/NAME --clients 3 --rows 1

It is a separate process, so that the test does not slow its clients. Each request gives a JSON line on
standard output: [client, started, status, arm, version, label], with the monotonic clock; status 0 is a
connection error, with its text in place of `arm`. Every second request is binary, and connections are renewed
regularly. There are no retries. The program ends with standard input, after the requests in flight.
"""

import argparse
import http.client
import itertools
import json
import struct
import sys
import threading
import time

FEATURES = 64
OUTPUTS = [{"name": "predict"}]
PAUSE_SECONDS = 0.015
REQUESTS_PER_CONNECTION = 25

Body = tuple[bytes, dict[str, str]]
stopping = threading.Event()
writing = threading.Lock()


def body(rows: int, *, binary: bool) -> Body:
    tensor = {"name": "input", "shape": [rows, FEATURES], "datatype": "FP64"}
    values = [float(n % 17) for n in range(rows * FEATURES)]
    if not binary:
        text = json.dumps({"inputs": [{**tensor, "data": values}], "outputs": OUTPUTS}).encode()
        return text, {"content-type": "application/json"}
    raw = struct.pack(f"<{len(values)}d", *values)
    described = {**tensor, "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"inputs": [described], "outputs": OUTPUTS}).encode()
    headers = {
        "content-type": "application/octet-stream",
        "inference-header-content-length": str(len(head)),
    }
    return head + raw, headers


def send(connection: http.client.HTTPConnection, path: str, request: Body) -> list[object]:
    try:
        connection.request("POST", path, *request)
        response = connection.getresponse()
        content = response.read()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        return [0, f"{type(error).__name__}: {error}", "", 0]
    if response.status != 200:
        return [response.status, content.decode(errors="replace")[:200], "", 0]
    answer = json.loads(content)
    return [200, response.headers["x-slipway-arm"], answer["model_version"], answer["outputs"][0]["data"][0]]


def client(number: int, host: str, path: str, rows: int) -> None:
    bodies = itertools.cycle([body(rows, binary=False), body(rows, binary=True)])
    connection = http.client.HTTPConnection(host, timeout=30)
    for sent in itertools.count(1):
        started = time.monotonic()
        row = [number, started, *send(connection, path, next(bodies))]
        with writing:
            print(json.dumps(row), flush=True)
        if sent % REQUESTS_PER_CONNECTION == 0:
            connection.close()
        if stopping.wait(PAUSE_SECONDS):
            return


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1)
    options = parser.parse_args()
    host, _, path = options.url.partition("/")
    target = f"/{path}/v2/models/{path.rsplit('/', 1)[-1]}/infer"
    clients = [
        threading.Thread(target=client, args=(number, host, target, options.rows))
        for number in range(options.clients)
    ]
    for thread in clients:
        thread.start()
    sys.stdin.read()
    stopping.set()
    for thread in clients:
        thread.join()


if __name__ == "__main__":
    main()
