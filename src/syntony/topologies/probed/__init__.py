"""What a probe's clock tells about wires that nobody described: fit, locality, health, topology.

collectives/probe.py ──▶ measurements.py ──▶ locality.py   which ranks are near each other
   runs the traffic        │                 health.py     who is slower than its peers
                           │                 network.py    a Topology that explains the numbers
                           └── fit.py: seconds of messages of several sizes -> alpha and bandwidth
"""
