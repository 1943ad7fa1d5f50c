"""When to move it: the step of a training run as a graph of tasks, policies that order it, plans predicted and run.

graph    = generate(layers, layout)               a step: Ops and what each waits for      step/graph.py, generate.py
policy   = passes over the graph, order, gate     what a published system does             policies/
plan     = policy.plan(graph, cost)               per device and queue: which Op when      step/plan.py
timeline = simulate(plan, cost)                   predicted                                predict/simulation.py
runner   = PlanRunner(plan, device, groups)       run: ready(op), wait(op)                 run/plan_runner.py
"""
