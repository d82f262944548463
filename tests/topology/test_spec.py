import pytest

from mpisign import registry
from mpisign.errors import ConfigError, TopologyError
from mpisign.topology import (
    Digraph,
    Graph,
    OnePeerExponential,
    Tree,
    binary_tree,
    chain,
    double_binary_trees,
    exponential,
    grid,
    kary_tree,
    mirrored,
    parse,
    ring,
    size_of,
    spanning,
    star,
    torus,
)
from mpisign.topology.davis import davis_southern_women
from mpisign.topology.random_graphs import erdos_renyi, random_regular, small_world
from mpisign.topology.spec import usage


@pytest.mark.parametrize(
    "spec, size, expected",
    [
        ("chain:16", None, chain(16)),
        ("chain", 16, chain(16)),
        ("chain:16", 16, chain(16)),
        ("double_binary_trees", 16, double_binary_trees(16)),
        ("star:8:3", None, star(8, 3)),
        ("star:8:center=3", None, star(8, 3)),
        ("star::3", 8, star(8, 3)),
        ("star:center=3", 8, star(8, 3)),
        ("star:center=3:n=8", None, star(8, 3)),
        ("kary_tree:10:4", None, kary_tree(10, 4)),
        ("torus:4x4", None, torus(16)),
        ("torus:2x8", 16, torus(16, rows=2)),
        ("grid:12:rows=2", None, grid(12, rows=2)),
        ("grid:12:2", None, grid(12, rows=2)),
        ("exponential:8", None, exponential(8)),
        ("one_peer_exponential:16:reference:2", None, OnePeerExponential(16, "reference", 2)),
        ("one_peer_exponential:rounds_a_step=2:order=reference", 16, OnePeerExponential(16, "reference", 2)),
        ("random_regular:16:3:seed=1", None, random_regular(16, 3, 1)),
        ("random_regular:degree=3:seed=1", 16, random_regular(16, 3, 1)),
        ("erdos_renyi:16:0.5", None, erdos_renyi(16, 0.5)),
        ("erdos_renyi:16:p=1", None, erdos_renyi(16, 1.0)),
        ("small_world:16:p=0.5", None, small_world(16, p=0.5)),
        ("davis_southern_women", 32, davis_southern_women()),
        ("spanning_tree:torus:4x4", None, spanning.spanning_tree(torus(16))),
        ("spanning_tree:torus:4x4:root=5", None, spanning.spanning_tree(torus(16), 5)),
        ("spanning_tree:random_regular:16:3:seed=1:root=5", 16, spanning.spanning_tree(random_regular(16, 3, 1), 5)),
        ("spanning_tree:root=5:torus:4x4", None, "root=5:torus:4x4"),
        ("minimum_diameter_tree:davis_southern_women", None, spanning.minimum_diameter_tree(davis_southern_women())),
        ("mirrored:mirrored:binary_tree", 9, binary_tree(9)),
        ("mirrored:chain:4", None, mirrored(chain(4))),
    ],
)
def test_a_text_says_a_topology(spec, size, expected):
    if isinstance(expected, str):
        with pytest.raises(ConfigError, match=f"topology {expected}: no such topology"):
            parse(spec, size)
    else:
        assert parse(spec, size) == expected
        assert type(parse(spec, size)) is type(expected)


@pytest.mark.parametrize(
    "spec, size, message",
    [
        ("chain", None, "topology chain: n is missing: wanted chain:N"),
        ("chain:", None, "n is missing"),
        ("chain:x", None, "topology chain:x: n is 'x': wanted a whole number"),
        ("chain:4.5", None, "n is '4.5': wanted a whole number"),
        ("chain:4:5", None, "2 arguments: wanted at most 1, n$"),
        ("chain:0", None, "a tree needs at least 1 node, got 0"),
        ("davis_southern_women:32", None, "1 arguments: wanted none"),
        ("chain:16", 8, "topology chain:16 has 16 nodes, but there are 8 ranks: one rank a node"),
        ("torus:4x4", 8, "topology torus:4x4 has 16 nodes, but there are 8 ranks"),
        ("davis_southern_women", 8, "has 32 nodes, but there are 8 ranks"),
        ("spanning_tree:ring:6", 8, "topology ring:6 has 6 nodes, but there are 8 ranks"),
        ("star:8:centre=3", None, r"no argument centre \(did you mean 'center'\?\); known are: n, center"),
        ("star:8:2:center=3", None, "center is given twice, as 2 and as 3"),
        ("star:8:center=2:center=3", None, "center is given twice"),
        ("star:8:center=8", None, "center 8 is no node of a star of 8"),
        ("chain:2x4", None, "n is '2x4': wanted a whole number"),
        ("torus:4x", None, "4x is no shape: wanted rows x columns, as in 4x4"),
        ("torus:4x4:rows=2", None, "4x4 is no shape|rows"),
        ("erdos_renyi:9:p=much", None, "p is 'much': wanted a number"),
        ("one_peer_exponential:16:order=slip", None, "order must be intended or reference, got 'slip'"),
        ("file:", None, "topology file:: the path is missing"),
        ("file", 4, "the path is missing"),
        ("file:none.txt", None, "none.txt: can't read the edges"),
        ("spanning_tree", 4, "the topology to take it from is missing"),
        ("mirrored:ring:5", None, "topology mirrored:ring:5: ring:5 is no tree"),
        ("spanning_tree:exponential:8", None, "exponential:8 is no graph"),
        ("spanning_tree:ring:5:root=5", None, "no node 5 in a graph of 5"),
        ("random_regular:5:3", None, "no connected graph of 5 nodes has 3 neighbours"),
    ],
)
def test_a_text_that_says_none_is_answered_with_what_was_wanted(spec, size, message):
    with pytest.raises(TopologyError, match=message) as caught:
        parse(spec, size)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spec", ["chian:16", "chian", "Chain:3", "ring16", ""])
