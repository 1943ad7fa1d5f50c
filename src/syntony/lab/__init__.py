"""The lab: a topology as a cluster of network namespaces on one machine.

lab_spec     which machines, wires, addresses, rates           pure; everything else carries it out
routes       which traffic takes which wire                    pure
shaping      rates as kernel parameters                        pure
faults       what breaks when                                  pure
runs         names, and the record of every lab of this machine
kernel       the requests to the kernel
network      namespaces, veth pairs, addresses, routes, rate limits
delay        wires with latency
ceiling      what a wire carries before anything of ours runs over it
aggregators  switches that add
processes    the ranks, their environment and their output
lab          one lab from beginning to end
report       what a lab reports about itself
cli          the command
"""
