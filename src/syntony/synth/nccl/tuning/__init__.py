"""Which algorithm NCCL should choose: from measured times, compared with what its own cost model believes."""