def test_a_name_that_is_not_known_is_answered_with_the_known_ones(spec):
    with pytest.raises(
        ConfigError, match=f"topology {spec}: no such topology.*; known are .*binary_tree, chain, complete"
    ):
        parse(spec, 16)
    if spec.startswith("chian"):
        with pytest.raises(ConfigError, match=r"\(did you mean 'chain'\?\)"):
            parse(spec, 16)


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from mpisign.topology import chain, ring\n"
        "def typed(n: int, flip: bool = False, way: str = 'a'):\n    return ring(n) if flip else chain(n)\n"
        "def free(size, more=1):\n    assert isinstance(more, (int, float))\n    return chain(size)\n"
        "def fixed():\n    return ring(5)\n"
        "def wrong(n):\n    return n\n"
        "ready = ring(6)\n"
        "number = 7\n"
    )
    return path


def test_ones_own_functions_and_graphs_are_topologies(mine):
    assert parse(f"{mine}:typed:5") == parse(f"{mine}:typed", 5) == chain(5)
    assert parse(f"{mine}:typed:5:flip=true") == ring(5)
    assert parse(f"{mine}:free:5:more=0.5") == parse(f"{mine}:free:more=2", 5) == chain(5)
    assert parse(f"{mine}:fixed") == ring(5)
    assert parse(f"{mine}:ready") == parse(f"{mine}:ready", 6) == ring(6)
    assert parse(f"spanning_tree:{mine}:ready:root=3") == spanning.spanning_tree(ring(6), 3)


@pytest.mark.parametrize(
    "attribute, size, message",
    [
        ("typed", None, "n is missing: wanted .*mine.py:typed:N:FLIP:WAY"),
        ("typed:5:flip=maybe", None, "flip is 'maybe': wanted true or false"),
        ("fixed", 6, "has 5 nodes, but there are 6 ranks"),
        ("ready", 5, "has 6 nodes, but there are 5 ranks"),
        ("ready:6", None, "a ready-made Graph and takes no arguments"),
        ("wrong", 3, "gave int: wanted a Graph, Tree, Digraph or trees"),
        ("number", 3, r"is 7: wanted a function \(n, …\) -> Graph, or a Graph"),
    ],
)
def test_ones_own_that_are_none_are_refused(mine, attribute, size, message):
    with pytest.raises(TopologyError, match=message):
        parse(f"{mine}:{attribute}", size)


def test_a_thing_of_a_module_is_found_by_its_name():
    assert parse("mpisign.topology.davis:davis_southern_women") == davis_southern_women()
    assert parse("mpisign.topology.builders:chain:4") == chain(4)


@pytest.mark.parametrize("spec", ["no_such_module:thing:4", "none.py:thing"])
def test_a_missing_module_or_file_is_named(spec):
    with pytest.raises(ConfigError, match="can't import"):
        parse(spec, 4)


def test_a_path_may_have_colons(tmp_path):
    path = tmp_path / "a:b=1.txt"
    path.write_text("0 1\n1 2\n")
    assert parse(f"file:{path}") == Graph(chain(3).neighbors)
    assert parse(f"spanning_tree:file:{path}:root=1") == chain(3)
    (tmp_path / "arcs.txt").write_text("0 1\n1 0\n")
    assert parse(f"directed_file:{tmp_path}/arcs.txt", 2) == Digraph(((1,), (0,)))


def test_a_topology_has_the_size_of_its_trees():
    assert [size_of(parse(spec)) for spec in ("chain:3", "double_binary_trees:5", "one_peer_exponential:8")] == [
        3,
        5,
        8,
    ]


@pytest.mark.parametrize("name", registry.BUILT_IN["topology"])
def test_every_built_in_says_how_it_is_written_and_what_it_is(name):
    assert usage(name).startswith(name)
    assert registry.load("topology", name).__doc__


def test_a_tree_of_a_spec_is_a_tree():
    assert isinstance(parse("best_spanning_tree:hypercube:8"), Tree)
