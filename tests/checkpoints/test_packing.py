"""What goes into a checkpoint comes back, to the last bit; what can't is refused by its place."""

import json
from collections import Counter, OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from saved_states import dense, plain_state, raw, same
from torch import Tensor, nn

from mpisign import registry, seeding, simulate
from mpisign.algorithms import Signum
from mpisign.checkpoints import Folder, copied, load, pack, steps, unpack
from mpisign.checkpoints.safe_file import DTYPES
from mpisign.comm import Comm
from mpisign.errors import CheckpointError
from mpisign.testing import give_gradients, odd_model

SHAPES = st.lists(st.integers(0, 4), max_size=4)
NUMPY = ["?", "<i1", ">i2", "<u8", "<f2", ">f4", "<f8", "<f16", "<c8", ">c16", "<M8[ns]", "<m8[25s]"]


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """A tensor of any dtype and bits, its axes in any order, possibly with gaps."""
    dtype, shape = draw(st.sampled_from(list(DTYPES.values()))), draw(SHAPES)
    seed, top = draw(st.integers(0, 99)), 2 if dtype == torch.bool else 256
    flat = torch.empty(int(np.prod(shape)) * dtype.itemsize, dtype=torch.uint8)
    flat.random_(top, generator=torch.Generator().manual_seed(seed))
    tensor = flat.view(dtype).view(shape).permute(draw(st.permutations(range(len(shape)))))
    return tensor[..., ::2] if tensor.ndim and draw(st.booleans()) else tensor


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """An array of any dtype of numbers or times, and any bits, its axes in any order and direction."""
    dtype, shape = np.dtype(draw(st.sampled_from(NUMPY))), draw(SHAPES)
    seed, top = draw(st.integers(0, 99)), 2 if dtype.kind == "b" else 256
    flat = np.random.default_rng(seed).integers(top, size=int(np.prod(shape)) * dtype.itemsize).astype(np.uint8)
    array = flat.view(dtype).reshape(shape).transpose(draw(st.permutations(range(len(shape)))))
    return array[::-1] if array.ndim and draw(st.booleans()) else array


LEAVES = st.one_of(
    st.none(), st.booleans(), st.floats(), st.text(), st.binary(), st.integers(),
    st.integers(-(2**200), 2**200), tensors(), arrays(), arrays().filter(lambda a: a.size > 0).map(lambda a: a.flat[0]),
)  # fmt: skip
KEYS = st.one_of(st.integers(), st.text(), st.sampled_from([0, "0", "__metadata__", "a/b", "", "\ud800"]))
STATES = st.dictionaries(
    KEYS,
    st.recursive(
        LEAVES,
        lambda inside: st.one_of(
            st.lists(inside, max_size=3), st.tuples(inside, inside), st.dictionaries(KEYS, inside, max_size=3)
        ),
        max_leaves=8,
    ),
)


@given(STATES)
@settings(max_examples=100, deadline=None)
def test_any_state_comes_back_to_the_last_bit(state: dict[Any, Any]) -> None:
    assert same(state, copied(state))
    assert same(state, unpack(*pack(state)))


@given(STATES)
@settings(max_examples=30, deadline=None)
def test_any_state_comes_back_from_a_file(tmp_path_factory: pytest.TempPathFactory, state: dict[Any, Any]) -> None:
    path = tmp_path_factory.mktemp("checkpoints")
    folder = Folder(path, 0, 1)
    folder.save(7, state, {"ümläut": "\ud800"})
    folder.wait()
    loaded, details = load(steps(path)[0], 0)
    assert same(state, loaded)
    assert details == {"ümläut": "\ud800"}


def test_a_comparison_can_fail() -> None:
    state = plain_state()
    for place, other in (
        ("order", state["order"].astype(np.int32)),
        ("where", (*state["where"][:2], -0.0, *state["where"][3:])),
        ("model", {**state["model"], "weight": state["model"]["weight"] + 1e-7}),
        ("state", {"0": state["state"]["0"], 0: state["state"][0]}),
    ):
        assert not same(state, {**state, place: other}), place
    assert not same({"a": torch.zeros(2, 3)}, {"a": torch.zeros(2, 3).double()})
    assert not same({"a": torch.zeros(2, 3).t()}, {"a": torch.zeros(3, 2)})


