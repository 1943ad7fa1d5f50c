"""The lab: a topology as a cluster of network namespaces on one machine.

lab_spec     which machines, wires, addresses, rates           pure; everything else carries it out
routes       who sends what to whom through which wire         pure
shaping      rates as the kernel wants them                    pure
faults       what breaks when                                  pure
runs         names, and the record of every lab of this machine
kernel       what is asked of the kernel, and how
network      namespaces, veth pairs, addresses, routes, rate limits
delay        wires that take their time
ceiling      what a wire carries before anything of ours runs over it
aggregators  switches that add
processes    the ranks, their environment and their output
lab          one lab from beginning to end
report       what a lab tells about itself
cli          the command
"""
