"""Serves a program with Ray Serve: ``MODEL=model.pte serve run ray_app:app``."""

from __future__ import annotations

import os
from pathlib import Path

from ray import serve
from served_model import Model, RefusedRequest
from starlette.requests import Request
from starlette.responses import Response

GPUS = float(os.environ.get("GPUS", 1))  # Of a replica; 0: simulated ones.


@serve.deployment(ray_actor_options={"num_gpus": GPUS}, max_ongoing_requests=16)
class Classifier:
    """A replica: a process that has loaded the program."""

    def __init__(self, path: str) -> None:
        self.model = Model(Path(path))

    def check_health(self) -> None:
        """Run the program; Ray replaces the replica when this raises."""
        self.model.method.execute(self.model.ones)

    async def __call__(self, request: Request) -> Response:
        """Answer ``{"tensors": [{"shape": [...], "data": [...]}]}`` in the same form."""
        try:
            answer = self.model.answer(await request.body())
        except RefusedRequest as error:
            return Response(str(error), 400)
        return Response(answer.model_dump_json(), media_type="application/json")


app = Classifier.bind(os.environ["MODEL"])
