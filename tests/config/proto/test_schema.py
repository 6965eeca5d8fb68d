"""The schema is Caffe's, number by number, and the compiled files belong to it."""

from __future__ import annotations

import csv
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

import bpt.config.proto
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.compile import SCHEMAS, compile_schema
from bpt.config.proto.fields import is_message, is_own, is_repeated

SCHEMA = Path(__file__).with_name("caffe_schema.tsv")
ROWS = list(csv.DictReader(SCHEMA.read_text().splitlines(), delimiter="\t"))
# Fields of Caffe's forks: as the forks have them; their numbers, too, where nobody else has these.
FORKS = list(csv.DictReader(SCHEMA.with_name("forks_schema.tsv").read_text().splitlines(), delimiter="\t"))
OWN_MESSAGES = {
    "DataPosition",
    "AugmentParameter",
    "CosineParameter",
    "OneCycleParameter",
    "AverageParameter",
    "EarlyStoppingParameter",
    "ParallelParameter",
    "Precision",
    "CgdpParameter",
    "TreeParameter",
    "FaultParameter",
    "CompressionParameter",
    "LocalParameter",
    "OuterParameter",
    "ReplicaParameter",
    "ExchangeMemory",
    "AgwuParameter",
    "BalanceParameter",
    "BatchParameter",
    "FcParameter",
    "PipelineParameter",
    "GabraParameter",
    "AttentionParameter",
    "VolumeDataParameter",
    "InnerParameter",
    "ClusterParameter",
    "NodeParameter",
    "CodingParameter",
    "SpeedChange",
    "ServerParameter",
    "LinkParameter",
    "WithinParameter",
    "LayerParallelParameter",
    "ImagePreprocessing",
}
TYPE_NAMES = {
    getattr(FieldDescriptor, f"TYPE_{name.upper()}"): name
    for name in ("int32", "int64", "uint32", "uint64", "float", "double", "bool", "string", "bytes")
}


def owner_of(field: FieldDescriptor) -> str:
    assert field.containing_type is not None
    return field.containing_type.name


def all_messages() -> dict[str, Descriptor]:
    return dict(pb.DESCRIPTOR.message_types_by_name)


def all_enums() -> dict[str, EnumDescriptor]:
    enums = dict(pb.DESCRIPTOR.enum_types_by_name)
    for message in all_messages().values():
        enums |= {f"{message.name}.{enum.name}": enum for enum in message.enum_types}
    return enums


def short_name(full_name: str) -> str:
    return full_name.removeprefix("bpt.")


def as_row(field: FieldDescriptor) -> dict[str, str]:
    """The row of the table that describes ``field``."""
    if field.enum_type is not None:
        type_name = short_name(field.enum_type.full_name)
    elif field.message_type is not None:
        type_name = short_name(field.message_type.full_name)
    else:
        type_name = TYPE_NAMES[field.type]
    required = field.name in getattr(pb, owner_of(field))().FindInitializationErrors()
    return {
        "kind": "field",
        "scope": owner_of(field),
        "name": field.name,
        "number": str(field.number),
        "label": "repeated" if is_repeated(field) else "required" if required else "optional",
        "type": type_name,
        "default": default_of(field),
        "packed": "packed" if field.GetOptions().packed else "",
    }


def default_of(field: FieldDescriptor) -> str:
    if not field.has_default_value or is_message(field):
        return ""
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[field.default_value].name)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return str(field.default_value).lower()
    if field.type == FieldDescriptor.TYPE_FLOAT:
        return f"{field.default_value:.6g}"
    return str(field.default_value)


def test_every_caffe_field_is_as_in_caffe() -> None:
    fields = {(message.name, field.name): field for message in all_messages().values() for field in message.fields}
    for row in ROWS:
        if row["kind"] == "field":
            assert as_row(fields[row["scope"], row["name"]]) == row


def test_every_caffe_enum_is_as_in_caffe() -> None:
    expected: dict[str, dict[str, int]] = {}
    for row in ROWS:
        if row["kind"] == "enum":
            expected.setdefault(row["scope"], {})[row["name"]] = int(row["number"])
    enums = {name: {value.name: value.number for value in enum.values} for name, enum in all_enums().items()}
    of_caffe = {name: {value: enums[name][value] for value in expected[name]} for name in expected}
    assert of_caffe == expected
    others = {name: {value: enums[name][value] for value in enums[name].keys() - expected[name]} for name in expected}
    engines = {name: MKL for name in expected if name.endswith("Engine")}
    assert {name: values for name, values in others.items() if values} == engines | {
        "LossParameter.NormalizationMode": {"PRE_FIXED": 1000},  # Intel's 3 is BVLC's NONE
        "V1LayerParameter.LayerType": {"BN": 43, "UNPOOLING": 44},
    }


MKL = {"MKL2017": 3, "MKLDNN": 4}
"""What Intel's Caffe adds to all engines."""


def own_fields() -> Iterator[FieldDescriptor]:
    known = {(row["scope"], row["name"]) for row in ROWS}
    for message in all_messages().values():
        if message.name not in OWN_MESSAGES:
            yield from (field for field in message.fields if (message.name, field.name) not in known)


