"""The simulator against the lab: `python -m syntony.benchmarks lab sim_vs_lab` prints both times in one table.

cells        which fabrics, rates, collectives and sizes      data
model        the lab as the simulator sees it                 pure; no constant is fitted to what is measured
prediction   a cell, simulated
rank         a rank in the lab, which times collectives
measurement  a lab from beginning to end
report       the table, its summary, JSON
"""
