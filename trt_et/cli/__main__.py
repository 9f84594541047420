"""``python -m trt_et.cli``."""

from trt_et.cli import main

main()
