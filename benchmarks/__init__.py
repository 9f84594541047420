"""What trt-et costs: ``make bench-aot``, ``make bench-runtime``; figures in ``results/``."""
