"""load_module: load a network text as a ``torch.nn.Module``."""

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
        weights: one or several files of weights; if several have a layer, the last one counts. By default the text's
            fillers draw the parameters.
        phase: ``bpt.TRAIN`` or ``bpt.TEST``.
        precision: number type of the computation, as in a solver's ``precision``: "BFLOAT16". Inputs, outputs and
            parameters are always float32.
        level, stages: the rest of the NetState.
        strict: raise a FileError if none of the files has the weights of some layer. By default this is a warning, in
            the log "bpt" or, if the program has not configured ``logging``, on stderr.
        deploy: convert a train text as ``bpt deploy`` does: an input replaces the data, and there are no labels.

    Returns:
        A module that takes tensors and returns tensors (see Module). For inputs that its layers cannot work on it
        raises a UserError, which names an input and its shape. Gradients reach all layers, with or without a loss in
        the text. Parameters with ``lr_mult: 0`` have ``requires_grad`` off.

    Raises:
        UserError: ``phase`` is not a phase, or this CPU cannot compute in this precision.
        PrototxtError: the text is wrong; the message says where.
        FileError: the weights cannot be read, do not fit the net, or lack a layer while ``strict`` is set.
        RunError: there is not enough memory.
    """
    network, states = checked_path(path, "the network"), checked_names(stages, "stages")
    plan = file_plan(network, checked_phase(phase), checked_whole(level, "level"), states)
    plan = for_use(plan) if deploy and reads_own_data(plan) else plan
    files = [] if weights is None else [weights] if isinstance(weights, str | os.PathLike) else weights
    treatment = MissingWeights.REFUSE if strict else MissingWeights.WARN
    return module_of(plan, [os.fspath(file) for file in files], precision, treatment)
