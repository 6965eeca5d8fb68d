"""One side of ``scripts/bench loop``: reads numbers of iterations, trains, answers with seconds and memory."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from scripts.benches.sides import batch_of, bpt_side, plain_side, solver_source


def main() -> None:
    kind, name, batch, threads, engine = sys.argv[1:]
    torch.set_num_threads(int(threads))
    data, label = batch_of(name, int(batch))
    make = bpt_side if kind == "bpt" else plain_side
    step, layout = make(solver_source(name, int(batch), engine), data, label)
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": seconds, "peak_mib": peak, "layout": layout()}), flush=True)


if __name__ == "__main__":
    main()
