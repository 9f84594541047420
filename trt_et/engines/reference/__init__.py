"""Builds engines for simulated GPUs: ExecuTorch programs that CPU kernels run."""
