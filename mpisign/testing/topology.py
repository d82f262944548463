"""The contract of a topology."""

import copy
import inspect
import random
from collections.abc import Callable, Sequence

import numpy as np
import torch

from ..errors import TopologyError
from ..topology import Digraph, Graph, OnePeerExponential, Topology, Tree
from .checks import require


def check_topology(build: Callable[..., Topology], sizes: Sequence[int] = (1, 2, 3, 4, 7, 8, 16, 32)) -> None:
    """Check a topology: `build(n)`, with its defaults, gives a Graph, Tree, Digraph, one-peer graph or several trees.

    It has n nodes; a number of nodes that it can't have is refused with TopologyError, but not each of `sizes`; the same
    arguments give equal topologies, with the same hash, also after a deep copy; a `seed` that it takes has
    an effect; no global generator is used. That it is connected, and the like, the classes themselves see to.
    """
    takes_seed = "seed" in inspect.signature(build).parameters
    found = {}
    for n in sizes:
        before = _global_chance()
        try:
            topology = build(n)
        except TopologyError:
            continue
        except Exception as error:
            raise AssertionError(f"{n} nodes: {type(error).__name__}: {error}, not a TopologyError") from error
        found[n] = topology
        _check_topology_of(topology, n, build)
        require(_global_chance() == before, f"{n} nodes: a global generator was used or seeded")
    require(len(found) > 0, f"it refuses all of {', '.join(map(str, sizes))} nodes")
    if takes_seed:
        n = max(found)
        require(len({build(n, seed=seed) for seed in range(8)}) > 1, f"{n} nodes: seed has no effect")


def _check_topology_of(topology: Topology, n: int, build: Callable[..., Topology]) -> None:
    trees = isinstance(topology, tuple) and topology and all(isinstance(each, Tree) for each in topology)
    fits = trees or isinstance(topology, Graph | Digraph | OnePeerExponential)
    require(bool(fits), f"{n} nodes: it gave {type(topology).__name__}, not a Graph, Tree, Digraph or several trees")
    sizes = {each.size for each in topology} if isinstance(topology, tuple) else {topology.size}
    require(sizes == {n}, f"{n} nodes were asked for, {', '.join(map(str, sizes))} came")
    for other, where in ((build(n), "in a second call"), (copy.deepcopy(topology), "after a deep copy")):
        require(topology == other and hash(topology) == hash(other), f"{n} nodes: another topology {where}")


def _global_chance() -> tuple[str, ...]:
    numpy = np.random.get_state(legacy=False)  # noqa: NPY002
    return (
        repr(numpy),
        numpy["state"]["key"].tobytes().hex(),
        repr(random.getstate()),
        repr(torch.get_rng_state().tolist()),
    )
