"""Text format in: what is accepted, what it means, where it stands, and what is said about mistakes."""

from __future__ import annotations

import math
import random
import re
import string
from pathlib import Path

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.base.errors import PrototxtError
from bpt.base.origin import Origin
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.parse import parse_text
from bpt.config.proto.text import to_text
from tests.config.proto.messages import messages
from tests.support.paths import GOLDEN

FILES = sorted(GOLDEN.glob("**/*.prototxt"))


def net(text: str) -> pb.NetParameter:
    return parse_text(text, pb.NetParameter).message


def solver(text: str) -> pb.SolverParameter:
    return parse_text(text, pb.SolverParameter).message


def layer(text: str) -> pb.LayerParameter:
    return parse_text(text, pb.LayerParameter).message


def complaint(text: str) -> str | None:
    """What is said about ``text`` as a net; None if it can be read. Any other exception is a bug."""
    try:
        net(text)
    except PrototxtError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    "text",
    [
        'layer { name: "a" type: "b" }',
        'layer: { name: "a" type: "b" }',
        'layer < name: "a" type: "b" >',
        'layer: < name: "a"; type: "b"; >,',
        "layer{name:'a'type:'b'}",
        'layer: [{ name: "a", type: "b" }]',
        '# first\nlayer # {\n{ name: "a" # }\r\n\ttype: "b" }#end',
        'layer { name: "" "a" type: \'b\' "" }',
        '\vlayer\f{ name: "\\x61" type: "\\142" }',
    ],
)
def test_layouts_that_mean_the_same(text: str) -> None:
    assert net(text) == pb.NetParameter(layer=[{"name": "a", "type": "b"}])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("-.5", -0.5),
        ("- 2", -2.0),
        ("1e-3", 0.001),
        ("1.5E+2", 150.0),
        ("1f", 1.0),
        ("1.5F", 1.5),
        ("0", 0.0),
        ("0.1", 0.1),
        ("inf", math.inf),
        ("-Infinity", -math.inf),
        ("1e99", math.inf),
    ],
)
def test_floats(text: str, value: float) -> None:
    assert solver(f"base_lr: {text}") == pb.SolverParameter(base_lr=value)


def test_nan() -> None:
    assert math.isnan(solver("base_lr: nan").base_lr)


@pytest.mark.parametrize(
    ("text", "value"), [("12", 12), ("-3", -3), ("0x1F", 31), ("-0XfF", -255), ("017", 15), ("0", 0)]
)
def test_integers(text: str, value: int) -> None:
    assert solver(f"max_iter: {text}").max_iter == value


@pytest.mark.parametrize(("text", "value"), [(w, True) for w in ("true", "True", "t", "1", "0x1")])
def test_true(text: str, value: bool) -> None:
    assert solver(f"debug_info: {text}").debug_info is value


@pytest.mark.parametrize("text", ["false", "False", "f", "0", "00"])
def test_false(text: str) -> None:
    assert solver(f"debug_info: {text}").debug_info is False


def test_enum_by_name_and_by_number() -> None:
    assert layer("phase: TEST").phase == pb.TEST
    assert layer("phase: 1").phase == pb.TEST


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"a\n\t\"\'\\\?"', "a\n\t\"'\\?"),
        (r'"\303\251\xC3\xa9\u00e9\U0001F600"', "ééé\U0001f600"),
        ('"é # no comment"', "é # no comment"),
        ("'it''s'", "its"),
        ('""', ""),
    ],
)
def test_strings(text: str, value: str) -> None:
    assert layer(f"name: {text}").name == value


def test_bytes() -> None:
    assert parse_text(r'data: "\000\377\x41"', pb.Datum).message.data == b"\x00\xffA"


def test_lists() -> None:
    parsed = parse_text("test_iter: [1, 2]\ntest_iter: 3 stepvalue: []", pb.SolverParameter)
    assert list(parsed.message.test_iter) == [1, 2, 3]
    assert [parsed.origins["test_iter", i] for i in range(3)] == [
        Origin("<string>", 1, 13),
        Origin("<string>", 1, 16),
        Origin("<string>", 2, 1),
    ]
    assert parsed.origins["stepvalue",] == Origin("<string>", 2, 14)
    assert not parsed.message.stepvalue


