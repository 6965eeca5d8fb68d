"""Pipelines: which stage runs which segments, and when each micro-batch passes them (Hybrid paper).

Eq. 1 and 2 of the paper are the delayed gradients (``DELAYED``), Eq. 3 to 9 the devices' capacities and the placement.
GPipe (Huang et al. 2019, section 2.3), 1F1B (Narayanan et al. 2019, *PipeDream*) and zero bubble (Qi et al. 2024) are
further schedules.

Read the files in this order:

1. ``pipeline_rules.py``, ``replica_rules.py`` and ``model.py``: what combines, and the model of a pipeline.
2. ``pipeline_schedules.py``: GPipe, 1F1B and zero bubble; ``stage_instructions.py`` and ``stage_schedulers.py``: the
   schedules as instructions of each stage. The engine executes them: ``bpt/engine/weight_gradients.py`` (backward
   passes in two parts), ``bpt/engine/recomputed_pass.py``, ``bpt/engine/weight_stashing.py``, and
   ``bpt/engine/optim/rules/look_ahead.py`` (the correction of delayed gradients).
3. ``simulation`` and ``pipeline_clock.py``: the schedules on a virtual clock.
4. ``devices.py``, ``capacities.py``, ``placement`` and ``stage_placement.py``: which stage runs which layers.
5. ``stage.py`` and ``stage_links.py``: the messages between stages.
"""

from bpt.parallel.pipeline.model import Flow, Pipeline, StageBlock
from bpt.parallel.pipeline.stage_instructions import applied, delayed, instructions, streams

__all__ = [
    "Flow",
    "Pipeline",
    "StageBlock",
    "applied",
    "delayed",
    "instructions",
    "streams",
]
