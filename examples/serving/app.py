"""Serves a program over HTTP, with health, metrics, limits and hot reload (docs/guides/serving.md).

``MODEL=model.pte uvicorn app:app --app-dir examples/serving``
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, Counter, Histogram, generate_latest
from prometheus_client.core import UntypedMetricFamily
from served_model import Model, RefusedRequest, version_of

import trt_et.runtime
from trt_et.errors import TrtEtError

MAX_BYTES = int(os.environ.get("MAX_BYTES", 4 << 20))  # Of a request.
MAX_WAITING = int(os.environ.get("MAX_WAITING", 64))  # Requests that wait for their run.
RELOAD_SECONDS = float(os.environ.get("RELOAD_SECONDS", 2))  # Between looks at the file.

_A, _R = TypeVar("_A"), TypeVar("_R")
log = logging.getLogger("uvicorn.error")
requests_total = Counter("requests_total", "Requests by HTTP status.", ["status"])
answer_seconds = Histogram("answer_seconds", "Seconds until a request is answered.")
reloads_total = Counter("reloads_total", "New versions of the file.", ["result"])


class Server:
    """The current version of the program, and the only thread that uses ExecuTorch."""

    def __init__(self, path: Path) -> None:
        self.path, self.waiting, self.problem = path, 0, ""
        self.model: Model | None = None
        self.thread = ThreadPoolExecutor(1)

    async def call(self, function: Callable[[_A], _R], argument: _A) -> _R:
        """Call a function in that thread."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, function, argument)

    async def watch(self) -> None:
        """Replace the model when another file has its name; keep the old one if that fails."""
        seen = self.model.version if self.model else ""
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            try:
                version = await asyncio.to_thread(version_of, self.path)
                if version == seen:
                    continue
                seen = version
                self.model, self.problem = await self.call(Model, self.path), ""
            except Exception as error:
                reloads_total.labels("failed").inc()
                log.error("%s is not loaded, and the old version stays: %s", self.path, error)
            else:
                reloads_total.labels("loaded").inc()
                log.info("loaded version %s", seen)

    async def answer(self, body: bytes) -> Response:
        """Answer a request."""
        if self.model is None or self.waiting >= MAX_WAITING:
            return Response("busy", 503, {"Retry-After": "1"})
        self.waiting += 1
        try:
            with answer_seconds.time():
                answer = await self.call(self.model.answer, body)
        except RefusedRequest as error:
            return Response(str(error), 400)
        except TrtEtError as error:
            self.problem = str(error)
            log.error("the program does not run any more: %s", error)
            return Response("the program does not run", 500)
        finally:
            self.waiting -= 1
        return Response(answer.model_dump_json(), media_type="application/json")


class RuntimeCounters:
    """The counters of ``trt_et.runtime`` as metrics ``trt_et_...``."""

    def collect(self) -> Iterator[UntypedMetricFamily]:
        """Yield them."""
        for name, value in trt_et.runtime.counters().items():
            yield UntypedMetricFamily(f"trt_et_{name}", "See trt_et.runtime.counters.", value)


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Load the program before the first request is taken."""
    app.state.server = server = Server(Path(os.environ["MODEL"]))
    server.model = await server.call(Model, server.path)
    counters = RuntimeCounters()
    REGISTRY.register(counters)
    watcher = asyncio.create_task(server.watch())
    yield
    watcher.cancel()
    REGISTRY.unregister(counters)
    server.thread.shutdown()


app = FastAPI(lifespan=lifespan)


@app.post("/predict")
async def predict(request: Request) -> Response:
    """Answer ``{"tensors": [{"shape": [...], "data": [...]}, ...]}`` in the same form."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BYTES:
            answer = Response(f"more than {MAX_BYTES} bytes", 413, {"Connection": "close"})
            break
    else:
        answer = await request.app.state.server.answer(bytes(body))
    requests_total.labels(answer.status_code).inc()
    return answer


@app.get("/health")
async def health(request: Request) -> Response:
    """Say whether the program runs; if it does not, the process must be restarted."""
    problem = request.app.state.server.problem
    return Response(problem or "ok", 503 if problem else 200)


@app.get("/metrics")
async def metrics() -> Response:
    """Return the metrics as Prometheus reads them; in a thread, as counters wait for a run."""
    return Response(await asyncio.to_thread(generate_latest), media_type=CONTENT_TYPE_LATEST)