def test_empty_message_is_present() -> None:
    assert layer("convolution_param {}").HasField("convolution_param")
    assert net("") == pb.NetParameter()


def test_origins() -> None:
    text = 'name: "n"\n\nlayer {\n  name: "a" # é\n  convolution_param { pad: 1 pad: 2\n\tgroup: 3 }\n}\nlayer {}'
    parsed = parse_text(text, pb.NetParameter, "dir/n.prototxt")
    assert parsed.path == "dir/n.prototxt"
    assert {where: (origin.line, origin.column) for where, origin in parsed.origins.items()} == {
        ("name",): (1, 1),
        ("layer",): (3, 1),
        ("layer", 0): (3, 1),
        ("layer", 0, "name"): (4, 3),
        ("layer", 0, "convolution_param"): (5, 3),
        ("layer", 0, "convolution_param", "pad"): (5, 23),
        ("layer", 0, "convolution_param", "pad", 0): (5, 23),
        ("layer", 0, "convolution_param", "pad", 1): (5, 30),
        ("layer", 0, "convolution_param", "group"): (6, 2),
        ("layer", 1): (8, 1),
    }
    assert str(parsed.origin("layer", 0, "name")) == "dir/n.prototxt:4:3"
    assert str(parsed.origin("layer", 0, "type")) == "dir/n.prototxt:3:1"
    assert str(parsed.origin("state", "phase")) == "dir/n.prototxt:1:1"


