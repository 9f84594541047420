"""Prints what a run of the flow ``trt_network`` came to: counts, and verdicts but ``equal``.

python -m tests.support.network_evaluator.summary FILE...
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

if __name__ == "__main__":
    entries = [entry for name in sys.argv[1:] for entry in json.loads(Path(name).read_text())]
    networks = [(e["case"], network) for e in entries for network in e.get("networks", [])]
    counts = Counter(network["outcome"] for _, network in networks)
    sys.stdout.write(f"{len(networks)} networks: {dict(counts)}\n")
    for case, network in networks:
        if network["outcome"] != "equal":
            sys.stdout.write(f"{case}: {network['outcome']}: {network['why']}\n")
