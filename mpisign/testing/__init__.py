"""The contract of each kind of thing, as checks that anybody's own can be put through; failing ones raise AssertionError.

    from mpisign.testing import check_algorithm
    def test_mine(): check_algorithm(Mine)

mpisign's own tests run them over everything in the registry. All run in the simulator, without MPI.
"""

from .aggregator import check_aggregator
from .algorithm import check_algorithm
from .attack import check_attack
from .checks import RANKS
from .codec import check_codec
from .odd_model import give_gradients, odd_model
from .partition import check_partition
from .topology import check_topology
from .vote import check_vote

__all__ = [
    "RANKS",
    "check_aggregator",
    "check_algorithm",
    "check_attack",
    "check_codec",
    "check_partition",
    "check_topology",
    "check_vote",
    "give_gradients",
    "odd_model",
]
