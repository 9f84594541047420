"""examples/serving serves: a real server, right and wrong requests, hot reload; Triton's model."""

from __future__ import annotations

import dataclasses
import http.client
import importlib.util
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import yaml

from tests.support.served_example import FOLDER, served
from tests.support.simulated_gpus import load_runtime


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"serving_{path.stem}", path)
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found  # Its dataclasses look there.
    spec.loader.exec_module(found)
    return found


client, exporter = module(FOLDER / "client.py"), module(FOLDER / "export.py")


@dataclasses.dataclass
class Running:
    port: int
    model: Path

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def ask(self, body: bytes) -> tuple[int, bytes]:
        return client.ask(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60), body)

    def metric(self, name: str) -> float:
        lines = self.get("/metrics")[1].splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("programs")
    for seed in (0, 1):
        exporter.export(folder / f"{seed}.pte", seed)
    return [folder / "0.pte", folder / "1.pte"]


@pytest.fixture(scope="module")
def server(programs, tmp_path_factory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("served")
    model = folder / "model.pte"
    model.write_bytes(programs[0].read_bytes())
    with served(model, folder / "log", RELOAD_SECONDS="0.1") as (_, port):
        running = Running(port, model)
        assert running.get("/health") == (200, "ok")  # Waits in the queue of the socket.
        yield running


def expected(seed: int, body: bytes) -> torch.Tensor:
    (given,) = json.loads(body)["tensors"]
    with torch.no_grad():
        return exporter.make_model(seed)(torch.tensor(given["data"]).reshape(given["shape"]))


def put(source: Path, target: Path) -> None:
    new = target.with_suffix(".new")
    new.write_bytes(source.read_bytes())
    new.replace(target)


def test_right_requests_are_answered_and_wrong_ones_refused(server):
    before = server.metric("process_resident_memory_bytes")
    found = client.load("127.0.0.1", server.port, clients=4, seconds=2, bad=0.5)
    assert not found.unexpected, found.unexpected[:3]
    assert min(found.statuses[200], found.statuses[400]) > 50
    assert server.metric('requests_total{status="200"}') == found.statuses[200]
    assert server.metric("trt_et_engines ") == 1
    assert server.metric("trt_et_launches") == found.statuses[200] + 3  # The warm-up.
    assert server.metric("process_resident_memory_bytes") - before < 64 << 20
    assert server.get("/predict")[0] == 405


@pytest.mark.parametrize(
    "body",
    [
        b'{"tensors": [{"shape": [0, 64], "data": []}]}',
        b'{"tensors": [{"shape": [-1, -64], "data": [' + b",".join([b"1"] * 64) + b"]}]}",
        b'{"tensors": [{"shape": [1, 64], "data": [' + b",".join([b"1e999"] * 63) + b"]}]}",
        b'{"tensors": [{"shape": [1, 64], "data": "' + b"1" * 64 + b'"}]}',
        b'{"tensors": null}',
        b"[" * 100_000,
        b"\xff",
        b"",
    ],
)
def test_a_request_of_an_odd_form_is_refused(server, body):
    status, reason = server.ask(body)
    assert (status, bool(reason)) == (400, True)
    assert server.get("/health") == (200, "ok")


def test_numbers_that_are_not_finite_come_back_as_null(server):
    infinite = json.dumps({"tensors": [{"shape": [1, 64], "data": [float("inf")] * 64}]})
    status, answer = server.ask(infinite.encode())
    assert status == 200
    assert None in json.loads(answer)["tensors"][0]["data"]


def test_a_renamed_file_is_served_without_a_wrong_answer_in_between(server, programs):
    body, answers, end = client.request([3, client.FEATURES]), [], threading.Event()
    wanted = [expected(seed, body) for seed in (0, 1)]

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        while not end.is_set():
            answers.append(client.ask(connection, body))

    thread = threading.Thread(target=ask)
    thread.start()
    put(programs[1], server.model)
    wait_for(lambda: server.metric('reloads_total{result="loaded"}') == 1)
    time.sleep(0.1)
    end.set()
    thread.join(60)
    seen = []
    for status, answer in answers:
        assert status == 200, answer
        (tensor,) = json.loads(answer)["tensors"]
        values = torch.tensor(tensor["data"]).reshape(tensor["shape"])
        (which,) = [i for i in (0, 1) if torch.allclose(values, wanted[i], atol=1e-5)]
        seen.append(which)
    assert set(seen) == {0, 1}
    assert seen == sorted(seen)
    assert server.metric("trt_et_engines ") == 1  # The old one is freed.


def test_a_damaged_file_leaves_the_old_version_in_place(server, programs):
    body = client.request([3, client.FEATURES])
    before = server.ask(body)
    for number, content in enumerate((b"", programs[0].read_bytes()[:-100]), 1):
        (server.model.parent / "damaged").write_bytes(content)
        put(server.model.parent / "damaged", server.model)
        wait_for(lambda n=number: server.metric('reloads_total{result="failed"}') == n)
        assert server.ask(body) == before
        assert server.get("/health") == (200, "ok")


def wait_for(condition, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing has changed"
        time.sleep(0.05)


class StandIn(ModuleType):
    """What Triton gives to its Python backend, as far as the model uses it."""

    class Tensor:
        def __init__(self, name, values) -> None:
            self.name, self.values = name, values

        def as_numpy(self):
            return self.values

    class TritonError(Exception):
        pass

    @dataclasses.dataclass
    class InferenceResponse:
        output_tensors: list = dataclasses.field(default_factory=list)
        error: Exception | None = None

    @staticmethod
    def get_input_tensor_by_name(request, name):
        (tensor,) = (tensor for tensor in request if tensor.name == name)
        return tensor


def test_the_model_of_triton_answers_requests_in_one_run(programs, tmp_path, monkeypatch):
    load_runtime()
    utils = StandIn("triton_python_backend_utils")
    monkeypatch.setitem(sys.modules, utils.__name__, utils)
    model = module(FOLDER / "triton/classifier/1/model.py").TritonPythonModel()
    (tmp_path / "1").mkdir()
    (tmp_path / "1/model.pte").write_bytes(programs[0].read_bytes())
    arguments = {"model_repository": str(tmp_path), "model_version": "1"}
    model.initialize({**arguments, "model_instance_kind": "CPU"})
    rows = [torch.randn(count, 64) for count in (1, 4, 3)]
    answers = model.execute([[utils.Tensor("features", each.numpy())] for each in rows])
    for given, answer in zip(rows, answers, strict=True):
        (tensor,) = answer.output_tensors
        with torch.no_grad():
            wanted = exporter.make_model(0)(given)
        torch.testing.assert_close(torch.from_numpy(tensor.values), wanted)
    large = [utils.Tensor("features", np.zeros((9, 64), np.float32))]
    (refused,) = model.execute([large])
    assert "expected float32 at most [8, 64]" in str(refused.error)


def test_the_files_name_the_same_model():
    config = (FOLDER / "triton/classifier/config.pbtxt").read_text()
    model = module(FOLDER / "client.py")
    for name in ("FEATURES", "CLASSES", "MAX_ROWS"):
        assert getattr(model, name) == getattr(exporter, name)
    assert f"max_batch_size: {exporter.MAX_ROWS}\n" in config
    assert f"dims: [ {exporter.FEATURES} ]" in config
    assert f"dims: [ {exporter.CLASSES} ]" in config


def test_kubernetes_and_docker_agree():
    """They have not been run; what can be read in them fits."""
    documents = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
    docker = (FOLDER / "Dockerfile").read_text()
    (deployment,) = (each for each in documents if each["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert f"--uid {pod['securityContext']['runAsUser']} " in docker
    assert all(f"{each['name']}={each['value']}" in docker for each in container["env"])
    mounted = {each["name"] for each in container["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]}
    for copied in ("app.py", "served_model.py"):
        assert f"examples/serving/{copied}" in docker
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        path = container[probe]["httpGet"]["path"]
        assert f'@app.get("{path}")' in (FOLDER / "app.py").read_text()
