"""The reference builder: the partition as a nested ExecuTorch program for CPU kernels."""
