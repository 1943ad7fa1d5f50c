"""What `syntony bench --device cuda` can be asked for by name."""

from __future__ import annotations

from csrc import _core

ALGORITHMS = ("auto", *_core.algorithm_names("all_reduce"), "pull", "pull_two_shot")
"""The builders, and one-sided exchange (csrc/cuda/pull.hpp). `auto`: one-sided, all_reduce in two shots."""
PROTOCOLS = ("simple", "ll", "ll128")
"""How messages travel; one-sided Programs have none, and run the same with each."""
PEERS = ("nccl",)
