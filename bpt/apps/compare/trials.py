"""The trials of ``bpt compare``: strategies of the papers by name, and settings of the user's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bpt.base.errors import UsageError, did_you_mean

_PLAIN_NAME = re.compile(r"[\w+-][\w.+-]*")


@dataclass(frozen=True)
class TrainingTrial:
    """One of the runs that are compared.

    Attributes:
        name: the strategy's name, or the user's; its folder has this name.
        paper: what the strategy's paper calls it; docs/papers.md lists the papers. Empty: the settings are the user's.
        settings: text that overrides the solver's. ``{ranks}`` is the number of ranks.
    """

    name: str
    paper: str
    settings: str


def _outer(exchange: str, balance: str) -> str:
    return f"parallel_param {{ exchange: {exchange} balance: {balance} }}"


_SGWU, _AGWU = "synchronous global weight updating", "asynchronous global weight updating"
_UDPA, _IDPA = "uniform data partitioning", "incremental data partitioning and allocation"

STRATEGIES = {
    trial.name: trial
    for trial in (
        TrainingTrial("DATA", "synchronous data parallelism", "parallel_param { exchange: ALLREDUCE }"),
        TrainingTrial("RING", "Hybrid: ring all-reduce", "parallel_param { exchange: RING }"),
        TrainingTrial("TREE", "Caffe: a tree of GPUs, P2PSync", "parallel_param { exchange: TREE }"),
        TrainingTrial("CGDP", "CGDP: gradients accumulated on the host", "parallel_param { exchange: CGDP }"),
        TrainingTrial("LOCAL", "Local SGD", "parallel_param { exchange: LOCAL }"),
        TrainingTrial("SGWU+UDPA", f"BPT-CNN: {_SGWU}, {_UDPA}", _outer("SGWU", "UNIFORM")),
        TrainingTrial("SGWU+IDPA", f"BPT-CNN: {_SGWU}, {_IDPA}", _outer("SGWU", "IDPA")),
        TrainingTrial("AGWU+UDPA", f"BPT-CNN: {_AGWU}, {_UDPA}", _outer("AGWU", "UNIFORM")),
        TrainingTrial("AGWU+IDPA", f"BPT-CNN: {_AGWU}, {_IDPA}", _outer("AGWU", "IDPA")),
        TrainingTrial("ASGD+UDPA", f"asynchronous SGD, {_UDPA}", _outer("ASGD", "UNIFORM")),
        TrainingTrial("ASGD+IDPA", f"asynchronous SGD, {_IDPA}", _outer("ASGD", "IDPA")),
        TrainingTrial(
            "MASTER_SLAVE",
            "MPI-FC: model-parallel fully connected layers, master-slave",
            "parallel_param { num_shards: {ranks} fc_param { scheme: MASTER_SLAVE } }",
        ),
        TrainingTrial(
            "PEER",
            "MPI-FC: model-parallel fully connected layers, peer",
            "parallel_param { num_shards: {ranks} fc_param { scheme: PEER } }",
        ),
        TrainingTrial(
            "PIPELINE",
            "Hybrid: a pipeline placed by GABRA, delayed updates",
            "parallel_param { num_stages: {ranks} pipeline_param { allocator: GABRA schedule: DELAYED } }",
        ),
    )
}
"""The strategies by name. SGWU, AGWU and ASGD have the names of ``bpt simulate --strategies``."""


def trials_of(strategies: str, own: Sequence[str] = ()) -> list[TrainingTrial]:
    """Return the trials that ``--strategies`` and each ``--try NAME=TEXT`` name, in this order.

    Raises:
        UsageError: there are none, a strategy is unknown, or a name is not plain or occurs twice.
    """
    trials: list[TrainingTrial] = []
    for name in filter(None, (word.strip() for word in strategies.split(","))):
        if name not in STRATEGIES:
            hint = did_you_mean(name, STRATEGIES)
            raise UsageError(f'--strategies: unknown strategy "{name}"{hint} (known: {", ".join(STRATEGIES)})')
        trials.append(STRATEGIES[name])
    for piece in own:
        name, equals, settings = piece.partition("=")
        if not equals or not _PLAIN_NAME.fullmatch(name):
            raise UsageError(
                f'--try takes NAME=TEXT, as in big="base_lr: 0.1", and a name of letters, digits, + - _ and .; '
                f'found "{piece}"'
            )
        trials.append(TrainingTrial(name, "", settings))
    if not trials:
        raise UsageError(
            "bpt compare needs --strategies or --try: what to compare, as in --strategies 'DATA,CGDP,AGWU+IDPA'"
        )
    names = [trial.name for trial in trials]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f'--strategies and --try: "{name}" occurs more than once; each run needs its own name')
    return trials
