"""What a run of the flow ``trt_network`` came to.

python -m tests.support.network_evaluator.summary FILE...
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any


def summarize(entries: list[dict[str, Any]]) -> str:
    """Counts of the verdicts, and every one that is not ``equal``."""
    networks = [
        (entry["case"], network) for entry in entries for network in entry.get("networks", [])
    ]
    counts = Counter(network["outcome"] for _, network in networks)
    lines = [f"{len(networks)} networks: " + ", ".join(f"{n} {o}" for o, n in counts.most_common())]
    lines += [
        f"{case}: {network['outcome']}: {network['why']}"
        for case, network in networks
        if network["outcome"] != "equal"
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    found = [e for name in sys.argv[1:] for e in json.loads(Path(name).read_text())]
    sys.stdout.write(summarize(found) + "\n")
