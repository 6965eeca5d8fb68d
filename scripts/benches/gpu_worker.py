"""A rank of a job of ``scripts/bench gpu``: that of ``cgdp``, and then the first rank traces a few more iterations."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function

from bpt.device import synchronize
from scripts.benches.cgdp_jobs import Work
from scripts.benches.cgdp_worker import After, Trainee, main
from scripts.benches.gpu import TRACED
from scripts.benches.gpu_trace import name_threads


def tracing(work: Work) -> After:
    """What to do after the turn of ``work``."""

    def trace(trainee: Trainee) -> None:
        if not work.trace:
            return
        if trainee.world.rank:
            trainee.step(TRACED)
            return
        device = trainee.solver.runtime.device
        synchronize(device)
        if device.type == "cuda":
            seen = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
        else:  # the copying threads are none of those that torch looks at by itself
            everybody = _ExperimentalConfig(profile_all_threads=True)
            seen = profile(activities=[ProfilerActivity.CPU], experimental_config=everybody)
        with seen:
            for number in range(TRACED):
                with record_function(f"iteration {number}"):
                    trainee.step(1)
            synchronize(device)
        seen.export_chrome_trace(work.trace)
        names = {thread.native_id: thread.name for thread in threading.enumerate() if thread.native_id}
        name_threads(Path(work.trace), names)

    return trace


if __name__ == "__main__":
    sys.exit(main(tracing))
