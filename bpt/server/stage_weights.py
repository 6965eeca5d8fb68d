"""StageWeights: the flat weights of a whole net, cut up for the stages of a pipeline and put together again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from bpt.comm.base import Buffer, Communicator
from bpt.events.event import Activity
from bpt.server.flat_weights import FlatWeights


class StageWeights:
    """Moves flat weights (or gradients) between the first stage, which has them whole, and all stages.

    The whole buffer is that of one process that holds the whole net, so a server need not know of stages. A collective
    call, and so are the methods.

    Args:
        flat: of this stage's net.
        stages: the ranks of the pipeline, in order; used by nobody else.

    Attributes:
        size: elements of the whole buffer.
    """

    def __init__(self, flat: FlatWeights, stages: Communicator) -> None:
        self._stages = stages
        self._dtype = flat.dtype
        everybody = stages.allgather(flat.places)
        places = sorted(place for each in everybody for place in each)
        ends = accumulate(size for _, _, size in places)
        spans = {(kept, index): slice(end - size, end) for (kept, index, size), end in zip(places, ends, strict=True)}
        self._spans = [[spans[kept, index] for kept, index, _ in each] for each in everybody]
        self._counts = [sum(size for _, _, size in each) for each in everybody]
        self.size = sum(self._counts)

    def scatter(self, whole: Buffer | None) -> Buffer:
        """This stage's part of the first stage's ``whole``, which other stages need not have."""
        send = None
        if self._stages.rank == 0:
            assert whole is not None and whole.shape == (self.size,) and whole.dtype == self._dtype
            send = np.concatenate([whole[span] for span in self._in_order] or [whole])
        part = np.empty(self._counts[self._stages.rank], self._dtype)
        with self._stages.events.part_of(Activity.STAGES):
            self._stages.Scatterv(send, part, self._counts)
        return part

    def gather(self, part: Buffer) -> Buffer:
        """The whole, on the first stage, of what each stage has; an empty buffer on the others."""
        elements = self.size if self._stages.rank == 0 else 0
        received, whole = np.empty(elements, self._dtype), np.empty(elements, self._dtype)
        with self._stages.events.part_of(Activity.STAGES):
            self._stages.Gatherv(part, received if elements else None, self._counts)
        start = 0
        for span in self._in_order if elements else ():
            end = start + span.stop - span.start
            whole[span] = received[start:end]
            start = end
        return whole

    @property
    def _in_order(self) -> Sequence[slice]:
        """Where each blob is in the whole: those of the first stage, then those of the next."""
        return [span for spans in self._spans for span in spans]
