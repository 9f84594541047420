"""Mends faults of torch and ExecuTorch, for any backend. Imports ``graph`` and ``errors`` alone."""
