"""The programs of examples/cpp build against the installed wheels, and run."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support import native_environment
from tests.support.native_environment import ROOT, environment, run, run_simulated
from tests.support.native_programs import export
from tests.support.programs.language_models import (
    VOCABULARY,
    CountingModel,
    eager_answer,
    make_model,
)
from trt_et.llm import export_llm, export_speech


def build(folder: Path, cmake: str, *options: str) -> Path:
    """The folder of the programs, built against the installed package."""
    configure = [cmake, "-S", ROOT / "examples/cpp", "-B", folder]
    configure += [f"-DPython3_EXECUTABLE={sys.executable}"]
    for command in (configure, [cmake, "--build", folder, *options]):
        done = run(*command, env=environment())
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(tmp_path_factory.mktemp("examples") / "build", native_environment.CMAKE)


def test_the_oldest_cmake_builds(tmp_path):
    folder = build(tmp_path / "build", native_environment.OLDEST_CMAKE, "--target", "run_pte")
    assert (folder / "run_pte").is_file()


def test_the_guide_has_the_lines_of_the_example():
    guide = (ROOT / "docs/guides/deploying-in-cpp.md").read_text()
    example = (ROOT / "examples/cpp/CMakeLists.txt").read_text().replace("${program}", "my_app")
    (block,) = (b for b in guide.split("```") if b.startswith("cmake\nfind_package"))
    lines = [line for line in block.splitlines()[1:] if not line.startswith("find_package")]
    lines.remove("add_executable(my_app main.cpp)")
    assert len(lines) == 5
    assert all(f"{line}\n" in example for line in lines)


@pytest.mark.long
def test_run_pte_runs_a_program(built, tmp_path):
    model = torch.nn.Linear(4, 2)
    program = export(tmp_path, "linear", model, (torch.ones(1, 4),), host=True)
    first, outputs = run_simulated(built / "run_pte", program.path)
    assert first.startswith("trt-et ")
    expected = model(torch.ones(1, 4))[0]
    torch.testing.assert_close(torch.tensor([float(text) for text in outputs.split()]), expected)


@pytest.mark.long
def test_segment_writes_the_mask_of_an_image_file(built, tmp_path):
    class Segment(torch.nn.Module):
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return image.argmax(-1).to(torch.uint8)

    image = torch.randint(256, (1, 4, 6, 3), dtype=torch.uint8)
    program = export(tmp_path, "segment", Segment(), (image,), host=True)
    pixels = image.numpy().tobytes()
    image_file, mask = tmp_path / "image.ppm", tmp_path / "mask.pgm"
    command = (built / "segment", program.path, image_file, mask)
    for header in (b"P6\n6 4\n255\n", b"P6 # by a program\n# 1 2\n6 4 255 "):
        image_file.write_bytes(header + pixels)
        run_simulated(*command)
        assert mask.read_bytes() == b"P5\n6 4\n255\n" + Segment()(image).numpy().tobytes()
    for content in (b"P6\n6 4\n255\n" + pixels[:-1], b"P5\n6 4\n255\n" + pixels, b""):
        image_file.write_bytes(content)
        done = run(*command, env=environment(TRT_ET_CUDA="simulated:1"))
        assert (done.returncode, done.stdout) == (1, "")
        assert "no PPM (P6) of 8 bits, or a part of one" in done.stderr


@pytest.mark.long
def test_generate_says_what_eager_says_and_its_steps_copy_nothing_across_the_host(built, tmp_path):
    pytest.importorskip("transformers", minversion="5.23")  # As the extra "llm"; Python 3.11.
    # The prompt is read in pieces.
    model, prompt = make_model("llama"), [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    options = {"cache_length": 32, "max_prompt": 4, "builder": "reference", "io_on_gpu": True}
    program = export_llm(model, **options)
    (tmp_path / "model.pte").write_bytes(program.buffer)
    said, copied = run_simulated(built / "generate", tmp_path / "model.pte", 8, *prompt)
    assert [int(token) for token in said.split()] == eager_answer(model, prompt, 8)
    assert copied == "0 bytes copied by the steps"


@pytest.mark.long
def test_generate_prints_the_tokens_that_the_engine_draws(built, tmp_path):
    options = {"cache_length": 32, "max_prompt": 4, "builder": "reference", "io_on_gpu": True}
    program = export_llm(CountingModel(32), sampling=True, **options)
    (tmp_path / "model.pte").write_bytes(program.buffer)
    ids = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    command = (built / "generate", tmp_path / "model.pte", 8, *ids)
    said, copied = run_simulated(*command)
    assert [int(token) for token in said.split()] == [5] * 8
    assert copied == "0 bytes copied by the steps"
    said, _ = run_simulated(*command, "--temperature", 0.7, "--seed", 7)
    draws = np.random.RandomState(7).randint(2**32, size=10, dtype=np.uint32) / 2**32
    for token, draw in zip(said.split(), draws[2:], strict=True):  # A number for each piece, too.
        counts = torch.bincount(torch.tensor(ids), minlength=VOCABULARY)
        sums = (counts / 0.7).softmax(-1).cumsum(-1)
        assert int(token) == int((sums <= draw).sum())
        ids.append(int(token))


@pytest.mark.long
@pytest.mark.parametrize(
    ("on_gpu", "count", "temperature", "message"),
    [
        (True, 32, 0, "prompt and answer need 34 positions; the program's cache holds 32"),
        (False, 8, 0, "the program was not exported with export_llm(..., io_on_gpu=True)"),
        (True, 8, 0.7, "--temperature needs export_llm(..., sampling=True)"),
    ],
)
def test_generate_refuses_before_the_first_step(
    on_gpu, count, temperature, message, built, tmp_path
):
    options = {"builder": "reference", "io_on_gpu": on_gpu}
    program = export_llm(CountingModel(32), cache_length=32, **options)
    (tmp_path / "model.pte").write_bytes(program.buffer)
    command = (built / "generate", tmp_path / "model.pte", count, 3, 1, 4)
    command += ("--temperature", temperature)
    done = run(*command, env=environment(TRT_ET_CUDA="simulated:1"))
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("sampler", [False, True])
def test_transcribe_says_what_eager_says_as_the_asr_runner_calls_the_program(
    sampler, built, tmp_path
):
    """ExecuTorch's runner has a Module whose methods share no memory."""
    pytest.importorskip("transformers", minversion="5.23")
    from tests.support.programs import speech_models as speech

    model = speech.whisper()
    program = export_speech(model, builder="reference", share_state=False, sampler=sampler)
    (tmp_path / "model.pte").write_bytes(program.buffer)
    for seed in (1, 2):
        features = speech.sound(seed)
        features.numpy().tofile(tmp_path / "features")
        arguments = (tmp_path / "model.pte", tmp_path / "features", speech.START, speech.TOKENS)
        said, copied = run_simulated(built / "transcribe", *arguments)
        assert [int(token) for token in said.split()] == speech.greedy(model, features)[1:]
        output = 4 * speech.POSITIONS * model.config.d_model
        # With a sampler: the token and its position, and the next token.
        step = 8 + 8 + (8 if sampler else output + 4 * speech.VOCABULARY)
        assert copied == f"{step} bytes copied by a step"
