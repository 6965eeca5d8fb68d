"""Recovery: assembles the state of a run from the records of the remaining ranks.

Each rank holds its part of the state after its last complete update; changes of an interrupted iteration are undone. If
several ranks hold the whole net, that is enough: the rank with the highest completed iteration provides the state,
because an update needs the gradients of all ranks. Parts that only lost ranks held come from copies in the memory of
others. Then all ranks return to the iteration of these copies.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from bpt.engine.optim.weight_slices import Elements
from bpt.graph.layer_graph import LayerGraph, Param
from bpt.graph.layer_spec import count
from bpt.graph.part import WHOLE, BlobSlice, Part
from bpt.nn.net import Net
from bpt.parallel.exchange import Exchange
from bpt.system.comm.base import Buffer, Communicator
from bpt.system.events.event import Activity
from bpt.train.state.train_state import Blob, TrainState, blob_of

T = TypeVar("T")
LOG = logging.getLogger("bpt")
_REPORTED = 3  # number of the copy whose cost is logged; the first ones also allocate memory
_NUM_COPIES = 2  # copies of a rank, because another rank may be at most one copy ahead


@dataclass(frozen=True)
class PartRecord:
    """The state of one rank's part, as of one iteration.

    Attributes:
        state: the state without the exchange's memory; a rank may have only positions of data layers.
        part: the rank's part of the net.
        frozen: blobs whose weights and moments another rank keeps.
        elements: blobs of which the rank has only these elements of its part, as one row: those that it updates.
    """

    state: TrainState
    part: Part = WHOLE
    frozen: frozenset[Blob] = frozenset()
    elements: Mapping[Blob, Elements] = field(default_factory=dict)

    def outlined(self) -> PartRecord:
        """Return the record without tensors."""
        return replace(self, state=replace(self.state, weights={}, moments={}, extras={}))

    def in_memory(self) -> PartRecord:
        """Return the record with copies of its tensors in the host's memory."""

        def copied(value: Tensor) -> Tensor:
            return value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)

        return _mapped(self, copied)


class StateCopies:
    """The last states of this rank, and those of a rank on another host, in this rank's memory.

    Args:
        comm: all ranks of the run, at least two, in a separate communicator.
        interval: number of iterations between two copies.

    Attributes:
        records: the records of this rank and of the other one, oldest first.
    """

    def __init__(self, comm: Communicator, interval: int) -> None:
        self.interval = interval
        self.records: list[PartRecord] = []
        self._count = 0
        self._comm = comm
        self._to, self._source = neighbours(comm.allgather(comm.host), comm.rank)

    def take(self, own: PartRecord) -> None:
        """Copy this rank's state, and send it to the next rank on another host; a collective call.

        Args:
            own: this rank's record, whose tensors may change afterwards.
        """
        with self._comm.events.during(Activity.BETWEEN):
            start = time.perf_counter()
            copied = own.in_memory()
            self.records += [copied, self._exchanged(copied)]
            self._count += 1
            if self._count == _REPORTED:
                self._log_cost(sum(part.nbytes for part in _contents(copied)), time.perf_counter() - start)
            newest = sorted({record.state.iteration for record in self.records})[-_NUM_COPIES:]
            self.records = [record for record in self.records if record.state.iteration in newest]

    def _log_cost(self, nbytes: int, seconds: float) -> None:
        most, longest = (max(of) for of in zip(*self._comm.allgather((nbytes, seconds)), strict=True))
        when = "every iteration" if self.interval == 1 else f"every {self.interval} iterations"
        if self._comm.rank == 0:
            LOG.info("Copies: a rank sends up to %.3g MB to another %s, in %.3g ms", most / 1e6, when, longest * 1e3)

    def close(self, failed: bool = False) -> None:
        """Free the communicator; a collective call, unless something ``failed``."""
        if not failed:
            self._comm.Free()

    def _exchanged(self, own: PartRecord) -> PartRecord:
        """Send this rank's record to another rank, and return the record that this one receives."""
        comm = self._comm
        sent = np.frombuffer(pickle.dumps(_described(own), protocol=pickle.HIGHEST_PROTOCOL), np.uint8)
        length = np.zeros(1, np.int64)
        announced = comm.Isend(np.array([sent.size]), self._to)
        comm.Recv(length, self._source)
        announced.Wait()
        received = np.empty(int(length[0]), np.uint8)
        sending = [comm.Isend(part, self._to) for part in (sent, *_contents(own))]
        comm.Recv(received, self._source)
        record = _room_for(pickle.loads(received.tobytes()))
        for part in _contents(record):
            comm.Recv(part, self._source)
        for request in sending:
            request.Wait()
        return record


def neighbours(hosts: Sequence[str], rank: int) -> tuple[int, int]:
    """Return the rank that gets this rank's copies, and the rank whose copies this one gets.

    In the order of hosts, their distance is the number of ranks of a host.
    """
    order = sorted(range(len(hosts)), key=lambda each: (hosts[each], each))
    step = max(hosts.count(host) for host in hosts) % len(hosts) or 1
    place = order.index(rank)
    return order[(place + step) % len(order)], order[(place - step) % len(order)]


