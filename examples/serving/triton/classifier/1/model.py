"""A model of Triton Inference Server's Python backend; ``model.pte`` is beside this file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton_python_backend_utils as pb_utils

from trt_et.errors import TrtEtError

MAX_ROWS, FEATURES = 8, 64


class TritonPythonModel:
    """An instance, which is a process of its own."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the program onto the instance's GPU, and warm it up."""
        if args["model_instance_kind"] == "GPU":
            # Before the plugin is loaded, which reads it.
            os.environ["TRT_ET_DEVICE"] = args["model_instance_device_id"]
        import trt_et.runtime

        file = Path(args["model_repository"], args["model_version"], "model.pte")
        self.method = trt_et.runtime.load_program(file).load_method("forward")
        for _ in range(3):
            self.method.execute([torch.zeros(MAX_ROWS, FEATURES)])

    def execute(self, requests: list[Any]) -> list[Any]:
        """Run the program once for all requests, whose rows are ``max_batch_size`` at most."""
        given = [
            pb_utils.get_input_tensor_by_name(each, "features").as_numpy() for each in requests
        ]
        try:
            (scores,) = self.method.execute([torch.from_numpy(np.concatenate(given))])
        except TrtEtError as error:
            failed = pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
            return [failed] * len(requests)
        ends = np.cumsum([len(rows) for rows in given])[:-1]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("scores", rows)])
            for rows in np.split(scores.numpy(), ends)
        ]