@pytest.mark.parametrize("name", registry.BUILT_IN["algorithm"])
def test_the_state_of_every_algorithm_after_three_steps_comes_back(name: str) -> None:
    def body(comm: Comm) -> dict[str, Any]:
        model = odd_model()
        optimizer = registry.load("algorithm", name)(model.values(), comm=comm)
        for step in range(3):
            give_gradients(model, comm.rank, step)
            optimizer.step()
        return optimizer.state_dict()

    for state in simulate(3, body):
        assert any(isinstance(value, Tensor) for entry in state["state"].values() for value in entry.values())
        assert same(state, unpack(*pack(copied(state))))


def test_a_run_goes_on_from_a_checkpoint_with_the_same_bits() -> None:
    def body(comm: Comm, resumed: bool) -> list[bytes]:
        model, saved = odd_model(), dict[str, Any]()
        optimizer = Signum(model.values(), momentum=0.9, quarantine=0.1, comm=comm)
        for step in range(6):
            if resumed and step == 3:
                optimizer = Signum(model.values(), momentum=0.9, quarantine=0.1, comm=comm)
                optimizer.load_state_dict(unpack(*pack(copied(saved))))
            give_gradients(model, comm.rank, step)
            optimizer.step()
            saved = optimizer.state_dict()
        return [raw(p) for p in model.values()]

    assert simulate(3, body, False) == simulate(3, body, True)


def test_generators_of_numpy_and_torch_go_on_where_they_were() -> None:
    for kind in (np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64):
        random, again = np.random.Generator(kind(5)), np.random.Generator(kind(6))
        random.normal(size=3)
        again.bit_generator.state = unpack(*pack({"r": random.bit_generator.state}))["r"]
        assert random.normal(size=9).tolist() == again.normal(size=9).tolist()
    drawn, resumed = seeding.torch_generator(0, 0, "a"), seeding.torch_generator(1, 1, "b")
    torch.randn(5, generator=drawn)
    resumed.set_state(unpack(*pack({"r": drawn.get_state()}))["r"])
    assert torch.equal(torch.randn(9, generator=drawn), torch.randn(9, generator=resumed))


def test_a_copy_shares_no_memory_and_keeps_the_order_of_memory() -> None:
    state = {
        "t": torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "a": np.zeros((2, 3), order="F"),
        "l": [1],
    }
    copy = copied(state)
    state["t"] += 1
    state["a"] += 1
    state["l"].append(2)
    assert not copy["t"].any()
    assert not copy["a"].any()
    assert copy["l"] == [1]
    assert dense(copy["t"])
    assert copy["t"].stride() == state["t"].stride()
    assert copy["a"].flags.f_contiguous


def test_a_module_s_state_comes_back_as_a_dict_of_plain_tensors() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    for state in (module.state_dict(), dict(module.named_parameters())):
        for back in (copied(state), unpack(*pack(state))):
            assert type(back) is dict
            assert [type(tensor) for tensor in back.values()] == [Tensor] * len(state)
            assert not any(tensor.requires_grad for tensor in back.values())
            assert all(torch.equal(back[name], state[name]) for name in state)
    assert isinstance(module.state_dict(), OrderedDict)


def test_names_of_tensors_are_paths_and_no_two_are_alike() -> None:
    one = torch.zeros(1)
    state = {"a": {"b": one, 0: one, "0": one}, "a/b": one, "__metadata__": one, "": one, "l": [one, (one,)]}
    assert set(pack(state)[0]) == {"a/b", "a/0", "a/0~2", "a/b~2", "__metadata__~2", "", "l/0", "l/1/0"}


