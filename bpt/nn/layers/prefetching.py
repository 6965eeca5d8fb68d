"""PrefetchingDataLayer: the base of layers that read a data set ahead of its use (Caffe: BasePrefetchingDataLayer)."""

from __future__ import annotations

import logging
import os
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, ClassVar

import torch
from torch import Tensor

from bpt.base.errors import FileError
from bpt.base.seeds import derive_seed
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.assigned_samples import AllocatedSampler
from bpt.data.batches import Batches
from bpt.data.device_batches import DeviceBatch, DeviceBatches
from bpt.data.prefetch import Prefetcher
from bpt.data.sample_partition import Run
from bpt.data.sampler import Sampler
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.graph.share import ShardRotation, Share
from bpt.nn.layers.base import DataLayer
from bpt.nn.layers.layer_text import errors_at
from bpt.nn.layers.transform_param import notice_old_fields
from bpt.nn.pass_context import PassContext
from bpt.system.events.bus import EventBus
from bpt.system.events.event import Activity

log = logging.getLogger("bpt")


class PrefetchingDataLayer(DataLayer):
    """A layer that returns the batches of a data set in order, while a thread prepares the next ones.

    A subclass says how its source (``make_source``) and its batches (``make_batches``) are made, and which shapes its
    tops have (``infer_tops``).

    With many ranks each gets its share of the whole batch. In training the shares are rotated once an epoch, so that
    over the epochs each rank gets every sample, also where batches and ranks divide the data set evenly.

    A computing node of the outer layer has some of the samples only: those that ``allocate`` has given it, on all its
    ranks alike. Its layers hand out these in passes::

        for layer in layers:
            layer.allocate(order.runs)  # the same for all of them
        while first.passes < order.until:
            ...  # an iteration; the last one may reach into the next pass

    Attributes:
        counts_samples: an epoch has each sample of the data set once.
        waited: seconds that the last ``forward`` waited for its batch.
    """

    arity = Arity(bottoms=(0, 0), tops=(1, 2))
    counts_samples: ClassVar[bool] = True
    field: ClassVar[str]  # the message that has batch_size and source
    prefetch_field: ClassVar[str] = "data_param"  # the one that has prefetch, in Caffe for all layers
    old_fields: ClassVar[Sequence[str]] = ()  # of ``field``: transformations that have no effect there

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        share = context.split(self.settings_of(spec).batch_size)
        self._batches = self.make_batches(spec, self.open(spec), share, derive_seed(context.seed, "data", spec.name))
        self._on_device: DeviceBatches | None = None
        self._prefetch = self.prefetch_of(spec)
        self.waited = 0.0
        self._prefetcher = self._make_prefetcher()
        notice_old_fields(spec, self.field, self.old_fields)

    # Of each type

    @classmethod
    @abstractmethod
    def make_source(cls, spec: LayerSpec, path: str) -> Any:
        """Return the data set at ``path``; a UserError says what is wrong with it."""

    @classmethod
    @abstractmethod
    def make_batches(cls, spec: LayerSpec, source: Any, share: Share, seed: int) -> Batches[Any]:
        """Return the batches of what ``open`` has returned.

        Args:
            seed: of everything random in this layer's data.
        """

    @classmethod
    @abstractmethod
    def infer_tops(cls, spec: LayerSpec, batch_size: int) -> Sequence[Shape]:
        """Return the shapes of the tops, perhaps more than are named.

        Raises:
            LayerError: the text is wrong, or the data do not fit.
        """

    # Of all types

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        batch_size = batch_size_of(spec, cls.field)
        cls.prefetch_of(spec)
        return LayerShapes(tuple(cls.infer_tops(spec, batch_size))[: len(spec.tops)])

    @classmethod
    def settings_of(cls, spec: LayerSpec) -> Any:
        """Return the message ``field``."""
        return getattr(spec.param, cls.field)

    @classmethod
    def open(cls, spec: LayerSpec) -> Any:
        """Return the data set; a LayerError if it is missing or wrong."""
        path: str = cls.settings_of(spec).source
        if not path:
            raise spec.error(f"{cls.field} needs a source", cls.field, "source")
        with errors_at(spec, cls.field, "source", kinds=(FileError,)):
            return cls.make_source(spec, path)

    @classmethod
    def sampler_of(cls, spec: LayerSpec, sizes: Sequence[int], seed: int) -> Sampler:
        """Return the order of samples that ``shuffle`` and ``rand_skip`` ask for; see Sampler for ``sizes``."""
        settings = cls.settings_of(spec)
        most = getattr(settings, "rand_skip", 0)
        skip = derive_seed(seed, "rand_skip") % most if most else 0
        return Sampler(sizes, shuffle=settings.shuffle, seed=seed, skip=skip)

    @classmethod
    def prefetch_of(cls, spec: LayerSpec) -> int:
        """Return how many batches are read ahead."""
        prefetch: int = getattr(spec.param, cls.prefetch_field).prefetch
        if prefetch < 1:
            raise spec.error("prefetch must be at least 1", cls.prefetch_field, "prefetch")
        return prefetch

    def _make_prefetcher(self) -> Prefetcher[tuple[Tensor, ...] | DeviceBatch]:
        return Prefetcher(self._on_device or self._batches, self.share.total, self._prefetch)

    @contextmanager
    def _read_anew(self) -> Iterator[None]:
        """Drop what was read ahead; after a change of the batches inside, read on from the same position."""
        position = self.position
        self._prefetcher.close()
        yield
        self._prefetcher = self._make_prefetcher()
        self._prefetcher.position = position

    def prefetch_to(self, device: torch.device) -> None:
        """Copy batches to a GPU while it computes; as in Caffe, it holds as many as are read ahead."""
        with self._read_anew():
            self._on_device = DeviceBatches(self._batches, device)

    @classmethod
    def in_words(cls, layer: pb.LayerParameter, axes: int) -> Sequence[str]:
        field, name = cls.files[0][0].split(".")
        return (os.path.basename(getattr(getattr(layer, field), name).rstrip("/")),)

    def forward(self, *bottoms: Tensor) -> Tensor | tuple[Tensor, ...]:
        start = time.perf_counter()
        with self._batches.events.during(Activity.WAIT_FOR_DATA):
            batch = self._prefetcher.next()
        tops = (batch.take() if isinstance(batch, DeviceBatch) else batch)[: len(self.spec.tops)]
        self.waited = time.perf_counter() - start
        return tops[0] if len(tops) == 1 else tops

    def report_to(self, events: EventBus) -> None:
        """Report there how long it waits for batches, and how long it takes to make them."""
        self._batches.events = events

    @property
    def own_rotation(self) -> ShardRotation:
        return ShardRotation(self.share.total, self.epoch)

    def rotate(self, rotation: ShardRotation) -> None:
        if rotation != self._batches.rotation_of_shares:
            with self._read_anew():  # what was read ahead had other samples
                self._batches.rotation_of_shares = rotation

    @property
    def share(self) -> Share:
        """The samples of a whole batch that this rank gets. Setting it drops what was read ahead."""
        return self._batches.share

    @share.setter
    def share(self, share: Share) -> None:
        with self._read_anew():
            self._batches.share = share

    @property
    def epoch(self) -> int:
        return self._batches.epoch

    @property
    def path(self) -> str:
        """The path of the data set, as the user wrote it."""
        return self._batches.path

    def content(self) -> tuple[str, str]:
        return self._batches.digest(), self.path

    @property
    def position(self) -> int:
        """Samples of whole batches, so that it does not depend on the ranks."""
        return self._prefetcher.position

    @position.setter
    def position(self, samples: int) -> None:
        self._prefetcher.position = samples

    def allocate(self, runs: Sequence[Run], begun: int = 0, gives: Sequence[Run] = ()) -> None:
        """From the next batch on, hand out these samples, too; and of all others only those allocated before.

        Those of ``gives`` are not handed out any more.

        At the end of a pass (when the last batch of it has been handed out) the next one has them all. So has a pass
        of which the last batch took the first samples: it continues with the rest, and has each sample once. What
        was read ahead is dropped, unless ``runs`` and ``gives`` are empty. With the same calls at the same positions a
        resumed run continues as the undisturbed one.

        Args:
            runs: positions in the order of epoch 0, without ``rand_skip``; none of them allocated before.
            begun: passes that count as done by a node that joins later than others. Only with the first samples.
            gives: positions as ``runs``, all of them allocated before; some others must stay.

        Raises:
            LayerError: the data set has fewer samples.
        """
        last = max((stop for _, stop in runs), default=0)
        if last > self.epoch:
            raise self.spec.error(
                f"its data set has {self.epoch} samples, but others of this net have {last} or more; with SGWU, AGWU "
                "or ASGD all need as many"
            )
        if runs or gives or self._batches.allocated is None:
            self._prefetcher.close()
            self._batches.allocate(self.position, runs, begun, gives)

    def keys(self, places: Sequence[int]) -> list[str]:
        """Return what names the samples at ``places`` of the stream, such as their files; "" if nothing does.

        What was read ahead is dropped.
        """
        with self._read_anew():
            return [self._batches.key(place) for place in places]

    def replaced(self, position: int) -> list[int]:
        """Return which samples of the whole batch at ``position`` replace skipped ones."""
        skipped = self._batches.skipped
        samples = self._batches.sampler.indices(position, self.share.total).samples if skipped else ()
        return [place for place, sample in enumerate(samples) if int(sample) in skipped]

    @property
    def passes(self) -> Fraction:
        """The number of passes over the allocated samples so far, with the fraction of the current one."""
        return self._allocated.passes(self.position)

    @property
    def pass_end(self) -> int:
        """The position where the pass ends that the next sample belongs to; without samples ``position``."""
        return self._allocated.pass_end(self.position)

    @property
    def _allocated(self) -> AllocatedSampler:
        assert self._batches.allocated, "no samples have been allocated"
        return self._batches.allocated

    def close(self) -> None:
        self._prefetcher.close()
        if self._on_device is not None:
            self._on_device.close()
        self._batches.close()


def batch_size_of(spec: LayerSpec, field: str) -> int:
    """Return ``batch_size`` of the layer's message ``field``; raise a LayerError if it is missing or 0."""
    size: int = getattr(spec.param, field).batch_size
    if size < 1:
        raise spec.error(f"{field} needs a batch_size of at least 1", field, "batch_size")
    return size