@dataclass
class RecoveryPoint:
    """The part of a run's state that this rank can provide at any time without communication.

    Changes of an interrupted iteration are undone. While parameters change, this rank can provide only copies.

    Attributes:
        net: the net that is trained.
        exchange: knows the parameters that another rank keeps.
        state: returns this rank's current state.
        progress: returns the state after a number of iterations, without parameters.
        on: whether states are recorded.
        copies: copies of this rank's states and another one's; ``None``: there are none.
    """

    net: Net
    exchange: Exchange
    state: Callable[[], TrainState]
    progress: Callable[[int], TrainState]
    on: bool
    copies: StateCopies | None
    _border: TrainState | None = None

    def come_to(self, iteration: int) -> None:
        """Record, after ``iteration`` iterations, the values that the next one changes before its end."""
        if self.on:
            blobs = ((blob_of(self.net.graph, param), self.net.value(param)) for param in self.net.local_params)
            # Passes, and not updates, change a BatchNorm's statistics.
            passed = {blob: value.detach().clone() for blob, value in blobs if not value.requires_grad}
            self._border = replace(self.progress(iteration), weights=passed)

    def leave(self) -> None:
        """Drop the state before parameters change; there is none until all have changed."""
        self._border = None

    def copy(self) -> None:
        """Make copies if they are due; a collective call between two iterations."""
        if self.copies and self._border and self._border.iteration % self.copies.interval == 0:
            self.copies.take(self._record(self._border))

    def records(self) -> list[PartRecord]:
        """Return the records of this rank's part, and of the parts of which it has copies."""
        own = [self._record(self._border)] if self._border else []
        return [*own, *(self.copies.records if self.copies else ())]

    def _record(self, border: TrainState) -> PartRecord:
        net, now = self.net, self.state()
        values = {id(net.value(param)): blob_of(net.graph, param) for param in net.local_params}
        frozen = frozenset(values[number] for number in self.exchange.frozen() & values.keys())
        # The weights that other ranks have updated may still be on their way.
        own = {blob: each for number, blob in values.items() if (each := self.exchange.slices.of_id(number))}
        weights = {**now.weights, **border.weights, **{blob: each.value.detach() for blob, each in own.items()}}
        state = replace(border, weights=weights, moments=now.moments, tuned=now.tuned)
        return PartRecord(state, net.part, frozen, {blob: each.elements for blob, each in own.items()})


def recovered(world: Communicator, graph: LayerGraph, records: Sequence[PartRecord]) -> TrainState | None:
    """Return the newest whole state in the records of all ranks, or ``None`` if there is none; a collective call."""
    everybody: list[list[PartRecord]] = world.allgather([record.outlined() for record in records])
    offers = [(rank, place) for rank, known in enumerate(everybody) for place in range(len(known))]
    for iteration in sorted({known.state.iteration for of_rank in everybody for known in of_rank}, reverse=True):
        at = [(rank, place) for rank, place in offers if everybody[rank][place].state.iteration == iteration]
        chosen = _providers(graph, [everybody[rank][place] for rank, place in at])
        if chosen is not None:
            states = _fetched(world, graph, everybody, records, [at[number] for number in chosen])
            return _before_test(_assembled(graph, states), [everybody[rank][place] for rank, place in at])
    return None


def _before_test(state: TrainState, offers: Sequence[PartRecord]) -> TrainState:
    """Return the state with data positions before an interrupted test, which is repeated."""
    states = [known.state for known in offers]
    reading = [each for each in states if each.positions] or states
    least = min(each.tested for each in reading)
    of_it = [each for each in reading if each.tested == least]
    positions = {place: samples for each in of_it for place, samples in each.positions.items()}
    return replace(state, positions=positions, tested=least, best=of_it[0].best)


def _fetched(
    world: Communicator,
    graph: LayerGraph,
    everybody: Sequence[Sequence[PartRecord]],
    records: Sequence[PartRecord],
    chosen: Sequence[tuple[int, int]],
) -> list[PartRecord]:
    """Return the chosen records (each given by rank and index) on all ranks; a collective call.

    It sends nothing if each rank has the whole state itself, because updates are equal on all ranks.
    """
    rank, place = chosen[0]
    iteration = everybody[rank][place].state.iteration

    def has_all(each: PartRecord) -> bool:
        return each.state.iteration == iteration and _providers(graph, [each]) is not None

    own = [next((number for number, each in enumerate(known) if has_all(each)), -1) for known in everybody]
    if min(own) >= 0:
        return [_mapped(records[own[world.rank]], _on_host)]
    return [_broadcast(world, records[place] if rank == world.rank else None, rank) for rank, place in chosen]


def _broadcast(world: Communicator, record: PartRecord | None, root: int) -> PartRecord:
    """Return the record of ``root`` on all ranks; a collective call.

    Tensors are sent without a copy, because they may take most of the memory.
    """
    own = record and _mapped(record, _on_host)
    described = world.bcast(own and _described(own), root)
    found = own or _room_for(described)
    for part in _contents(found):
        world.Bcast(part, root)
    return found


