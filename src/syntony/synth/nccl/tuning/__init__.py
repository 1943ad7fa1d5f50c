"""Which algorithm NCCL should choose: from measured times, compared with NCCL's own cost model."""