NET_MISTAKES = {
    # unknown names
    "layer {\n  inner_product_param { num_outputs: 3 } }": (
        '2:25: InnerProductParameter has no field "num_outputs"; did you mean "num_output"?'
    ),
    "xyzzy: 3": '1:1: NetParameter has no field "xyzzy"',
    "layer { pooling_param { pool: MEDIAN } }": '1:31: "pool" takes one of MAX, AVE, STOCHASTIC, found: MEDIAN',
    "layer { pooling_param { pool: AVG } }": (
        '1:31: "pool" takes one of MAX, AVE, STOCHASTIC, found: AVG; did you mean "AVE"?'
    ),
    'layer { pooling_param { pool: "MAX" } }': (
        '1:31: "pool" takes one of MAX, AVE, STOCHASTIC, found: "MAX"; write MAX without quotes'
    ),
    "layer { pooling_param { pool: 7 } }": '1:31: "pool" takes one of MAX, AVE, STOCHASTIC, found: 7',
    'layers { type: "Convolution" }': (
        '1:16: "type" takes a value of V1LayerParameter.LayerType, found: "Convolution"; in "layers", the old format, '
        'it is CONVOLUTION; today\'s format is "layer"'
    ),
    'layers { type: "Convoluton" }': (
        '1:16: "type" takes a value of V1LayerParameter.LayerType, found: "Convoluton"; '
        "write CONVOLUTION without quotes"
    ),
    "layer { type: SOFTMAX_LOSS }": (
        '1:15: "type" takes text in quotes, found: SOFTMAX_LOSS; write "SoftmaxWithLoss", or, for the old format, '
        '"layers" instead of "layer"'
    ),
    "layers { param { lr_mult: 1 } }": (
        '1:16: expected ":" after "param", found: {; in "layers", the old format, lr_mult and decay_mult are blobs_lr '
        'and weight_decay; write "layer" for param { … }'
    ),
    "layers { param 3 }": '1:16: expected ":" after "param", found: 3',
    "layer { blobs_lr: 1 }": (
        '1:9: LayerParameter has no field "blobs_lr"; it is of the old format, "layers"; in "layer" write '
        "param { lr_mult }"
    ),
    # wrong values
    "layer { type: Convolution }": '1:15: "type" takes text in quotes, found: Convolution',
    'layer { loss_weight: "1" }': '1:22: "loss_weight" takes a number, found: "1"',
    "layer { loss_weight: 1x }": '1:22: "loss_weight" takes a number, found: 1x',
    "layer { loss_weight: 010 }": '1:22: "loss_weight" takes a number without leading zeros, found: 010',
    "layer { loss_weight: 0x10 }": '1:22: "loss_weight" takes a number, found: 0x10',
    "layer { loss_weight: - }": '1:22: "loss_weight" takes a number, found: -}',
    "layer { convolution_param { pad: 1.0 } }": '1:34: "pad" takes a whole number, found: 1.0',
    "layer { convolution_param { pad: 08 } }": '1:34: "pad" takes a whole number, found: 08',
    "layer { convolution_param { pad: -1 } }": ('1:34: "pad" takes a whole number from 0 to 4294967295, found: -1'),
    "layer { convolution_param { axis: 2147483648 } }": (
        '1:35: "axis" takes a whole number from -2147483648 to 2147483647, found: 2147483648'
    ),
    "force_backward: yes": '1:17: "force_backward" takes true or false, found: yes',
    "force_backward: 2": '1:17: "force_backward" takes true or false, found: 2',
    "force_backward: -1": '1:17: "force_backward" takes true or false, found: -1',
    r'name: "C:\data"': (
        r'1:7: "name" takes text without the unknown escape \d, found: "C:\data"; write a backslash as \\'
    ),
    r'name: "\400"': r'1:7: "name" takes text without the unknown escape \400, found: "\400"; write a backslash as \\',
    r'name: "\udc00"': (
        r'1:7: "name" takes text without the unknown escape \udc00, found: "\udc00"; write a backslash as \\'
    ),
    r'name: "\377"': r'1:7: "name" takes text in UTF-8, found: "\377"',
    "name: 1 2": '1:7: "name" takes text in quotes, found: 1',
    "name:": '1:6: "name" takes text in quotes, found: the end',
    # given twice
    'name: "a"\nlayer {}\nname: "b"': '3:1: "name" is given twice; first in line 1',
    "state {} state {}": '1:10: "state" is given twice; first in line 1',
    # missing
    "layer {}\nlayer {\n clip_param { min: 1 } }": '3:2: "max" is missing',
    # syntax
    'name "a"': '1:6: expected ":" after "name", found: "a"',
    "layer 3": '1:7: expected "{" after "layer", found: 3',
    "layer": '1:6: expected "{" after "layer", found: the end',
    "layer {\n": ('2:1: expected a field of LayerParameter or the "}" that closes the "{" of line 1, found: the end'),
    'layer { name: "a" >': (
        '1:19: expected a field of LayerParameter or the "}" that closes the "{" of line 1, found: >'
    ),
    "layer {} }": "1:10: expected a field of NetParameter, found: }",
    '3: "a"': "1:1: expected a field of NetParameter, found: 3",
    '[bpt.name]: "a"': "1:1: expected a field of NetParameter, found: [",
    "input_dim: [1, 2": '1:17: expected "," or "]" in the list of "input_dim", found: the end',
    "input_dim: [1 2]": '1:15: expected "," or "]" in the list of "input_dim", found: 2',
    "input_dim: [1,]": '1:15: "input_dim" takes a whole number, found: ]',
    'name: ["a"]': '1:7: "name" takes text in quotes, found: [',
    'name: "a\nb"': """1:7: the text that starts with " does not end on its line""",
    "name: 'a": """1:7: the text that starts with ' does not end on its line""",
    # an equals sign for the colon
    'name = "a b"': '1:6: expected ":" after "name", found: =; write name: "a b"',
    "input_dim == -1": '1:11: expected ":" after "input_dim", found: =; write input_dim: -1',
    "input_dim = [1]": '1:11: expected ":" after "input_dim", found: =; write input_dim: [',
    "layer = {}": '1:7: expected "{" after "layer", found: =; write layer {',
    "layer: = {}": '1:8: expected "{" after "layer", found: =; write layer {',
    "naem = 3": '1:1: NetParameter has no field "naem"; did you mean "name"?',
    "name =": '1:6: expected ":" after "name", found: =; write name:',
    "name = *": '1:6: expected ":" after "name", found: =; write name:',
    "layer = 3": '1:7: expected "{" after "layer", found: =; write layer {',
    "state { phase: TEST = 3 }": (
        '1:21: expected a field of NetState or the "}" that closes the "{" of line 1, found: ='
    ),
    'name: "a" + "b"': "1:11: unexpected character '+'",
    "name: \x01": "1:7: unexpected character '\\x01'",
    "ñame: 3": "1:1: unexpected character 'ñ'",
    "name: \ud800": "1:7: unexpected character '\\ud800'",
    'name: "ab\udce9"': "1:10: byte 0xe9 is not UTF-8; save the file as UTF-8",
}


