"""GraphML, as networkx and graph editors write it: any network, not only a host's.

    <node id="a"/>  <edge source="a" target="b"><data key="d0">25GB/s</data></edge>

Attributes are those of `Topology.from_networkx`: `kind`, `multicast` and `reduces` of nodes, `bandwidth` and `alpha` of
edges; others are ignored. The network is named after its graph, or else after its file.
"""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import ParseError

from syntony.topologies.topology import Topology, TopologyError


def read(content: bytes, where: str) -> Topology:
    """The network. Raises TopologyError that names the file and what is wrong."""
    import networkx

    if b"<!ENTITY" in content:
        raise TopologyError(f"{where}: it defines entities, which no GraphML needs")
    try:
        graph = networkx.parse_graphml(content.decode("utf-8-sig").strip(), force_multigraph=True)
    except (ParseError, networkx.NetworkXError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise TopologyError(f"{where}: it cannot be read as GraphML: {' '.join(str(error).split())}") from None
    try:
        return Topology.from_networkx(graph, str(graph.graph.get("name") or Path(where).stem))
    except TopologyError as error:
        raise TopologyError(f"{where}: {error}") from None