def test_own_fields_leave_caffe_numbers_free() -> None:
    of_forks = {(row["scope"], row["name"]) for row in FORKS}
    own = [field for field in own_fields() if (owner_of(field), field.name) not in of_forks]
    assert {f"{owner_of(field)}.{field.name}": field.number for field in own} == {
        "SolverParameter.parallel_param": 1000,
        "SolverParameter.engine": 1001,
        "SolverParameter.precision": 1002,
        "SolverParameter.on_nan": 1003,
        "SolverParameter.cosine_param": 1020,
        "SolverParameter.onecycle_param": 1021,
        "SolverParameter.average_param": 1022,
        "SolverParameter.early_stopping_param": 1023,
        "SolverParameter.snapshot_best": 1024,
        "SolverParameter.max_snapshots": 1025,
        "LayerParameter.parallel_param": 1000,
        "LayerParameter.attention_param": 1001,
        "LayerParameter.volume_data_param": 1002,
        "TransformationParameter.num_workers": 1000,
        "TransformationParameter.augment_param": 1001,
        "DataParameter.shuffle": 1000,
        "BatchNormParameter.sync": 1000,
        "ImageDataParameter.on_error": 1040,
        "SolverState.data_position": 1000,
        "SolverState.engine": 1001,
        "SolverState.loss_history": 1002,
        "SolverState.random_seed": 1003,
        "SolverState.solver_type": 1004,
        "SolverState.inner": 1005,
        "SolverState.half_layers": 1006,
        "SolverState.loss_scale": 1007,
        "SolverState.finite_iterations": 1008,
        "HDF5DataParameter.allow_external": 1000,
        "SolverState.run": 1009,
        "SolverState.written": 1010,
        "SolverState.weights_digest": 1011,
        "SolverState.checksum": 1012,
        "SolverState.shares": 1013,
        "SolverState.averaged": 1014,
        "SolverState.best_score": 1015,
        "SolverState.best_iter": 1016,
        "SolverState.last_test": 1017,
        "SolverState.tests_since_best": 1018,
        "SolverState.chosen": 1019,
        "SolverState.ranks": 1020,
        "SolverState.exchange_memory": 1021,
        "SolverState.exchange_ranks": 1022,
        "SolverState.algorithms": 1023,
        "SolverState.noise": 1030,
    }
    known = {row["scope"] for row in (*ROWS, *FORKS) if row.get("kind") != "enum"}
    assert set(all_messages()) == OWN_MESSAGES | known


def test_every_field_of_a_fork_is_as_in_the_fork() -> None:
    fields = {(message.name, field.name): field for message in all_messages().values() for field in message.fields}
    for row in FORKS:
        described = as_row(fields[row["scope"], row["name"]])
        assert {name: described[name] for name in row} == row


# Messages that a fork has added: Caffe reads past the field that holds them.
OF_FORKS = {row["scope"] for row in FORKS} - {row["scope"] for row in ROWS}


def test_is_own_tells_own_fields_from_caffes() -> None:
    own = {field.full_name for field in own_fields()}
    for message in all_messages().values():
        if message.name not in OF_FORKS | {"V1LayerParameter"}:  # no text is written in the old format
            for field in message.fields:
                assert is_own(field) == (field.full_name in own)


def test_no_message_contains_itself() -> None:
    """The parser recurses as deep as the schema, so the schema must have a bottom."""

    def depth(message: Descriptor, above: tuple[str, ...]) -> int:
        assert message.name not in above
        below = (field.message_type for field in message.fields if field.message_type is not None)
        return 1 + max((depth(child, (*above, message.name)) for child in below), default=0)

    assert max(depth(message, ()) for message in all_messages().values()) < 10


@pytest.mark.parametrize("schema", SCHEMAS)
def test_compiled_schema_is_up_to_date(schema: str) -> None:
    """If this fails, run ``make proto``."""
    (descriptor,) = (path for path in compile_schema(schema) if path.suffix == ".desc")
    fresh = FileDescriptorSet.FromString(compile_schema(schema)[descriptor])
    assert fresh == FileDescriptorSet.FromString(descriptor.read_bytes())


def test_schema_is_installed_with_the_package() -> None:
    folder = Path(bpt.config.proto.__file__).parent
    assert {"bpt.proto", "bpt.desc", "bpt_pb2.pyi"} <= {file.name for file in folder.iterdir()}


def test_module_looks_like_a_generated_one() -> None:
    assert (pb.TRAIN, pb.TEST) == (0, 1)
    assert pb.Phase.Name(1) == "TEST"
    assert pb.PoolingParameter.AVE == 1
    assert pb.SolverParameter.Engine.items() == [("AUTO", 0), ("CONTIGUOUS", 1), ("CHANNELS_LAST", 2)]
    assert pb.LayerParameter.__module__ == "bpt.config.proto.bpt_pb2"
    solver = pb.SolverParameter(net="a.prototxt", parallel_param={"exchange": "CGDP"})
    assert pickle.loads(pickle.dumps(solver)) == solver


@pytest.mark.parametrize("field", ["num_stages", "num_shards"])
def test_parallel_defaults_are_one_process(field: str) -> None:
    assert getattr(pb.ParallelParameter(), field) == 1
