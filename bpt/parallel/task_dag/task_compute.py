"""TaskDagCompute: runs the passes of a net as task DAGs over the threads of one process."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from bpt.base.malloc_settings import share_heap
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.compute import Compute, LibraryCompute, Place, Start, Update
from bpt.engine.segment_state import SegmentState, Weights
from bpt.graph.segments import Segment
from bpt.graph.transfers import wants_diff
from bpt.nn.net import Net
from bpt.parallel.task_dag.blob_tasks import Work
from bpt.parallel.task_dag.dag_state import WHOLE, DagState
from bpt.parallel.task_dag.library import release_library_threads
from bpt.parallel.task_dag.pool import Pool
from bpt.parallel.task_dag.segment_plan import SegmentPlan, batches, make_plan
from bpt.parallel.task_dag.task_costs import GRAIN
from bpt.parallel.task_dag.task_dag import TaskDag, Timeline


class TaskDagCompute(Compute):
    """Runs the layers of a segment as tasks side by side (BPT-CNN, section 4).

    Results are LibraryCompute's up to rounding, and the same in every run: sums have a fixed order. Segments with
    nothing to run side by side are run by it, with the library's threads.

    Args:
        net, place: as for LibraryCompute; the device must be a CPU.
        threads: the number of threads; 0: as many as torch uses for the calling thread.
        grain: the least seconds that a task should take, as ``task_costs.py`` estimates them.

    Attributes:
        inner: TASK_DAG, or LIBRARY to run passes as LibraryCompute does; may change between iterations.
        timelines: the work of the threads in the last forward and backward of each segment, by ``(index, "forward")``
            and ``(index, "backward")``, or ``(index, "both")`` where one DAG ran both.
    """

    def __init__(self, net: Net, place: Place, threads: int = 0, grain: float = GRAIN) -> None:
        assert threads >= 0, threads
        self.threads = threads or torch.get_num_threads()
        self.grain = grain
        self.inner: int = pb.InnerParameter.TASK_DAG
        self.timelines: dict[tuple[int, str], Timeline] = {}
        self._net = net
        self._place: Place = lambda top: net.precision.cast(place(top))
        self._library = LibraryCompute(net, place)
        self._plans: dict[tuple[object, ...], SegmentPlan] = {}
        share_heap()
        self._pool = Pool(self.threads)
        self._stop = weakref.finalize(self, self._pool.stop)  # also when the program ends

    @property
    def updates(self) -> bool:
        """Whether updates run as tasks of the backward pass."""
        return self.inner != pb.InnerParameter.LIBRARY and self.threads > 1

    def close(self) -> None:
        """End the threads and drop the tasks; another pass would make both again."""
        self._pool.stop()
        self._plans.clear()

    def reset(self) -> None:
        """Drop the plans: blobs have other shapes, or the net is cut into other segments."""
        self._plans.clear()
        self.timelines.clear()

    def plan(self, segment: Segment) -> SegmentPlan:
        """Return the tasks of a segment, for the blobs' shapes as they are now."""
        net = self._net
        key = (segment.index, net.graph, net.precision.in_half, batches(net) if net.context.is_divided else ())
        if key not in self._plans:
            self._plans[key] = make_plan(net, segment, self.threads, self.grain)
        return self._plans[key]

    def forward(
        self, segment: Segment, bottoms: Mapping[int, Tensor], grad: bool
    ) -> tuple[dict[int, Tensor], SegmentState]:
        """Run ``segment`` on ``bottoms``; return its detached outputs, and what its backward needs if ``grad``."""
        if not self.updates or not self.plan(segment).is_parallel:
            return self._library.forward(segment, bottoms, grad)
        plan = self.plan(segment)
        run = self._begin(segment, plan, bottoms, grad)
        self._run(segment, "forward", plan.forward, plan.forward_works, run)
        tops = self._tops(segment, run)
        if grad:
            run.forget()
        return tops, run

    def _begin(self, segment: Segment, plan: SegmentPlan, bottoms: Mapping[int, Tensor], grad: bool) -> DagState:
        run = DagState(grad=grad, place=self._place, plan=plan)
        for edge, bottom in bottoms.items():
            run.leaves[edge] = bottom.detach().requires_grad_(grad and wants_diff(self._net.graph, edge))
            run.values[edge, WHOLE] = bottom.detach()
            run.flows[edge] = run.leaves[edge].requires_grad
        return run

    def _run(self, segment: Segment, what: str, dag: TaskDag, works: Sequence[Work], run: DagState) -> None:
        release_library_threads()
        for other in {"forward", "backward"} if what == "both" else {"both"}:
            self.timelines.pop((segment.index, other), None)
        self.timelines[segment.index, what] = self._pool.run(dag, [partial(work, run) for work in works[: len(dag)]])

    def backward(
        self,
        segment: Segment,
        state: SegmentState,
        diffs: Mapping[int, Tensor | None],
        weights: Weights,
        update: Update | None = None,
    ) -> dict[int, Tensor]:
        """Run ``segment`` backward from ``diffs`` of its outputs; gradients of copies go to the copied parameters."""
        if not isinstance(state, DagState):
            return self._library.backward(segment, state, diffs, weights)
        assert isinstance(state.plan, SegmentPlan) and not (update and weights)
        plan, run = state.plan, state
        run.start = diffs.get
        self._prepare(run, plan, weights, update)
        if any(diff is not None for diff in diffs.values()):
            dag = plan.backward if update is None else plan.updating
            self._run(segment, "backward", dag, plan.backward_works, run)
        return _handed_back(run)

    @staticmethod
    def _prepare(run: DagState, plan: SegmentPlan, weights: Weights, update: Update | None) -> None:
        run.weights = weights
        run.update = update
        run.fresh = {owner: value.grad is None for owner, value in plan.parameters.items()}

    def can_join(self, segment: Segment) -> bool:
        """Return whether ``forward_backward`` can run the segment."""
        return self.updates and self.plan(segment).is_parallel and self.plan(segment).both is not None

    def forward_backward(
        self, segment: Segment, bottoms: Mapping[int, Tensor], start: Start, update: Update | None = None
    ) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
        """Run forward and backward as one DAG, without a barrier between them (BPT-CNN, section 4.2)."""
        plan = self.plan(segment)
        run = self._begin(segment, plan, bottoms, grad=True)
        run.start = lambda edge: start(edge, run.whole(edge)) if run.flows[edge] else None
        self._prepare(run, plan, {}, update)
        dag = plan.both_without_update if update is None else plan.both
        assert dag is not None
        self._run(segment, "both", dag, (*plan.forward_works, *plan.backward_works), run)
        return self._tops(segment, run), _handed_back(run)

    @staticmethod
    def _tops(segment: Segment, run: DagState) -> dict[int, Tensor]:
        """Return the outputs of the segment; the state refers to those that have a diff."""
        tops = {edge: run.whole(edge) for edge in segment.outputs}
        run.tops = {edge: top for edge, top in tops.items() if run.grad and run.flows[edge]}
        return tops


def _handed_back(run: DagState) -> dict[int, Tensor]:
    """Return the diffs of the segment's inputs."""
    handed_back = {}
    for edge, leaf in run.leaves.items():
        if leaf.requires_grad:
            diff = run.start(edge) if edge in run.tops else run.diffs.get((edge, WHOLE))
            handed_back[edge] = torch.zeros_like(leaf) if diff is None else diff
    return handed_back
