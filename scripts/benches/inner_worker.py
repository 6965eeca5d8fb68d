"""One side of ``scripts/bench inner``: reads numbers of iterations, trains, answers with seconds.

Asked for 0 iterations, it answers with what the threads did in the last pass.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from bpt.proto import bpt_pb2 as pb
from scripts.benches.inner_nets import Trainer


def main() -> None:
    name, kind, threads, batch, engine = sys.argv[1:]
    torch.set_num_threads(int(threads))
    trainer = Trainer(name, kind, int(threads), int(batch), engine)
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            start = time.perf_counter()
            trainer.step()
            seconds.append(time.perf_counter() - start)
        passes = [
            {"seconds": t.seconds, "critical_path": t.critical_path[0], "balance": t.balance, "waiting": t.waiting,
             "tasks": len(t.dag)} for t in trainer.timelines()
        ]  # fmt: skip
        layout = pb.SolverParameter.Engine.Name(trainer.operator.engine)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": seconds, "layout": layout, "peak_mib": peak, "passes": passes}), flush=True)


if __name__ == "__main__":
    main()
