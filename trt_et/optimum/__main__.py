"""``optimum-cli``, with the recipe ``tensorrt``."""

from __future__ import annotations

from optimum.commands.optimum_cli import main

if __name__ == "__main__":
    main()
