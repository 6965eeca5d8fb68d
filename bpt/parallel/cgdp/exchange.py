"""CGDP: the exchange. Its steps bear the numbers that they have in the paper (§3.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from bpt.engine import instructions as do
from bpt.parallel.cgdp.chunk_areas import HostCopies
from bpt.parallel.cgdp.host_sum import ChunkPiece, HostSum
from bpt.parallel.exchange.base import EXCHANGES, Exchange
from bpt.parallel.exchange.buckets import Bucket
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU, Stream, StreamEvent, computing_stream, finish, new_stream, synchronize

Within = Callable[[], AbstractContextManager[object]]  # notes calls as those of a chunk's exchange


@EXCHANGES.register("CGDP")
class Cgdp(Exchange):
    """CPU-GPU data parallel training: idle CPUs sum the gradients while backward runs (Le et al., 2018, §3.1 and §4).

    The gradients go to the host, are summed there, and come back.

    A segment is the paper's *chunk of layers*. When it has run backward, its gradients go through four queues, each a
    stream of its own beside the one that computes:

    1. the D2H stream copies them to this rank's area on the host, when the computing stream has made them (B-3-1);
    2. a host stream waits for that copy (B-2-0-1) and for those of all ranks, and sums this rank's slice of them;
    3. on many hosts one leader of each sums over the hosts;
    4. the H2D stream copies the sums back into the gradients (B-2-0-2).

    ``wait`` waits for what is still in the queues (B-5-1). All ranks update for themselves: there is no server. On a
    CPU one thread of each rank does the work of 1, 2 and, on one host, 4: more would only take cores from each other.

    What differs from the paper: B-2-0-1 holds up the host stream, not the thread that computes; sums come back as
    soon as they are there, not when the next layer begins; gradients are weighed by samples, so they are summed and
    not averaged.
    """

    chunked = True

    def _make_ready(self) -> None:
        parameters: dict[Communicator, list[nn.Parameter]] = {}
        for group in self.buckets:
            for bucket in group:
                parameters.setdefault(bucket.comm, []).extend(bucket.parameters)
        wires = {bucket.comm: bucket.wire for group in self.buckets for bucket in group}
        self._sums = {comm: self._host_sum(of_it, comm, wires[comm]) for comm, of_it in parameters.items()}
        self.timed = False
        self._turn = 1  # the number of the iteration, from 1; a flag with this value belongs to it
        self._computing = computing_stream(self.device)
        self._d2h, self._host, self._between, self._h2d = self._streams()
        self._ends: dict[str, StreamEvent] = {}  # stream → when what it has got in this iteration is done
        self._events = self.comm_thread.comm.events
        self._pieces = self._cut()

    def _host_sum(self, parameters: Sequence[nn.Parameter], comm: Communicator, wire: torch.dtype) -> HostSum:
        return HostSum(parameters, comm, self.device, wire, self.codec)

    def regroup(self, buckets: Sequence[Sequence[Bucket]], *, timed: bool = False) -> None:
        super().regroup(buckets, timed=timed)
        self.timed = timed
        self._pieces = self._cut()

    def _streams(self) -> tuple[Stream, Stream, Stream, Stream]:
        """Return the streams D2H, host, between hosts, and H2D; those that would only share a core are one."""
        if not self.comm_thread.comm.concurrent:  # the library wants all calls from one thread, so nothing overlaps
            return (self._computing,) * 4
        d2h = new_stream(self.device, "D2H")
        on_device = self.device.type != "cpu"
        host = new_stream(CPU, "host") if on_device else d2h
        alone = all(each.hosts == 1 for each in self._sums.values())
        h2d = new_stream(self.device, "H2D") if on_device or not alone else host  # must not hold up who sums
        return d2h, host, new_stream(CPU, "between hosts"), h2d

    def _cut(self) -> list[list[ChunkPiece]]:
        def piece(bucket: Bucket) -> ChunkPiece:
            return self._sums[bucket.comm].piece(bucket.parameters, bucket.label, tuple(bucket.elements))

        return [[piece(bucket) for bucket in group] for group in self.buckets]

    def updates(self, bucket: Bucket) -> bool:
        return True

    def packed(self) -> dict[str, dict[str, int]]:
        return {b.label: b.elements for group in self.buckets for b in group if len(b.elements) > 1}

    def start(self, segment: int) -> None:
        """Step B-3-1: send the chunk's gradients to the host, and have them accumulated there.

        The sums come into the same tensors, so gradients must not share memory with anything that is still read.
        """
        for piece in self._pieces[segment]:
            within = partial(self._events.part_of, do.ExchangeGradients(segment), piece.name)
            made = self._computing.record()
            if not made.done():  # on a CPU it is
                self._d2h.after(made)
            copying = partial(self._copying, within, "D2H", piece.nbytes)
            copies = piece.sum.area.write(self._d2h, piece.parameters, copying)
            summed = self._host.submit(partial(self._accumulate, within, piece, copies, self._turn))
            self._ends["host"] = summed
            if piece.sum.hosts > 1 and piece.sum.leads:
                # A thread that waits for an event sleeps; one that waits in the window takes time of the core.
                self._between.after(summed)
                total = self._between.submit(partial(self._reduce, within, piece, self._turn))
                self._ends["between hosts"] = total
                self._h2d.after(total)
            gradients = [_gradient(parameter) for parameter in piece.parameters]
            self._ends["H2D"] = self._h2d.submit(partial(self._bring_back, within, piece, self._turn, gradients))

    def _accumulate(self, within: Within, piece: ChunkPiece, copies: HostCopies, turn: int) -> None:
        """Run steps B-2-0-1 and B-3-1 on the host stream."""
        with within():
            piece.sum.accumulate(piece, copies, turn)

    def _reduce(self, within: Within, piece: ChunkPiece, turn: int) -> None:
        with within():
            piece.sum.reduce(piece, turn)

    def _bring_back(self, within: Within, piece: ChunkPiece, turn: int, gradients: Sequence[Tensor]) -> None:
        """Run step B-2-0-2 on the H2D stream, whose queue is the paper's Q."""
        with within():
            totals = piece.sum.totals(piece, turn)
            with self._copying(within, "H2D", piece.nbytes):
                for gradient, total in zip(gradients, totals, strict=True):
                    gradient.copy_(total, non_blocking=True)

    @contextmanager
    def _copying(self, within: Within, method: str, nbytes: int) -> Iterator[None]:
        """Note copies between device and host, and measure their time if asked to."""
        with within(), self._events.call(method, nbytes, 0):
            yield
            if self.timed:
                finish(self.device)

    def wait(self) -> None:
        """Step B-5-1: wait until the sums of all chunks are back."""
        back = self._ends.pop("H2D", None)
        for event in self._ends.values():  # raises what went wrong there, before anybody waits for its consequences
            event.wait()
        if back is not None:
            self._computing.after(back)
        self._ends.clear()
        self.comm_thread.wait()
        self._turn += 1

    def close(self, failed: bool = False) -> None:
        for stream in (self._d2h, self._host, self._between, self._h2d):
            stream.close()
        if not failed:  # else a thread may still wait for a rank that never comes, with an eye on the memory
            synchronize(self.device)
            for each in self._sums.values():
                each.close()
        self._sums.clear()


def _gradient(parameter: nn.Parameter) -> Tensor:
    """Return the tensor that receives the sum."""
    if parameter.grad is None:
        parameter.grad = torch.empty_like(parameter)
    return parameter.grad
