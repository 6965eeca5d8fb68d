"""RunPlan: the resolved plan of a run, made once of a solver's text by ``resolve``.

Every field has the name that it has in the text, and stands there, so that the way to an attribute is the way to the
field: ``plan.parallel_param.pipeline_param.micro_batches``. Only what says how weights follow from gradients
(``plan.optim``) and which nets there are (``plan.nets``) is gathered. Values of enums are the schema's numbers.

A plan never changes. Another run is another plan: see the methods at the end of RunPlan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from bpt.base.origin import FieldPath, Origin, locate
from bpt.config.optim_spec import OptimSpec
from bpt.config.plan.nets import NetFields, NetPlan, test_plans, train_plan
from bpt.config.precision import Precision, precision_of_net
from bpt.config.proto import bpt_pb2 as pb

_Parallel, _Pipeline = pb.ParallelParameter, pb.PipelineParameter

OUTER = (_Parallel.SGWU, _Parallel.AGWU, _Parallel.ASGD)
"""The values of ``exchange`` that belong to the outer layer."""


@dataclass(frozen=True)
class CgdpSpec:
    """The chunks of gradients under ``exchange: CGDP``."""

    chunk_size: int = 0
    step: int = 10
    range: int = 5
    interval: int = 10
    chunking: int = pb.CgdpParameter.UNIFORM
    choice: str = ""


@dataclass(frozen=True)
class AgwuSpec:
    """The exchanges of the outer layer: SGWU, AGWU, ASGD."""

    normalizer: int = pb.AgwuParameter.OTHERS
    local_epochs: int = 1
    max_staleness: int = 0
    weigh_by_accuracy: bool = True
    weigh_by_samples: bool = True
    accuracy: int = pb.AgwuParameter.DURING_EPOCH
    push: int = 1
    fetch: int = 1
    ranks: int = 0
    worker_exchange: int = _Parallel.ALLREDUCE


@dataclass(frozen=True)
class BalanceSpec:
    """The division of samples among replicas of unequal speed."""

    profile: str = ""
    num_batches: int = 4
    rule: int = pb.BalanceParameter.HARMONIC
    normalizer: int = pb.BalanceParameter.SHARE
    finish: int = pb.BalanceParameter.TOGETHER


@dataclass(frozen=True)
class TreeSpec:
    """The messages of gradients and weights under ``exchange: TREE``."""

    sends: int = pb.TreeParameter.PAIRWISE


@dataclass(frozen=True)
class CompressionSpec:
    """The compression of gradients between ranks."""

    codec: int = pb.CompressionParameter.NONE
    ratio: float = pb.CompressionParameter().ratio  # 0.01 in float32, as texts have it
    rank: int = 2
    warm_up: int = 100
    links: int = pb.CompressionParameter.BETWEEN_HOSTS

    @property
    def name(self) -> str:
        """The name of the codec; "" if there is none."""
        is_none = self.codec == pb.CompressionParameter.NONE
        return "" if is_none else pb.CompressionParameter.Codec.Name(self.codec)


@dataclass(frozen=True)
class LocalSpec:
    """The replicas that update by themselves between averages, under ``exchange: LOCAL``."""

    steps: int = 8
    start_iter: int = 0
    momentum: int = pb.LocalParameter.AVERAGE
    sum_within_hosts: bool = False


@dataclass(frozen=True)
class FaultSpec:
    """The reaction of a run in step to the loss of a rank."""

    on_loss: int = pb.FaultParameter.HEAL
    min_ranks: int = 1
    copies: int = 0
    copy_interval: int = 1
    timeout: float = 300.0
    spares: int = 0
    memory_snapshot: int = 0

    @property
    def heals(self) -> bool:
        """Whether the run continues after a loss."""
        return self.on_loss == pb.FaultParameter.HEAL


@dataclass(frozen=True)
class FcSpec:
    """The exchange of activations among ranks that share a fully connected layer."""

    scheme: int = pb.FcParameter.PEER


@dataclass(frozen=True)
class GabraSpec:
    """The genetic algorithm of ``allocator: GABRA``."""

    population: int = 64
    generations: int = 2000
    crossover: float = pb.GabraParameter().crossover  # 0.8 in float32, as texts have it
    seed: int = 0


@dataclass(frozen=True)
class PipelineSpec:
    """The stages of layers, and the order in which micro-batches pass them."""

    allocator: int = _Pipeline.BLOCK
    schedule: int = _Pipeline.GPIPE
    micro_batches: int = 4
    objective: int = _Pipeline.STEP_TIME
    devices: str = ""
    costs: str = ""
    partitions: int = 0
    partition_by: int = _Pipeline.LAYERS
    capacity: tuple[float, ...] = ()
    gabra_param: GabraSpec = GabraSpec()
    batch_norm_over: int = _Pipeline.MICRO_BATCH


@dataclass(frozen=True)
class InnerSpec:
    """The inner layer: how one process divides its work among its cores."""

    engine: int = pb.InnerParameter.LIBRARY
    num_threads: int = 0


@dataclass(frozen=True)
class EarlyStoppingSpec:
    """The end of training before ``max_iter``, and the direction of better test outputs."""

    output: str = ""
    better: int = pb.EarlyStoppingParameter.AUTO
    patience: int = 10
    min_delta: float = 0.0


@dataclass(frozen=True)
class ParallelSpec:
    """The division of a run over its ranks; by default data parallelism, or one process."""

    num_stages: int = 1
    num_shards: int = 1
    batch_scope: int = _Parallel.GLOBAL
    exchange: int = _Parallel.ALLREDUCE
    cgdp_param: CgdpSpec = CgdpSpec()
    agwu_param: AgwuSpec = AgwuSpec()
    balance: int = _Parallel.UNIFORM
    balance_param: BalanceSpec = BalanceSpec()
    fc_param: FcSpec = FcSpec()
    pipeline_param: PipelineSpec = PipelineSpec()
    inner_param: InnerSpec = InnerSpec()
    sync_batch_norm: bool = False
    server: int = _Parallel.DEDICATED
    ship_data: bool = False
    servers: int = 0
    tree_param: TreeSpec = TreeSpec()
    fault_param: FaultSpec = FaultSpec()
    auto: bool = False
    compression_param: CompressionSpec = CompressionSpec()
    local_param: LocalSpec = LocalSpec()

    @property
    def replica_ranks(self) -> int:
        """The number of ranks that hold one net together."""
        return self.num_stages * self.num_shards

    @property
    def is_delayed(self) -> bool:
        """Whether gradients are of earlier iterations, so that losses and weights differ from one process's."""
        return self.num_stages > 1 and self.pipeline_param.schedule == _Pipeline.DELAYED

    @property
    def node_ranks(self) -> int:
        """The number of ranks of a computing node of the outer layer."""
        return self.agwu_param.ranks or self.replica_ranks

    @property
    def gradient_exchange(self) -> int:
        """The exchange of ranks in step: all ranks or, under the outer layer, those of each worker."""
        return self.agwu_param.worker_exchange if self.exchange in OUTER else self.exchange


