"""Runs the tests of a module with arrays that lie over the tensors, and with arrays that are copies, as on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import Tensor

from bpt.caffe.core.mirror import Mirror


@pytest.fixture(params=["one memory", "copies"])
def mirrors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether arrays lie over the memory of tensors, as they do on a CPU, or are copies."""
    if request.param == "copies":
        make = Mirror.__init__

        def make_copies(self: Mirror, fetch: Callable[[], Tensor], copies: bool = False) -> None:
            make(self, fetch, copies=True)

        monkeypatch.setattr(Mirror, "__init__", make_copies)
