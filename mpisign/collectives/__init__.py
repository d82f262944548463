"""What ranks work out together: votes, which take ballots and give a verdict, and means of float vectors."""

from .mean import Mean
from .server import ServerVote
from .sharded import ShardedVote
from .tree import TreeVote
from .vote import Vote, VoteFactory

__all__ = ["Mean", "ServerVote", "ShardedVote", "TreeVote", "Vote", "VoteFactory"]