@dataclass(frozen=True)
class RunPlan:
    """A resolved run: the nets to train and test, how and on which ranks, and what is written.

    Attributes:
        nets: the fields that name the nets; ``train`` and ``tests`` are what they name.
        optim: how weights follow from gradients.
        asked_precision: the text's ``precision``; ``None``: the net's text says; see ``precision``.
        path: of the solver's text; "": the plan was made in memory.
        origins: where each field of the text stands.
        set_fields: the fields that the text or a flag sets.
        notes: for the log: what was changed in the text as it was read.
        text: all of it, as the log shows it.
        shared_text: without what may differ from host to host: where files lie, and which device computes.
    """

    nets: NetFields = NetFields()  # noqa: RUF009  frozen
    test_iter: tuple[int, ...] = ()
    test_interval: int = 0
    test_compute_loss: bool = False
    test_initialization: bool = True
    eval_type: str = "classification"
    ap_version: str = "Integral"
    show_per_class_result: bool = False
    optim: OptimSpec = OptimSpec()  # noqa: RUF009
    display: int = 0
    average_loss: int = 1
    snapshot: int = 0
    snapshot_prefix: str = ""
    snapshot_diff: bool = False
    snapshot_format: int = pb.SolverParameter.BINARYPROTO
    snapshot_after_train: bool = True
    on_nan: int = pb.SolverParameter.STOP
    snapshot_best: str = ""
    max_snapshots: int = 0
    early_stopping_param: EarlyStoppingSpec = EarlyStoppingSpec()
    weights: tuple[str, ...] = ()
    random_seed: int = -1
    debug_info: bool = False
    solver_mode: int = pb.SolverParameter.GPU
    device_id: int = 0
    engine: int = pb.SolverParameter.AUTO
    asked_precision: Precision | None = None
    parallel_param: ParallelSpec = ParallelSpec()
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
            PrototxtError: its text is wrong, or missing.
        """
        return train_plan(self)

    @cached_property
    def tests(self) -> tuple[NetPlan, ...]:
        """The nets to test; their files are read on first use."""
        return test_plans(self)

    @cached_property
    def precision(self) -> Precision:
        """The precision of the run's numbers, where the devices support it.

        Raises:
            PrototxtError: see ``train``.
        """
        return self.asked_precision or precision_of_net(self.train.source.param)

    @property
    def max_iter(self) -> int:
        """The number of iterations to train; from ``optim``, since a learning rate may depend on it."""
        return self.optim.max_iter

    @property
    def is_outer(self) -> bool:
        """Whether ranks do not go in step: SGWU, AGWU or ASGD."""
        return self.parallel_param.exchange in OUTER

    def origin(self, *where: str | int) -> Origin:
        """Return where the field ``where`` stands or, if it is not set, what is nearest around it."""
        return locate(self.origins, where, self.path)

    def given(self, *where: str) -> bool:
        """Return whether the text, or a flag, sets the field ``where``; a message counts as soon as it is there."""
        return where in self.set_fields

    @property
    def stops_early(self) -> bool:
        """Whether training ends when tests do not improve."""
        return self.given("early_stopping_param")

    @property
    def judged_by(self) -> str:
        """The test output whose best value decides; "" if there is none."""
        return (self.early_stopping_param.output if self.stops_early else "") or self.snapshot_best

    # Variants

    def training_only(self) -> RunPlan:
        """Return the plan without tests and snapshots, which may need missing data or folders."""
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
        """Return the plan for measurements: nothing is tested, written, displayed or loaded."""
        return replace(self.training_only(), display=0, weights=())

    def standalone(self) -> RunPlan:
        """Return the plan for a single process; of ``parallel_param`` only the inner layer stays."""
        return self._spread(ParallelSpec(inner_param=self.parallel_param.inner_param), "inner_param")

    def of_node(self) -> RunPlan:
        """Return the plan for the ranks of one computing node of the outer layer, which go in step."""
        parallel = self.parallel_param
        if parallel.node_ranks == 1:
            return self.standalone()
        kept = ["num_stages", "num_shards", "inner_param"]
        kept += ["pipeline_param"] * (parallel.num_stages > 1) + ["fc_param"] * (parallel.num_shards > 1)
        if parallel.node_ranks > parallel.num_stages:  # a batch is divided, and gradients are summed
            kept += ["cgdp_param", "tree_param", "compression_param", "sync_batch_norm"]
        fields = {name: getattr(parallel, name) for name in kept}
        fault = replace(parallel.fault_param, on_loss=pb.FaultParameter.STOP)  # the run goes on without this node
        return self._spread(ParallelSpec(exchange=parallel.gradient_exchange, fault_param=fault, **fields), *kept)

    def with_seed(self, seed: int) -> RunPlan:
        """Return the plan with this ``random_seed``."""
        return replace(self, random_seed=seed)

    def with_parallel(self, **changes: object) -> RunPlan:
        """Return the plan with other values of fields of ``parallel_param``."""
        return replace(self, parallel_param=replace(self.parallel_param, **changes))  # type: ignore[arg-type]

    def with_pipeline(self, **changes: object) -> RunPlan:
        """Return the plan with other values of fields of ``pipeline_param``."""
        return self.with_parallel(pipeline_param=replace(self.parallel_param.pipeline_param, **changes))  # type: ignore[arg-type]

    def _spread(self, parallel: ParallelSpec, *kept: str) -> RunPlan:
        """Return the plan with this ``parallel_param``, of which the text sets at most the fields ``kept``."""
        ours = {way for way in self.set_fields if way[0] != "parallel_param" or (len(way) > 1 and way[1] in kept)}
        return replace(self, parallel_param=parallel, set_fields=frozenset(ours))
