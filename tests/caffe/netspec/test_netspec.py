"""NetSpec against what pycaffe's NetSpec makes of the same lines, written out by hand."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from bpt.base.errors import UserError
from bpt.caffe.netspec import Function, L, NetSpec, P, to_proto
from bpt.config.proto import bpt_pb2 as pb


def text(expected: str) -> pb.NetParameter:
    return text_format.Parse(expected, pb.NetParameter())


def names(net: pb.NetParameter) -> list[tuple[str, list[str], list[str]]]:
    return [(layer.name, list(layer.bottom), list(layer.top)) for layer in net.layer]


class TestNames:
    def test_a_layer_is_called_like_its_top(self) -> None:
        n = NetSpec()
        n.data, n.label = L.DummyData(shape=[{"dim": [2, 3]}, {"dim": [2]}], ntop=2)
        n.ip = L.InnerProduct(n.data, num_output=5)
        n.loss = L.SoftmaxWithLoss(n.ip, n.label)
        assert names(n.to_proto()) == [
            ("data", [], ["data", "label"]),
            ("ip", ["data"], ["ip"]),
            ("loss", ["ip", "label"], ["loss"]),
        ]

    def test_a_layer_in_place_keeps_the_name_of_its_blob(self) -> None:
        n = NetSpec()
        n.data = L.Input(shape={"dim": [1, 3]})
        n.ip = L.InnerProduct(n.data, num_output=5)
        n.relu = L.ReLU(n.ip, in_place=True)
        n.drop = L.Dropout(n.relu, in_place=True)
        n.out = L.Softmax(n.drop)
        assert names(n.to_proto())[2:] == [("relu", ["ip"], ["ip"]), ("drop", ["ip"], ["ip"]), ("out", ["ip"], ["out"])]

    def test_blobs_without_a_name_are_numbered_by_type(self) -> None:
        n = NetSpec()
        hidden = L.InnerProduct(L.ReLU(L.InnerProduct(L.Input(), num_output=4), in_place=True), num_output=3)
        n.prob = L.Softmax(hidden)
        assert names(n.to_proto()) == [
            ("Input1", [], ["Input1"]),
            ("InnerProduct1", ["Input1"], ["InnerProduct1"]),
            ("ReLU1", ["InnerProduct1"], ["InnerProduct1"]),
            ("InnerProduct2", ["InnerProduct1"], ["InnerProduct2"]),
            ("prob", ["InnerProduct2"], ["prob"]),
        ]

    def test_every_top_without_a_name_gets_a_number(self) -> None:
        first, second = L.Slice(L.Input(), ntop=2)
        n = NetSpec()
        n.sum = L.Eltwise(first, second)
        assert names(n.to_proto())[1:] == [
            ("Slice1", ["Input1"], ["Slice1", "Slice2"]),
            ("sum", ["Slice1", "Slice2"], ["sum"]),
        ]

    def test_a_layer_without_tops(self) -> None:
        n = NetSpec()
        n.data = L.Input()
        n.hush = L.Silence(n.data, ntop=0)
        assert names(n.to_proto()) == [("data", [], ["data"]), ("hush", ["data"], [])]

    def test_layer_and_tops_may_be_named_by_hand(self) -> None:
        """The way to write the data layers of both phases, which make the same blobs, into one net."""
        n = NetSpec()
        n.data = L.DummyData(name="source", include={"phase": P.Phase.TRAIN})
        n.test = L.DummyData(name="source", include={"phase": P.Phase.TEST}, ntop=0, top=["data"])
        assert names(n.to_proto()) == [("source", [], ["data"]), ("source", [], ["data"])]

    def test_names_that_are_no_words(self) -> None:
        n = NetSpec()
        n["a/1x1"] = L.Input()
        n["a/relu"] = L.ReLU(n["a/1x1"])
        assert names(n.to_proto()) == [("a/1x1", [], ["a/1x1"]), ("a/relu", ["a/1x1"], ["a/relu"])]

    def test_to_proto_of_tops(self) -> None:
        top = L.Softmax(L.Input())
        assert names(to_proto(top)) == [("Input1", [], ["Input1"]), ("Softmax1", ["Input1"], ["Softmax1"])]


class TestOrder:
    def test_layers_stand_in_the_order_of_assignment_each_after_its_inputs(self) -> None:
        n = NetSpec()
        data = L.Input()
        first, second = L.ReLU(data), L.TanH(data)
        n.both = L.Concat(second, first)
        n.late = L.Sigmoid(first)
        n.data = data
        assert [layer.name for layer in n.to_proto().layer] == ["data", "TanH1", "ReLU1", "both", "late"]

    def test_what_nobody_needs_is_left_out(self) -> None:
        n = NetSpec()
        n.data = L.Input()
        L.ReLU(n.data)
        assert [layer.name for layer in n.to_proto().layer] == ["data"]

    def test_a_deleted_name_takes_its_layer_along(self) -> None:
        n = NetSpec()
        n.data = L.Input()
        n.relu, n.tanh = L.ReLU(n.data), L.TanH(n.data)
        del n.relu
        assert list(n) == ["data", "tanh"]
        assert [layer.name for layer in n.to_proto().layer] == ["data", "tanh"]

    def test_a_chain_of_any_length(self) -> None:
        top = L.Input()
        for _ in range(5000):
            top = L.ReLU(top)
        assert len(to_proto(top).layer) == 5001


class TestSettings:
    def test_fields_of_the_type_and_of_the_layer(self) -> None:
        n = NetSpec()
        n.data = L.Input(shape={"dim": [1, 3, 8, 8]})
        n.conv = L.Convolution(
            n.data,
            kernel_size=5,
            num_output=20,
            weight_filler={"type": "xavier"},
            param=[{"lr_mult": 1}, {"lr_mult": 2}],
            include={"phase": P.Phase.TEST},
            loss_weight=0.5,
        )
        n.pool = L.Pooling(n.conv, pool=P.Pooling.AVE, kernel_size=2, stride=2)
        assert n.to_proto() == text("""
            layer { name: "data" type: "Input" top: "data"
                    input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }
            layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
                    param { lr_mult: 1 } param { lr_mult: 2 } include { phase: TEST } loss_weight: 0.5
                    convolution_param { num_output: 20 kernel_size: 5 weight_filler { type: "xavier" } } }
            layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool"
                    pooling_param { pool: AVE kernel_size: 2 stride: 2 } }
        """)

    def test_a_whole_message(self) -> None:
        top = L.Data(transform_param={"scale": 2, "mean_value": (1, 2)}, data_param={"source": "db", "backend": "LMDB"})
        assert to_proto(top) == text("""
            layer { name: "Data1" type: "Data" top: "Data1" transform_param { scale: 2 mean_value: 1 mean_value: 2 }
                    data_param { source: "db" backend: LMDB } }
        """)

    def test_an_empty_message_is_there(self) -> None:
        assert to_proto(L.Softmax(L.Input(), softmax_param={})).layer[1].HasField("softmax_param")

    @pytest.mark.parametrize(
        ("type_name", "setting", "where"),
        [
            ("InnerProduct", {"num_output": 3}, "inner_product_param { num_output: 3 }"),
            ("BatchNorm", {"eps": 0.5}, "batch_norm_param { eps: 0.5 }"),
            ("LRN", {"local_size": 3}, "lrn_param { local_size: 3 }"),
            ("PReLU", {"channel_shared": True}, "prelu_param { channel_shared: true }"),
            ("HDF5Data", {"source": "list"}, 'hdf5_data_param { source: "list" }'),
            ("Deconvolution", {"num_output": 3}, "convolution_param { num_output: 3 }"),
            ("LSTM", {"num_output": 3}, "recurrent_param { num_output: 3 }"),
            ("SoftmaxWithLoss", {"ignore_label": 3}, "loss_param { ignore_label: 3 }"),
        ],
    )
    def test_the_message_of_a_type(self, type_name: str, setting: dict[str, object], where: str) -> None:
        expected = text(f'layer {{ name: "{type_name}1" type: "{type_name}" top: "{type_name}1" {where} }}')
        assert to_proto(Function(type_name, (), 1, False, setting).tops[0]) == expected

    def test_enum_values(self) -> None:
        assert (P.Pooling.MAX, P.Pooling.AVE, P.Eltwise.SUM, P.Data.LMDB, P.LRN.WITHIN_CHANNEL) == (0, 1, 1, 1, 1)
        assert (P.Phase.TRAIN, P.Phase.TEST, P.ParamSpec.PERMISSIVE) == (0, 1, 1)


class TestMistakes:
    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: L.Convolutoin, 'unknown layer type "Convolutoin"; did you mean "Convolution"?'),
            (
                lambda: L.Convolution(kernel_sise=5),
                'L.Convolution: unknown setting "kernel_sise"; did you mean "kernel_size"?',
            ),
            (
                lambda: L.Dropout(zzz=5),
                'L.Dropout: unknown setting "zzz" (dropout_param has dropout_ratio, sample_weights_test, scale_train)',
            ),
            (
                lambda: L.Convolution(weight_filler={"typ": "msra"}),
                'L.Convolution: weight_filler: FillerParameter has no field "typ"; did you mean "type"?',
            ),
            (
                lambda: L.Convolution(weight_filler="msra"),
                "L.Convolution: weight_filler takes a dict of the fields of FillerParameter, given 'msra'",
            ),
            (
                lambda: L.Pooling(pool="MAXX"),
                "L.Pooling: pool takes one of MAX, AVE, STOCHASTIC, given 'MAXX'; did you mean \"MAX\"?",
            ),
            (lambda: P.Pooling.MAXX, 'P.Pooling has no value "MAXX"; did you mean "MAX"?'),
            (lambda: P.Poolin, 'no message of the schema called "Poolin" has enum values; did you mean "Pooling"?'),
            (lambda: L.ReLU(L.Slice(L.Input(), ntop=2)), "ReLU input 0 is not a Top (type is <class 'tuple'>)"),
            (lambda: L.ReLU("data"), "ReLU input 0 is not a Top (type is <class 'str'>)"),
            (lambda: L.ReLU(in_place=True), "L.ReLU: in_place needs a bottom to work in"),
            (
                lambda: setattr(NetSpec(), "data", L.Input(ntop=2)),
                '"data" must be what a layer of L returns, not a tuple; it takes 2 names',
            ),
        ],
    )
    def test_message(self, make: object, message: str) -> None:
        assert callable(make)
        with pytest.raises(UserError) as caught:
            make()
        assert str(caught.value) == message

    @pytest.mark.parametrize("value", ["5", 5.5, -1, None])
    def test_a_value_of_the_wrong_type(self, value: object) -> None:
        with pytest.raises(UserError, match=r"^L\.InnerProduct: num_output does not take "):
            L.InnerProduct(num_output=value)

    def test_an_element_of_the_wrong_type(self) -> None:
        with pytest.raises(UserError, match=r"^L\.Convolution: kernel_size does not take 'b'"):
            L.Convolution(kernel_size=[3, "b"])

    def test_an_unknown_top(self) -> None:
        n = NetSpec()
        n.conv1 = L.Input()
        with pytest.raises(AttributeError, match='the net has no top "conv"; did you mean "conv1"'):
            _ = n.conv
