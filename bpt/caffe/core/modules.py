"""load_module: a network text as a module, by its path."""

from __future__ import annotations

import os
from collections.abc import Sequence

from torch import nn

from bpt.apps.arguments import Path, checked_names, checked_path, checked_phase, checked_whole
from bpt.apps.pictures.deploy_net import reads_own_data
from bpt.apps.pictures.deploy_text import for_use
from bpt.apps.torch_module.module import module_of
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.train.state import MissingWeights


def load_module(
    path: Path,
    weights: Path | Sequence[Path] | None = None,
    phase: int = pb.TEST,
    precision: str = "FLOAT32",
    *,
    level: int = 0,
    stages: str | Sequence[str] | None = (),
    strict: bool = False,
    deploy: bool = False,
) -> nn.Module:
    """Return the network text at ``path`` as a plain ``torch.nn.Module``.

    Args:
        path: the network's text file.
        weights: a file of weights to start from, or several, of which the last one that has a layer counts; else the
            text's fillers draw them.
        phase: ``bpt.TRAIN`` or ``bpt.TEST``.
        precision: in which numbers it computes, as a solver's ``precision`` says it: "BFLOAT16". Inputs, outputs and
            parameters are of float32 all the same.
        level, stages: the rest of the NetState.
        strict: a layer with parameters that is in none of the weights is an error. Otherwise it is a warning, in the
            log "bpt" or, if the program has not configured ``logging``, on stderr.
        deploy: of a train text, take what ``bpt deploy`` makes of it: an input in place of the data, and no labels.

    Returns:
        A module that takes tensors and returns tensors (see Module). It refuses inputs that its layers cannot work on
        by a UserError, which names an input and its shape. Gradients reach all layers, whether there is a
        loss in the text or not. Parameters with ``lr_mult: 0`` have ``requires_grad`` off.

    Raises:
        UserError: ``phase`` is none, or this CPU cannot compute in this precision.
        PrototxtError: the text is wrong; says where.
        FileError: the weights cannot be read, or do not fit the net, or lack a layer and ``strict`` is set.
        RunError: there is not enough memory.
    """
    network, states = checked_path(path, "the network"), checked_names(stages, "stages")
    plan = file_plan(network, checked_phase(phase), checked_whole(level, "level"), states)
    plan = for_use(plan) if deploy and reads_own_data(plan) else plan
    files = [] if weights is None else [weights] if isinstance(weights, str | os.PathLike) else weights
    treatment = MissingWeights.REFUSE if strict else MissingWeights.WARN
    return module_of(plan, [os.fspath(file) for file in files], precision, treatment)
