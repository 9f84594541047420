"""``python -m trt_et.cli``."""

from trt_et.cli.app import main

main()