@pytest.mark.parametrize(("text", "message"), NET_MISTAKES.items())
def test_mistakes_are_named_with_their_place(text: str, message: str) -> None:
    with pytest.raises(PrototxtError) as caught:
        parse_text(text, pb.NetParameter, "n.prototxt")
    assert str(caught.value) == f"n.prototxt:{message}"
    assert caught.value.origin is not None


def test_deep_nesting_is_a_plain_error() -> None:
    with pytest.raises(PrototxtError, match='LayerParameter has no field "layer"'):
        net("layer { " * 100_000)
    with pytest.raises(PrototxtError, match='"input_dim" takes a whole number, found: \\['):
        net("input_dim: " + "[" * 100_000)


def test_messages_within_themselves_are_read_as_deep_as_protobuf_reads_them() -> None:
    def nested(levels: int) -> str:
        return "nested_type {\n" * levels + "}" * levels

    message = parse_text(nested(99), DescriptorProto).message
    assert DescriptorProto.FromString(message.SerializeToString()) == message
    for levels in (100, 100_000):
        with pytest.raises(PrototxtError) as caught:
            parse_text(nested(levels), DescriptorProto, "d.prototxt")
        assert str(caught.value) == "d.prototxt:100:13: messages are nested more than 100 deep"


def test_no_message_of_the_schema_contains_itself() -> None:
    def look(kind: Descriptor, around: tuple[str, ...]) -> None:
        assert kind.full_name not in around
        for field in kind.fields:
            if field.message_type is not None:
                look(field.message_type, (*around, kind.full_name))

    for kind in pb.DESCRIPTOR.message_types_by_name.values():
        look(kind, ())


def test_huge_numbers_are_plain_errors() -> None:
    with pytest.raises(PrototxtError, match="takes a whole number"):
        net("input_dim: " + "9" * 10_000)
    assert math.isinf(solver("base_lr: " + "9" * 10_000).base_lr)


def test_comments_may_hold_bytes_that_are_not_utf8() -> None:
    assert net('# caf\udce9\nname: "a"').name == "a"


def test_partial_text_may_lack_required_fields() -> None:
    parsed = parse_text("clip_param { min: 1 }", pb.LayerParameter, partial=True)
    assert parsed.message.clip_param.min == 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_recorded_files_read_as_protobuf_reads_them(path: Path) -> None:
    text = path.read_text()
    message_class = pb.SolverParameter if "solver" in path.name else pb.NetParameter
    try:
        expected = text_format.Parse(text, message_class())
    except text_format.ParseError:
        with pytest.raises(PrototxtError):
            parse_text(text, message_class)
    else:
        assert parse_text(text, message_class).message == expected


@settings(max_examples=100, deadline=None, derandomize=True)
@given(messages(pb.NetParameter) | messages(pb.SolverParameter) | messages(pb.BlobProto) | messages(pb.Datum))
def test_text_round_trip(message: pb.NetParameter) -> None:
    text = to_text(message)
    assert parse_text(text, type(message)).message == message
    assert parse_text(text_format.MessageToString(message), type(message)).message == message
    assert text_format.Parse(text, type(message)()) == message


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(st.sampled_from(string.printable + "\0é\udcff\\\"'{}[]:")))
def test_any_text_is_read_or_refused(text: str) -> None:
    message = complaint(text)
    assert message is None or re.match(r"<string>:\d+:\d+: ", message)


def test_damaged_files_are_read_or_refused() -> None:
    generator = random.Random(7)
    original = (GOLDEN / "cli" / "inputs" / "lenet_train_test.prototxt").read_text()
    for _ in range(300):
        at = generator.randrange(len(original))
        damaged = original[:at] + generator.choice('{}<>[]:"\\#-0a. ') + original[at + generator.randrange(3) :]
        message = complaint(damaged)
        assert message is None or re.match(r"<string>:\d+:\d+: ", message)
