"""When to move it: the step of a training run as a graph of tasks, policies that order it, plans predicted and run.

graph    = generate(layers, layout)               a step: Ops and what each waits for      graph.py, generate.py
policy   = passes over the graph, order, gate     what a published system does             policies.py, passes/
plan     = policy.plan(graph, cost)               per device and lane: which Op when       plan.py
timeline = simulate(plan, cost)                   predicted                                simulation.py
runner   = PlanRunner(plan, device, groups)       run: ready(op), wait(op)                 plan_runner.py
"""
