"""Sends requests to app.py from several connections: ``python client.py --bad 0.5``."""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

FEATURES, CLASSES, MAX_ROWS = 64, 10, 8


def request(*shapes: list[int]) -> bytes:
    """Return the body of a request with random inputs."""
    tensors = [
        {"shape": shape, "data": [random.random() for _ in itertools.product(*map(range, shape))]}
        for shape in shapes
    ]
    return json.dumps({"tensors": tensors}).encode()


#: Wrong requests, with the status that answers them.
BAD = (
    (request([MAX_ROWS + 1, FEATURES]), 400),
    (request([2, FEATURES + 1]), 400),
    (request([FEATURES]), 400),
    (request([1, FEATURES], [1, FEATURES]), 400),
    (b'{"tensors": [{"shape": [2, 64], "data": [1, 2, 3]}]}', 400),
    (b'{"tensors": [{"shape": [1000000000, 64], "data": []}]}', 400),
    (b"this is no JSON", 400),
    (b" " * (5 << 20), 413),
)


@dataclass
class Found:
    """What the requests of one run came to."""

    seconds: list[float] = field(default_factory=list)  # Of right requests, each.
    statuses: Counter[int] = field(default_factory=Counter)
    unexpected: list[str] = field(default_factory=list)


def ask(connection: http.client.HTTPConnection, body: bytes) -> tuple[int, bytes]:
    """Send one request; return the status and the body of the answer."""
    connection.request("POST", "/predict", body)
    answer = connection.getresponse()
    return answer.status, answer.read()


def load(host: str, port: int, clients: int, seconds: float, bad: float = 0.0) -> Found:
    """Send requests from each client, one after the other, and check each status.

    Args:
        host: Of the server.
        port: Of the server.
        clients: Connections at the same time.
        seconds: How long.
        bad: The share of requests that are wrong.
    """
    found, end = Found(), time.monotonic() + seconds

    def work() -> None:
        good = [request([rows, FEATURES]) for rows in range(1, MAX_ROWS + 1)]
        connection = http.client.HTTPConnection(host, port, timeout=60)
        while time.monotonic() < end and len(found.unexpected) < 100:
            right = random.random() >= bad
            body, expected = (random.choice(good), 200) if right else random.choice(BAD)
            begin = time.perf_counter()
            try:
                status, answer = ask(connection, body)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if expected != 413:  # The server may close before it has read all of them.
                    found.unexpected.append(repr(error))
                continue
            found.statuses[status] += 1
            if status != expected:
                found.unexpected.append(f"{status}, not {expected}: {answer[:200]!r}")
            elif right:
                found.seconds.append(time.perf_counter() - begin)

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def percentile(seconds: list[float], percent: int) -> float:
    """Return the smallest time that this percentage of the requests does not exceed."""
    return sorted(seconds)[max(0, -(-len(seconds) * percent // 100) - 1)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--bad", type=float, default=0.0)
    arguments = parser.parse_args()
    result = load(**vars(arguments))
    times = ", ".join(f"p{n} {percentile(result.seconds, n) * 1e3:.1f} ms" for n in (50, 99))
    print(f"{len(result.seconds) / arguments.seconds:.0f} requests/s, {times}")
    print(f"statuses: {dict(result.statuses)}; unexpected: {result.unexpected[:3] or 'none'}")
    raise SystemExit(bool(result.unexpected))
