"""The starting point of a resumed run: its seed, and the position of each data layer."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping

from bpt.base.user_files import check_exists
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net import Net
from bpt.train import state as snapshot
from bpt.train.state import in_memory

LOG = logging.getLogger("bpt")


def start_of(plan: RunPlan, resume: str) -> tuple[str, int]:
    """Return the path of the state that a run resumes ("" for a new run), and its seed.

    Args:
        resume: a path, "" or "auto".

    Raises:
        FileError: the state is missing or damaged.
    """
    path = state_to_resume(plan, resume)
    return path, choose_seed(plan, path)


def check_files(plan: RunPlan, resume: str) -> None:
    """Raise a FileError if a file to start from is missing, or of another kind; this does not read it whole."""
    weights = snapshot.weight_files(plan.weights, plan.path)
    for path in (resume if resume != "auto" else "", *weights):
        if path:
            check_exists(path)
    if resume and resume != "auto":
        snapshot.check_kind_of_state(resume)
    elif not resume:
        for path in weights:
            snapshot.check_kind_of_weights(path)


def state_to_resume(plan: RunPlan, resume: str) -> str:
    """Return the path of the state to resume, or "" to start anew; "auto" is the newest good one."""
    if resume != "auto":
        return resume
    newest = newest_of(plan)
    if not newest:
        LOG.info("No snapshot under %s to resume from; starting anew", plan.snapshot_prefix)
    return newest


def newest_of(plan: RunPlan) -> str:
    """Return the path of the newest good solver state of the runs with this plan's ``snapshot_prefix``, or ""."""
    return snapshot.find_newest(*in_memory.prefixes(plan.snapshot_prefix)) or ""


def choose_seed(plan: RunPlan, resume: str) -> int:
    """Return the solver's ``random_seed``, else that of the resumed run, else one from the system."""
    if plan.random_seed >= 0:
        return plan.random_seed
    saved = snapshot.read_state(resume) if resume else pb.SolverState()
    if saved.HasField("random_seed"):
        LOG.info("random_seed is not set; going on with that of the snapshot, %d", saved.random_seed)
        return saved.random_seed
    seed = secrets.randbits(31)
    LOG.info("random_seed is not set; using %d", seed)
    return seed


def positions_of(nets: Mapping[str, Net]) -> dict[tuple[str, str], int]:
    """Return the position of every data layer of ``nets``, by net and layer."""
    return {(name, layer): source.position for name, net in nets.items() for layer, source in net.data_layers().items()}


def set_positions(nets: Mapping[str, Net], positions: Mapping[tuple[str, str], int]) -> None:
    """Set the data layers to ``positions``.

    Layers without a position start at their first sample: a state of Caffe has no positions, and Caffe restarts its
    data, too.
    """
    for name, net in nets.items():
        for layer, source in net.data_layers().items():
            source.position = positions.get((name, layer), 0)