class Odd(int):
    """An int that is more than an int."""


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    "value, words",
    [
        ({1, 2}, r"state\['a'\]\[0\] is a builtins.set"),
        (Counter("aa"), "Counter"),
        (lambda: 0, "function"),
        (np.random.default_rng(0), "Generator"),
        (torch.float32, "dtype"),
        (Odd(3), "Odd"),
        (torch.Size([2]), "Size"),
        ({1.5: 0}, r"a key of state\['a'\]\[0\] is a builtins.float"),
        ({True: 0}, "a key of .* is a builtins.bool"),
        (LOOP, "one in itself"),
    ],
)  # fmt: skip
def test_what_no_file_could_hold_is_refused_by_its_place(value: Any, words: str) -> None:
    for function in (copied, pack):
        with pytest.raises(CheckpointError, match=words):
            function({"a": [value]})


@pytest.mark.parametrize(
    "value, words",
    [
        (torch.zeros(2, dtype=torch.complex128), "complex128"),
        (torch.zeros(2).to_sparse(), "sparse"),
        (torch.zeros(2, device="meta"), "meta"),
        (np.array([{}]), "object"),
        (np.array(["a"]), "<U1"),
        (np.zeros(2, "i4,f8"), "f1"),
        (np.str_("a"), "<U1"),
    ],
)
def test_a_dtype_that_no_file_could_hold_is_refused_by_its_place(value: Any, words: str) -> None:
    with pytest.raises(CheckpointError, match=rf"(?s)state\['a'\]\[0\].*{words}"):
        pack({"a": [value]})


@pytest.mark.parametrize("state", [[1], torch.zeros(1), None, "a"])
def test_a_state_is_a_dict(state: Any) -> None:
    for function in (copied, pack):
        with pytest.raises(CheckpointError, match="state is a"):
            function(state)


def _packed(node: str) -> str:
    return f'{{"mpisign":1,"state":{{"dict":[["a",{node}]]}}}}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "{}",
        '{"mpisign":2,"state":{"dict":[]}}',
        '{"mpisign":1,"state":[]}',
        '{"mpisign":1,"state":{"dict":[]}}',  # leaves the tensor over
        "[" * 100_000,
        _packed('{"tensor":["other"]}'),
        _packed('{"tensor":["t",[0,0]]}'),
        _packed('{"tensor":["t",[1]]}'),
        _packed('{"tensor":["t",7]}'),
        _packed('{"list":[{"tensor":["t"]}]}'),
        _packed('{"tuple":[{"tensor":["t"]},{"tensor":["t"]}]}'),
        _packed('{"array":["|O8",["t"],[2]]}'),
        _packed('{"array":["<f8",["t"]]}'),
        _packed('{"array":["<f4",["t"],[9,9]]}'),
        _packed('{"array":["i4,i4",["t"],[1]]}'),
        _packed('{"scalar":["<f4","00"]}'),
        _packed('{"scalar":["<f4","zz"]}'),
        _packed('{"scalar":5}'),
        _packed('{"int":"x"}'),
        _packed('{"int":12}'),
        _packed('{"float":"00"}'),
        _packed('{"bytes":"*"}'),
        _packed('{"dict":[[1.5,0]]}'),
        _packed('{"dict":[[1]]}'),
        _packed('{"dict":5}'),
        _packed('{"__reduce__":["os.system","true"]}'),
        _packed("1" * 5000),
        _packed('{"int":"1","float":"2"}'),
    ],
    ids=lambda text: text[:60],
)
def test_a_text_that_is_not_ours_is_refused(text: str) -> None:
    with pytest.raises(CheckpointError, match="none that mpisign packed"):
        unpack({"t": torch.zeros(2, dtype=torch.float32)}, text)


def test_the_text_says_what_it_is_to_others() -> None:
    _, text = pack({"step": 3, "lr": 0.1, "x": torch.zeros(2)})
    assert json.loads(text) == {
        "mpisign": 1,
        "state": {"dict": [["step", 3], ["lr", 0.1], ["x", {"tensor": ["x"]}]]},
    }
