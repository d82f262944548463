"""The social graph of the paper: 18 women and 14 events that they went to, in the American South of the 1930s."""

from .graph import Graph

EVENTS = (
    (1, 2, 3, 4, 5, 6, 8, 9),  # Evelyn Jefferson
    (1, 2, 3, 5, 6, 7, 8),  # Laura Mandeville
    (2, 3, 4, 5, 6, 7, 8, 9),  # Theresa Anderson
    (1, 3, 4, 5, 6, 7, 8),  # Brenda Rogers
    (3, 4, 5, 7),  # Charlotte McDowd
    (3, 5, 6, 8),  # Frances Anderson
    (5, 6, 7, 8),  # Eleanor Nye
    (6, 8, 9),  # Pearl Oglethorpe
    (5, 7, 8, 9),  # Ruth DeSand
    (7, 8, 9, 12),  # Verne Sanderson
    (8, 9, 10, 12),  # Myra Liddel
    (8, 9, 10, 12, 13, 14),  # Katherina Rogers
    (7, 8, 9, 10, 12, 13, 14),  # Sylvia Avondale
    (6, 7, 9, 10, 11, 12, 13, 14),  # Nora Fayette
    (7, 8, 10, 11, 12),  # Helen Lloyd
    (8, 9),  # Dorothy Murchison
    (9, 11),  # Olivia Carleton
    (9, 11),  # Flora Price
)
"""For each woman the events, numbered from 1, that she went to. Source: Davis, Gardner and Gardner 1941, "Deep South"."""


def davis_southern_women() -> Graph:
    """Return the graph with the women as nodes 0 to 17 and the events as nodes 18 to 31.

    >>> graph = davis_southern_women()
    >>> graph.size, len(graph.edges), graph.diameter
    (32, 89, 4)
    """
    women = len(EVENTS)
    return Graph.from_edges(32, [(woman, women - 1 + event) for woman in range(women) for event in EVENTS[woman]])
