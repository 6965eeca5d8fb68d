"""RunPlan: the resolved plan of a run, which ``resolve`` makes once from a solver's text.

Every attribute has the name and path of its field in the text: ``plan.parallel_param.pipeline_param.micro_batches``.
The exceptions are the fields of the optimizer, in ``plan.optim``, and the fields that name nets, in ``plan.nets``.
Values of enums are the schema's numbers.

A plan never changes. The methods at the end of RunPlan return plans for other runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby

from bpt.base.origin import FieldPath, Origin, locate
from bpt.config.optim_spec import OptimSpec
from bpt.config.plan.nets import NetFields, NetPlan, test_plans, train_plan
from bpt.config.plan.replica_layout import ReplicaLayout
from bpt.config.precision import Precision, precision_of_net
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.schema_specs import SCHEMA, spec_of

_Parallel, _Pipeline = pb.ParallelParameter, pb.PipelineParameter

OUTER = (_Parallel.SGWU, _Parallel.AGWU, _Parallel.ASGD)
"""The values of ``exchange`` that belong to the outer layer."""


@dataclass(frozen=True)
@spec_of(pb.CgdpParameter)
class CgdpSpec:
    """The chunks of gradients under ``exchange: CGDP``."""

    chunk_size: int = SCHEMA
    step: int = SCHEMA
    range: int = SCHEMA
    interval: int = SCHEMA
    chunking: int = SCHEMA
    choice: str = SCHEMA


@dataclass(frozen=True)
@spec_of(pb.AgwuParameter)
class AgwuSpec:
    """The exchanges of the outer layer: SGWU, AGWU, ASGD."""

    normalizer: int = SCHEMA
    local_epochs: int = SCHEMA
    max_staleness: int = SCHEMA
    weigh_by_accuracy: bool = SCHEMA
    weigh_by_samples: bool = SCHEMA
    accuracy: int = SCHEMA
    push: int = SCHEMA
    fetch: int = SCHEMA
    ranks: int = SCHEMA
    worker_exchange: int = SCHEMA
    local_updates: int = SCHEMA
    staleness: int = SCHEMA
    staleness_limit: int = SCHEMA
    compensation: float = SCHEMA


@dataclass(frozen=True)
@spec_of(pb.OuterParameter)
class OuterSpec:
    """The step between two versions of the global weights, by the change that replicas have made."""

    type: int = SCHEMA
    lr: float = SCHEMA
    momentum: float = SCHEMA

    @property
    def name(self) -> str:
        """The name of the step; "" if a version is the change itself."""
        return "" if self.type == pb.OuterParameter.NONE else pb.OuterParameter.Type.Name(self.type)


@dataclass(frozen=True)
@spec_of(pb.BatchParameter)
class BatchSpec:
    """The batch of all replicas together."""

    rule: int = SCHEMA
    min: int = SCHEMA
    max: int = SCHEMA


@dataclass(frozen=True)
@spec_of(pb.BalanceParameter)
class BalanceSpec:
    """The division of samples among replicas of unequal speed."""

    profile: str = SCHEMA
    num_batches: int = SCHEMA
    rule: int = SCHEMA
    normalizer: int = SCHEMA
    finish: int = SCHEMA
    migrate: bool = SCHEMA
    by: int = SCHEMA
    batch: BatchSpec = SCHEMA

    @property
    def follows_noise(self) -> bool:
        """Whether the batch follows the noise of the gradients."""
        return self.batch.rule == pb.BatchParameter.NOISE_SCALE


@dataclass(frozen=True)
@spec_of(pb.TreeParameter)
class TreeSpec:
    """The messages of gradients and weights under ``exchange: TREE``."""

    sends: int = SCHEMA


@dataclass(frozen=True)
@spec_of(pb.CompressionParameter)
class CompressionSpec:
    """The compression of gradients between ranks."""

    codec: int = SCHEMA
    ratio: float = SCHEMA
    rank: int = SCHEMA
    warm_up: int = SCHEMA
    links: int = SCHEMA

    @property
    def name(self) -> str:
        """The name of the codec; "" if there is none."""
        is_none = self.codec == pb.CompressionParameter.NONE
        return "" if is_none else pb.CompressionParameter.Codec.Name(self.codec)


@dataclass(frozen=True)
@spec_of(pb.LocalParameter)
class LocalSpec:
    """The replicas that update independently between averages, under ``exchange: LOCAL``."""

    steps: int = SCHEMA
    start_iter: int = SCHEMA
    momentum: int = SCHEMA
    sum_within_hosts: bool = SCHEMA


@dataclass(frozen=True)
@spec_of(pb.FaultParameter)
class FaultSpec:
    """The reaction of a synchronous run to the loss of a rank."""

    on_loss: int = SCHEMA
    min_ranks: int = SCHEMA
    copies: int = SCHEMA
    copy_interval: int = SCHEMA
    timeout: float = SCHEMA
    spares: int = SCHEMA
    memory_snapshot: int = SCHEMA

    @property
    def heals(self) -> bool:
        """Whether the run continues after a loss."""
        return self.on_loss == pb.FaultParameter.HEAL


@dataclass(frozen=True)
@spec_of(pb.FcParameter)
class FcSpec:
    """The exchange of activations among ranks that share a fully connected layer."""

    scheme: int = SCHEMA
    pieces: int = SCHEMA


@dataclass(frozen=True)
@spec_of(pb.GabraParameter)
class GabraSpec:
    """The genetic algorithm of ``allocator: GABRA``."""

    population: int = SCHEMA
    generations: int = SCHEMA
    crossover: float = SCHEMA
    seed: int = SCHEMA


@dataclass(frozen=True)
@spec_of(pb.PipelineParameter)
class PipelineSpec:
    """The stages of layers, and the order in which micro-batches pass them."""

    allocator: int = SCHEMA
    schedule: int = SCHEMA
    micro_batches: int = SCHEMA
    objective: int = SCHEMA
    devices: str = SCHEMA
    costs: str = SCHEMA
    partitions: int = SCHEMA
    partition_by: int = SCHEMA
    capacity: tuple[float, ...] = SCHEMA
    gabra_param: GabraSpec = SCHEMA
    batch_norm_over: int = SCHEMA
    recompute: bool = SCHEMA
    correction: int = SCHEMA


@dataclass(frozen=True)
@spec_of(pb.InnerParameter)
class InnerSpec:
    """The inner layer: how one process divides its work among its cores."""

    engine: int = SCHEMA
    num_threads: int = SCHEMA


@dataclass(frozen=True)
@spec_of(pb.EarlyStoppingParameter)
class EarlyStoppingSpec:
    """The end of training before ``max_iter``, and the direction of better test outputs."""

    output: str = SCHEMA
    better: int = SCHEMA
    patience: int = SCHEMA
    min_delta: float = SCHEMA


@dataclass(frozen=True)
@spec_of(pb.ReplicaParameter)
class ReplicaSpec:
    """Consecutive ranks that form replicas of equally many stages."""

    ranks: int = SCHEMA
    num_stages: int = SCHEMA

    @property
    def stages(self) -> tuple[int, ...]:
        """The number of stages of each of the replicas."""
        return (self.num_stages,) * max(1, self.ranks // max(1, self.num_stages))


@dataclass(frozen=True)
@spec_of(pb.ParallelParameter)
class ParallelSpec:
    """The division of a run over its ranks; by default data parallelism, or one process."""

    num_stages: int = SCHEMA
    num_shards: int = SCHEMA
    batch_scope: int = SCHEMA
    exchange: int = SCHEMA
    cgdp_param: CgdpSpec = SCHEMA
    agwu_param: AgwuSpec = SCHEMA
    balance: int = SCHEMA
    balance_param: BalanceSpec = SCHEMA
    fc_param: FcSpec = SCHEMA
    pipeline_param: PipelineSpec = SCHEMA
    inner_param: InnerSpec = SCHEMA
    sync_batch_norm: bool = SCHEMA
    server: int = SCHEMA
    ship_data: bool = SCHEMA
    servers: int = SCHEMA
    tree_param: TreeSpec = SCHEMA
    fault_param: FaultSpec = SCHEMA
    auto: bool = SCHEMA
    compression_param: CompressionSpec = SCHEMA
    local_param: LocalSpec = SCHEMA
    transport: int = SCHEMA
    update: int = SCHEMA
    outer_param: OuterSpec = SCHEMA
    replica: tuple[ReplicaSpec, ...] = SCHEMA

    @property
    def depth(self) -> int:
        """The number of stages of the longest pipeline."""
        return max((self.num_stages, *(replica.num_stages for replica in self.replica)))

    @property
    def is_unlike(self) -> bool:
        """Whether replicas have different numbers of stages."""
        return len({replica.num_stages for replica in self.replica}) > 1

    def layout(self, ranks: int) -> ReplicaLayout:
        """Return how ``ranks`` ranks form replicas; if the text lists the replicas, it also says how many ranks."""
        if not self.replica:
            return ReplicaLayout.regular(ranks, self.num_stages, self.num_shards)
        return ReplicaLayout(tuple(stages for replica in self.replica for stages in replica.stages))

    @property
    def replica_ranks(self) -> int:
        """The number of ranks that hold one net together, at most."""
        return self.depth * self.num_shards

    @property
    def is_delayed(self) -> bool:
        """Whether gradients belong to earlier iterations, so that losses and weights differ from one process's."""
        return self.depth > 1 and self.pipeline_param.schedule == _Pipeline.DELAYED

    @property
    def divides_update(self) -> bool:
        """Whether each rank updates a slice of the parameters that it holds."""
        return self.update != _Parallel.REPLICATED

    @property
    def corrects_delays(self) -> bool:
        """Whether updates correct gradients of earlier iterations."""
        return self.is_delayed and self.pipeline_param.correction == _Pipeline.NESTEROV

    @property
    def node_ranks(self) -> int:
        """The number of ranks of a computing node of the outer layer."""
        return self.agwu_param.ranks or self.replica_ranks

    @property
    def gradient_exchange(self) -> int:
        """The exchange of synchronous ranks: of all ranks or, under the outer layer, of the ranks of each worker."""
        return self.agwu_param.worker_exchange if self.exchange in OUTER else self.exchange


