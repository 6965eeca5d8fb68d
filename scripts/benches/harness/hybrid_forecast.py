"""The speed-up of the Hybrid paper's 3D-ResAttNet on its GPUs, which are not here, as ``bpt plan`` forecasts it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from bpt.config.plan.resolve import read_plan
from bpt.perf.planner.given_devices import choose_devices
from bpt.perf.planner.plan_layers import plan_solver
from scripts.benches.harness.launch import PROTOTXT

# A V100 reaches perhaps half of its 15.7 TFLOPS in training; NVLink has 25 GB/s a direction and link, two a pair.
V100 = 'node {{ name: "v100" count: {} gflops: 7000 memory: 16384 latency: 0.00001 bandwidth: 400000 }}'
VOLUME = (1, 112, 112, 112)


@cache
def hybrid_speedup(depth: int, gpus: int) -> float:
    """Return the speed-up of 3D-ResAttNet-18 or -34 on so many V100, as ``bpt plan`` forecasts it.

    One pipeline over all GPUs, placed by GABRA, with delayed gradients, as the network's solver_hybrid asks.
    """
    if gpus == 1:
        return 1.0
    solver = PROTOTXT / f"resattnet{depth}_3d" / "solver_hybrid.prototxt"
    with TemporaryDirectory() as folder:
        cluster = Path(folder) / "gpus.prototxt"
        cluster.write_text(V100.format(gpus))
        run, _, _ = choose_devices(read_plan(solver), str(cluster))
        plan = plan_solver(run, VOLUME)
    return plan.alone.seconds / plan.chosen.seconds
