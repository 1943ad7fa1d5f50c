"""From the measurements of a probe to a topology: fit, locality, health, network.

collectives/probe.py ──▶ measurements.py ──▶ locality.py   which ranks are near each other
   runs the traffic        │                 health.py     which ranks and pairs are slower than their peers
                           │                 network.py    a Topology that explains the numbers
                           └── fit.py: seconds of messages of several sizes -> alpha and bandwidth
"""
