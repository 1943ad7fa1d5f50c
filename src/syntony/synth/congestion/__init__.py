"""Congestion: how senders, queues and pauses interact while a network is overloaded."""
