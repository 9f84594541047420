"""``python -m trt_et.cli``."""

from trt_et.cli.commands import main

main()