def _mapped(record: PartRecord, change: Callable[[Tensor], Tensor]) -> PartRecord:
    """Return the record with changed tensors, and without the exchange's memory."""
    state = record.state
    weights = {blob: change(value) for blob, value in state.weights.items()}
    moments = {blob: tuple(map(change, values)) for blob, values in state.moments.items()}
    return replace(record, state=replace(state, weights=weights, moments=moments, extras={}))


def _on_host(value: Tensor) -> Tensor:
    return value.detach().to("cpu").contiguous()


def _described(record: PartRecord) -> PartRecord:
    """Return the record with tensors that have shapes and types but no memory."""
    return _mapped(record, lambda value: value.to("meta"))


def _room_for(described: PartRecord) -> PartRecord:
    """Return a record with memory for the numbers."""
    return _mapped(described, lambda value: torch.empty(value.shape, dtype=value.dtype))


def _contents(record: PartRecord) -> list[Buffer]:
    """Return the bytes of each tensor of the record, which are in the host's memory."""
    state = record.state
    tensors = [*state.weights.values(), *(value for values in state.moments.values() for value in values)]
    return [value.reshape(-1).view(torch.uint8).numpy() for value in tensors if value.numel()]


def _providers(graph: LayerGraph, offers: Sequence[PartRecord]) -> list[int] | None:
    """Return the fewest offers that together hold the whole net, or ``None`` if even all of them do not."""
    chosen: dict[int, None] = {}
    for param in graph.learnable:
        blob = blob_of(graph, param)
        by_part: dict[BlobSlice | None, list[int]] = {}
        for place, known in enumerate(offers):
            if known.part.holds(param) and blob not in known.frozen:
                by_part.setdefault(known.part.slice_of(param), []).append(place)
        covers = {own: _cover_of(places, own, param, blob, offers, chosen) for own, places in by_part.items()}
        found = covers.get(None)
        if found is None:
            spans = {(own.start, own.stop): cover for own, cover in covers.items() if own is not None}
            axis = next((own.axis for own in by_part if own is not None), None)
            tiles = None if axis is None else _tiled(spans, param.shape[axis])
            if tiles is None or any(tile is None for tile in tiles):
                return None
            found = [place for tile in tiles for place in tile or ()]
        chosen.update(dict.fromkeys(found))
    if not chosen and offers:
        chosen[0] = None  # a net without parameters
    return list(chosen) or None


def _cover_of(
    places: Sequence[int],
    own: BlobSlice | None,
    param: Param,
    blob: Blob,
    offers: Sequence[PartRecord],
    chosen: Container[int],
) -> list[int] | None:
    """Return those of the offers ``places`` that together have all elements of a slice of a blob, or ``None``."""
    undivided = [place for place in places if blob not in offers[place].elements]
    if undivided:
        return [next((place for place in undivided if place in chosen), undivided[0])]
    spans: dict[Elements, int] = {}
    for place in places:
        span = offers[place].elements[blob]
        if place in chosen or span not in spans:
            spans[span] = place
    return _tiled(spans, count(own.shape(param.shape) if own else param.shape))


def _tiled(spans: Mapping[tuple[int, int], T], end: int) -> list[T] | None:
    """Return the values of spans, in order, that cover ``[0, end)`` without gaps; ``None`` if they do not."""
    reached, found = 0, []
    for (start, stop), value in sorted(spans.items(), key=lambda span: span[0]):
        if start != reached and stop > start:
            return None
        reached = max(reached, stop)
        found.append(value)
    return found if spans and reached == end else None


def _assembled(graph: LayerGraph, records: Sequence[PartRecord]) -> TrainState:
    """Return the whole state from the records."""
    weights: dict[Blob, Tensor] = {}
    moments: dict[Blob, tuple[Tensor, ...]] = {}
    for param in graph.learnable:
        blob = blob_of(graph, param)
        parts: dict[BlobSlice | None, list[Tensor]] = {}
        for record in records:
            own, state = record.part.slice_of(param), record.state
            if not record.part.holds(param) or blob in record.frozen:
                continue
            values = [state.weights[blob], *state.moments.get(blob, ())]
            if (elements := record.elements.get(blob)) is None:
                parts.setdefault(own, values)
                continue
            shape = own.shape(param.shape) if own else param.shape
            room = parts.setdefault(own, [value.new_empty(shape) for value in values])
            for target, value in zip(room, values, strict=True):
                target.view(-1)[slice(*elements)] = value
        whole = parts.get(None)
        if whole is None:
            whole = [value.new_empty(param.shape) for value in next(iter(parts.values()))]
            for own, values in parts.items():
                assert own is not None
                for target, value in zip(whole, values, strict=True):
                    target[own.index(len(param.shape))] = value
        weights[blob], moments[blob] = whole[0], tuple(whole[1:])
    tuned = {name: value for name, value in records[0].state.tuned.items() if name != "chunks"}  # for the old ranks
    return replace(records[0].state, weights=weights, moments=moments, tuned=tuned, extras={})
