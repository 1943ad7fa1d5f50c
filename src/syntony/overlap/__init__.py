"""When to communicate: training steps as task graphs, policies that order them, plans that are simulated and run.

graph    = generate(layers, layout)               a step: Ops and their dependencies       step/graph.py, generate.py
policy   = passes over the graph, order, gate     the method of a published system         policies/
plan     = policy.plan(graph, cost)               per device and queue: the order of Ops   step/plan.py
timeline = simulate(plan, cost)                   predicted                                predict/simulation.py
runner   = PlanRunner(plan, device, groups)       run: ready(op), wait(op)                 run/plan_runner.py
"""
