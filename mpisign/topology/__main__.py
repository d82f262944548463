"""The command line: `python -m mpisign.topology show torus:4x4 --draw torus.png`, and `list`."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import registry
from ..command_line import Parser
from ..errors import ConfigError, EnvironmentProblem, MpisignError
from .digraph import Digraph
from .exponential import OnePeerExponential
from .graph import Graph
from .spec import Topology, parse, size_of, usage
from .tree import Tree

_LARGEST_TEXT = 64  # nodes


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code: 0, or 2 for a mistake of the user's, said in one line."""
    try:
        given = _parser().parse_args(argv)
        if given.command == "list":
            print("\n".join(_list()))
            return 0
        topology = parse(given.topology, given.size)
        lines = list(_facts(given.topology, topology))
        if given.draw is not None:
            lines.append(f"{'picture':<12} {_draw(given.draw, given.topology, topology)}")
        else:
            lines += _texts(topology)
        print("\n".join(lines))
    except MpisignError as error:
        print(f"mpisign.topology: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser("python -m mpisign.topology", description="Facts and pictures of topologies.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="show|list")
    show = commands.add_parser("show", help="facts of a topology, and a drawing of a tree", allow_abbrev=False)
    show.add_argument("topology", help="chain:16, torus:4x4, file:edges.txt, my_file.py:mine:8 …; `list` has them all")
    show.add_argument("--size", type=int, metavar="N", help="the number of nodes, where the topology doesn't say it")
    show.add_argument("--draw", type=Path, metavar="FILE", help="draw a picture to FILE.png, .svg or .pdf")
    commands.add_parser("list", help="all topologies and how they are written")
    return parser


def _list() -> Iterator[str]:
    for name in registry.BUILT_IN["topology"]:
        remark = (registry.load("topology", name).__doc__ or "").partition("\n")[0]
        yield f"{usage(name)}\n    {remark.removeprefix('Return ')}"


def _facts(spec: str, topology: Topology) -> Iterator[str]:
    yield f"{'topology':<12} {spec}"
    yield f"{'nodes':<12} {size_of(topology)}"
    if isinstance(topology, tuple):
        for number, tree in enumerate(topology, start=1):
            yield f"tree {number} of {len(topology)}"
            yield from _facts_of_graph(tree)
        degrees = [sum(len(tree.neighbors[node]) for tree in topology) for node in range(size_of(topology))]
        yield f"{'all trees':<12} degrees {_counted(degrees)}"
    elif isinstance(topology, Digraph):
        yield from _facts_of_digraph(topology)
    elif isinstance(topology, OnePeerExponential):
        offsets = ", ".join(str(topology.offset(r)) for r in range(topology.period))
        yield f"{'offsets':<12} {offsets}, and again; {topology.order} order"
        yield f"{'messages':<12} {topology.size if topology.size > 1 else 0} a round, one to each"
    else:
        yield from _facts_of_graph(topology)


def _facts_of_graph(graph: Graph) -> Iterator[str]:
    from .delays import correction, mean_delay
    from .weights import metropolis_hastings, smallest_eigenvalue, spectral_gap

    weights = metropolis_hastings(graph)
    smallest = smallest_eigenvalue(weights)
    fits = "above −1/3: D² converges" if smallest > -1 / 3 + 1e-9 else "not above −1/3: D² needs lazy weights"
    yield f"{'edges':<12} {len(graph.edges)}"
    yield f"{'degrees':<12} {_counted([len(each) for each in graph.neighbors])}"
    yield f"{'diameter':<12} {graph.diameter}"
    yield f"{'gossip':<12} spectral gap {spectral_gap(weights):.4f}, smallest eigenvalue {round(smallest, 4) + 0.0:.4f} ({fits})"
    if isinstance(graph, Tree):
        for timing in ("synchronous", "overlapped"):
            delay, kappa = mean_delay(graph, timing), correction(graph, timing)
            yield f"{'relay':<12} {timing} mean delay {delay:.4f} steps, κ {kappa:.4f}"


def _facts_of_digraph(digraph: Digraph) -> Iterator[str]:
    from .weights import push_sum, spectral_gap

    yield f"{'edges':<12} {len(digraph.edges)}, directed"
    yield f"{'out-degrees':<12} {_counted([len(each) for each in digraph.successors])}"
    yield f"{'in-degrees':<12} {_counted([len(each) for each in digraph.predecessors])}"
    yield f"{'diameter':<12} {digraph.diameter}"
    yield f"{'push-sum':<12} spectral gap {spectral_gap(push_sum(digraph)):.4f}"


def _counted(degrees: list[int]) -> str:
    return ", ".join(f"{degree} ({count} ×)" for degree, count in sorted(Counter(degrees).items()))


def _texts(topology: Topology) -> Iterator[str]:
    from .drawing import text

    for tree in topology if isinstance(topology, tuple) else (topology,):
        if isinstance(tree, Tree) and tree.size <= _LARGEST_TEXT:
            yield f"\n{text(tree)}"


def _draw(path: Path, spec: str, topology: Topology) -> Path:
    known = ("png", "svg", "pdf")
    if path.suffix.lstrip(".").lower() not in known:
        raise ConfigError(f"--draw {path}: wanted a name that ends in {', '.join(f'.{each}' for each in known)}")
    try:
        from .drawing import picture

        figure = picture(topology, spec)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("matplotlib"):
            raise
        raise EnvironmentProblem(f"--draw {path}: no matplotlib here: pip install 'mpisign[tutorials]'") from None
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise ConfigError(f"--draw {path}: can't write it ({error.strerror})") from None
    return path


if __name__ == "__main__":
    sys.exit(main())
