"""The contract of topologies over everything in the registry, and proofs that it can fail."""

import random

import numpy as np
import pytest
import torch

from mpisign import registry, testing
from mpisign.errors import TopologyError
from mpisign.topology import Graph, chain, parse, ring, star

OF_ANOTHER = {
    "mirrored": "mirrored:binary_tree",
    "spanning_tree": "spanning_tree:torus:root=0",
    "best_spanning_tree": "best_spanning_tree:hypercube",
    "minimum_diameter_tree": "minimum_diameter_tree:erdos_renyi",
    "davis_southern_women": "davis_southern_women",
}


@pytest.mark.parametrize("name", [name for name in registry.BUILT_IN["topology"] if not name.endswith("file")])
def test_every_topology_keeps_the_contract(name):
    if name in OF_ANOTHER:
        testing.check_topology(lambda n: parse(OF_ANOTHER[name], n))
    else:
        testing.check_topology(registry.load("topology", name))
        testing.check_topology(lambda n: parse(name, n))


@pytest.mark.parametrize("name", ["file", "directed_file"])
def test_topologies_from_files_keep_the_contract(name, tmp_path):
    path = tmp_path / "edges.txt"
    path.write_text("0 1\n1 2\n2 3\n3 0\n")
    testing.check_topology(lambda n: parse(f"{name}:{path}", n))


calls = []


@pytest.mark.parametrize(
    "broken, words",
    [
        (lambda n: chain(n + 1), "1 nodes were asked for, 2 came"),
        (lambda n: ring(n).neighbors, r"it gave tuple, not a Graph, Tree|no Graph"),
        (lambda n: (), "it gave tuple"),
        (lambda n: 3, "it gave int"),
        (lambda n: star(n, calls.append(1) or len(calls) % n), "another topology in a second call"),
        (lambda n: chain(n) if np.random.random() < 2 else None, "a global generator was used or seeded"),  # noqa: NPY002
        (lambda n: chain(n) if torch.rand(()) < 2 else None, "a global generator was used or seeded"),
        (lambda n: chain(n) if random.random() < 2 else None, "a global generator was used or seeded"),
        (lambda n: [][n], "1 nodes: IndexError: list index out of range, not a TopologyError"),
        (lambda n: Graph.from_edges(0, []), "it refuses all of 1, 2, 3, 4, 7, 8, 16, 32 nodes"),
        (lambda n, seed=0: chain(n), "seed has no effect"),
    ],
)
def test_the_topology_contract_finds_what_is_broken(broken, words):
    states = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]), pytest.raises(AssertionError, match=words):
            testing.check_topology(broken)
    finally:
        np.random.set_state(states[0])  # noqa: NPY002
        random.setstate(states[1])


def test_a_topology_that_is_not_for_every_size_is_none_the_worse():
    def even(n):
        if n % 2:
            raise TopologyError("an even number, please")
        return ring(n)

    testing.check_topology(even)
