"""What a probe's measurements tell about links that no file describes: fit, locality, health, topology.

collectives/probe.py ──▶ measurements.py ──▶ locality.py   which ranks are near each other
   runs the traffic        │                 health.py     who is slower than its peers
                           │                 network.py    a Topology that explains the numbers
                           └── fit.py: seconds of messages of several sizes -> alpha and bandwidth
"""
