"""Congestion: what senders, queues and pauses do to each other while a network is too full."""
