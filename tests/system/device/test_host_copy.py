"""Values of a device are read after the event behind their copy, and not before."""

from __future__ import annotations

import threading

import torch

from bpt.engine.late_loss import LateLoss, known
from bpt.system.device import CPU
from bpt.system.device.host_copy import HostCopy
from tests.support.doubles.late_device import late_device

MINUTE = 60.0


def test_a_cpu_has_it_at_once() -> None:
    source = torch.tensor([1.0, 2.0])
    copy = HostCopy(source, CPU)
    source.zero_()
    assert copy.done()
    assert copy.read().tolist() == [1, 2]


def test_the_host_reads_behind_the_event() -> None:
    with late_device() as cuda:
        kernel_may_end = threading.Event()
        cuda.launch(lambda: kernel_may_end.wait(MINUTE))
        copy = HostCopy(torch.tensor(3.0), CPU)
        assert not copy.done()
        assert cuda.calls == ["record e0 on default"]
        kernel_may_end.set()
        assert copy.read() == 3
        assert cuda.calls[1:] == ["host waits for e0"]


def test_a_late_loss_waits_once_for_its_mean_over_passes() -> None:
    with late_device() as cuda:
        kernel_may_end = threading.Event()
        cuda.launch(lambda: kernel_may_end.wait(MINUTE))
        loss = LateLoss(torch.tensor(3.0, dtype=torch.float64), 2)
        assert known(loss) is None
        kernel_may_end.set()
        assert (float(loss), float(loss), known(loss)) == (1.5, 1.5, 1.5)
        assert cuda.calls == ["record e0 on default", "host waits for e0"]
    assert known(2.5) == 2.5