@dataclass(frozen=True)
@spec_of(pb.SolverParameter)
class RunPlan:
    """The resolved plan of a run: the nets to train and test, the method, the ranks, and the files to write.

    Attributes:
        nets: the fields that name the nets; ``train`` and ``tests`` are the named nets.
        optim: the settings of the optimizer.
        asked_precision: the text's ``precision``; ``None``: the net's text decides (``precision``).
        path: the path of the solver's text; "": the plan was made in memory.
        origins: the place of each field of the text.
        set_fields: the fields that the text or a flag sets.
        notes: lines for the log about changes of the text while it was read.
        text: the whole text, as the log shows it.
        shared_text: the text without fields that may differ from host to host (paths of files, devices).
    """

    nets: NetFields = NetFields()  # noqa: RUF009  frozen
    test_iter: tuple[int, ...] = SCHEMA
    test_interval: int = SCHEMA
    test_compute_loss: bool = SCHEMA
    test_initialization: bool = SCHEMA
    eval_type: str = SCHEMA
    ap_version: str = SCHEMA
    show_per_class_result: bool = SCHEMA
    optim: OptimSpec = OptimSpec()  # noqa: RUF009
    display: int = SCHEMA
    average_loss: int = SCHEMA
    snapshot: int = SCHEMA
    snapshot_prefix: str = SCHEMA
    snapshot_diff: bool = SCHEMA
    snapshot_format: int = SCHEMA
    snapshot_after_train: bool = SCHEMA
    on_nan: int = SCHEMA
    snapshot_best: str = SCHEMA
    max_snapshots: int = SCHEMA
    early_stopping_param: EarlyStoppingSpec = SCHEMA
    weights: tuple[str, ...] = SCHEMA
    random_seed: int = SCHEMA
    debug_info: bool = SCHEMA
    solver_mode: int = SCHEMA
    device_id: int = SCHEMA
    engine: int = SCHEMA
    asked_precision: Precision | None = None
    parallel_param: ParallelSpec = SCHEMA
    path: str = ""
    origins: Mapping[FieldPath, Origin] = field(default_factory=dict, repr=False)
    set_fields: frozenset[FieldPath] = frozenset()
    notes: tuple[str, ...] = ()
    text: str = field(default="", repr=False)
    shared_text: str = field(default="", repr=False)

    @cached_property
    def train(self) -> NetPlan:
        """The net to train; its file is read on first use.

        Raises:
            PrototxtError: the text of the net is wrong or missing.
        """
        return train_plan(self)

    @cached_property
    def tests(self) -> tuple[NetPlan, ...]:
        """The nets to test; their files are read on first use."""
        return test_plans(self)

    @cached_property
    def precision(self) -> Precision:
        """The precision of the run's numbers, if the devices support it.

        Raises:
            PrototxtError: the text of the net is wrong or missing.
        """
        return self.asked_precision or precision_of_net(self.train.source.param)

    @property
    def max_iter(self) -> int:
        """The number of iterations to train; it is in ``optim``, because a learning rate may depend on it."""
        return self.optim.max_iter

    @property
    def is_outer(self) -> bool:
        """Whether ranks are not synchronous: SGWU, AGWU or ASGD."""
        return self.parallel_param.exchange in OUTER

    def origin(self, *where: str | int) -> Origin:
        """Return the place of the field ``where`` or, if it is not set, of the nearest message around it."""
        return locate(self.origins, where, self.path)

    def given(self, *where: str) -> bool:
        """Return whether the text, or a flag, sets the field ``where``; an empty message counts as set."""
        return where in self.set_fields

    @property
    def stops_early(self) -> bool:
        """Whether training ends when tests do not improve."""
        return self.given("early_stopping_param")

    def displays(self, iteration: int) -> bool:
        """Return whether the loss of an iteration is displayed."""
        return bool(self.display) and iteration % self.display == 0

    @property
    def judged_by(self) -> str:
        """The test output whose best value decides about stopping or the best snapshot; "" if there is none."""
        return (self.early_stopping_param.output if self.stops_early else "") or self.snapshot_best

    # Variants

    def training_only(self) -> RunPlan:
        """Return the plan without tests and snapshots, because they may need missing data or folders."""
        return replace(
            self,
            nets=replace(self.nets, test_net=(), test_net_param=(), test_state=()),
            test_iter=(),
            test_interval=0,
            snapshot=0,
            snapshot_after_train=False,
            snapshot_best="",
            set_fields=frozenset(way for way in self.set_fields if way[0] != "early_stopping_param"),
        )

    def measured(self) -> RunPlan:
        """Return the plan for measurements, without tests, snapshots, display and weights."""
        return replace(self.training_only(), display=0, weights=())

    def standalone(self) -> RunPlan:
        """Return the plan for a single process; only the inner layer of ``parallel_param`` remains."""
        return self._replace_parallel(ParallelSpec(inner_param=self.parallel_param.inner_param), "inner_param")

    def of_node(self) -> RunPlan:
        """Return the plan for the ranks of one computing node of the outer layer, which are synchronous."""
        parallel = self.parallel_param
        if parallel.node_ranks == 1:
            return self.standalone()
        names = ["num_stages", "num_shards", "inner_param"]
        names += ["pipeline_param"] * (parallel.num_stages > 1) + ["fc_param"] * (parallel.num_shards > 1)
        if parallel.node_ranks > parallel.num_stages:  # a batch is divided, and gradients are summed
            names += ["cgdp_param", "tree_param", "compression_param", "sync_batch_norm"]
        fields = {name: getattr(parallel, name) for name in names}
        fault = replace(parallel.fault_param, on_loss=pb.FaultParameter.STOP)  # the run continues without this node
        return self._replace_parallel(
            ParallelSpec(exchange=parallel.gradient_exchange, fault_param=fault, **fields), *names
        )

    def with_seed(self, seed: int) -> RunPlan:
        """Return the plan with this ``random_seed``."""
        return replace(self, random_seed=seed)

    def with_parallel(self, **changes: object) -> RunPlan:
        """Return the plan with other values of fields of ``parallel_param``."""
        return replace(self, parallel_param=replace(self.parallel_param, **changes))  # type: ignore[arg-type]

    def with_layout(self, layout: ReplicaLayout) -> RunPlan:
        """Return the plan for the replicas of a layout."""
        if len(layout.kinds) == 1:
            return self.with_parallel(num_stages=layout.depth, num_shards=layout.shards, replica=())
        runs = ((stages, len(list(run))) for stages, run in groupby(layout.stages))
        listed = tuple(ReplicaSpec(replicas * stages, stages) for stages, replicas in runs)
        return self.with_parallel(num_stages=1, num_shards=1, replica=listed)

    def with_pipeline(self, **changes: object) -> RunPlan:
        """Return the plan with other values of fields of ``pipeline_param``."""
        return self.with_parallel(pipeline_param=replace(self.parallel_param.pipeline_param, **changes))  # type: ignore[arg-type]

    def _replace_parallel(self, parallel: ParallelSpec, *kept: str) -> RunPlan:
        """Return the plan with this ``parallel_param``; only its fields ``kept`` still count as set by the text."""
        ours = {way for way in self.set_fields if way[0] != "parallel_param" or (len(way) > 1 and way[1] in kept)}
        return replace(self, parallel_param=parallel, set_fields=frozenset(ours))
