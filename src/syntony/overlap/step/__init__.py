"""A training step as data: ops, graph, layout, costs and the plan."""
