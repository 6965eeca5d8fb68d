"""MANUAL: layers name their stages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bpt.errors import LayerError, PrototxtError
from bpt.placement.allocate import allocate
from bpt.placement.placement import Placement
from bpt.placement.problem import Device
from tests.placement.problems import Param, chain

MANUAL = Param(allocator=Param.MANUAL)
TWO = (Device("a"), Device("b"))


def test_a_stage_holds_up_to_the_next_that_is_named() -> None:
    marks = [None, None, 1, None, 0, 1]
    assert allocate(chain([1] * 6, TWO), MANUAL, marks) == Placement((0, 2, 4, 5), (0, 1, 0, 1))


def test_layers_without_bottoms_cut_no_run() -> None:
    problem = replace(chain([0, 1, 1, 0, 1], TWO), sources=(0, 3), together=((0, 2), (2, 4)))
    assert allocate(problem, MANUAL, [None, 1, 0, 1, None]) == Placement((0, 2, 4), (1, 0, 1))


def test_no_such_stage() -> None:
    with pytest.raises(LayerError, match=r'layer "l1": .*no stage 2; the stages are 0 to 1'):
        allocate(chain([1] * 3, TWO), MANUAL, [None, 2, None])


def test_empty_stage() -> None:
    remedy = r"let one name it, parallel_param \{ stage: 1 \}, or set num_stages: 1$"
    with pytest.raises(PrototxtError, match=rf"no layer runs on stage 1 \(device b\); {remedy}"):
        allocate(chain([1] * 3, TWO), MANUAL, [0, None, None])


def test_a_hole_between_stages() -> None:
    """Fewer stages would not help: the layers' numbers have to move up. Nor is a device called twice one."""
    devices = [Device(f"device {stage}") for stage in range(4)]
    remedy = r"parallel_param \{ stage: 1 \}, or number the stages from 0 to 2$"
    with pytest.raises(PrototxtError, match=rf"no layer runs on stage 1 \(device 1\); let one name it, {remedy}"):
        allocate(chain([1] * 4, devices), MANUAL, [0, 2, None, 3])


def test_what_stays_together() -> None:
    problem = chain([1] * 4, TWO, together=((1, 3),))
    with pytest.raises(LayerError, match=r'layer "l2": .*same stage as layer "l1".*on stage 0, this one on 1'):
        allocate(problem, MANUAL, [None, None, 1, None])


def test_memory() -> None:
    problem = chain([1] * 4, (Device("a", memory=60), Device("b", memory=47)))
    assert allocate(problem, MANUAL, [None, None, None, 1]).starts == (0, 3)
    with pytest.raises(PrototxtError, match=r"device b \(stage 1\) lacks 1 bytes of memory: .*need 48"):
        allocate(problem, MANUAL, [None, None, 1, None])


def test_delayed_needs_order() -> None:
    problem = chain([1] * 3, TWO, rule=Param.DELAYED)
    assert allocate(problem, MANUAL, [0, 1, None]).stages == (0, 1)
    with pytest.raises(PrototxtError, match=r"DELAYED .*stages 0, 1, 0"):
        allocate(problem, MANUAL, [0, 1, 0])
