"""A layer of experts, one per rank, on gloo.  torchrun --nproc-per-node 4 examples/moe.py [--over]

Tokens go to the rank of their expert and back. Experts choose their tokens (Zhou et al. 2022), so all get as many. With
the second `exchange`, a schedule of Syntony moves them over gloo's messages; nothing else changes, and the losses are
the same to the last bit.
"""

import sys

import torch
import torch.distributed as dist

import syntony

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()


def exchange(rows: torch.Tensor) -> torch.Tensor:
    received = torch.empty_like(rows)
    dist.all_to_all_single(received, rows)
    return received


if "--over" in sys.argv:
    exchange = syntony.over().all_to_all  # the one line


class Exchange(torch.autograd.Function):
    """Row block r goes to rank r; gradients go the same way back."""

    @staticmethod
    def forward(ctx, rows):
        return exchange(rows.contiguous())

    @staticmethod
    def backward(ctx, gradient):
        return exchange(gradient.contiguous())


WIDTH, CAPACITY = 16, 8  # tokens of a rank for each expert
torch.manual_seed(0)
router, head = torch.nn.Linear(WIDTH, ranks), torch.nn.Linear(WIDTH, 1)  # on all ranks the same
torch.manual_seed(1 + rank)
expert = torch.nn.Sequential(torch.nn.Linear(WIDTH, 32), torch.nn.GELU(), torch.nn.Linear(32, WIDTH))
parameters = [*expert.parameters(), *router.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
for _ in range(8):
    tokens = torch.randn(ranks * CAPACITY, WIDTH)
    weights = router(tokens).softmax(1)
    chosen = weights.topk(CAPACITY, 0).indices.t().reshape(-1)
    sent = tokens[chosen]
    returned = Exchange.apply(expert(Exchange.apply(sent)))
    scale = weights[chosen, torch.arange(ranks).repeat_interleave(CAPACITY)]
    mixed = tokens.index_add(0, chosen, returned * scale[:, None])
    loss = (head(mixed) - tokens.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in (*router.parameters(), *head.parameters()):
        dist.all_reduce(parameter.grad)
        parameter.grad /= ranks
    optimizer.step()
print(f"rank {rank}: loss {loss.item().hex()}", flush=True)
dist.destroy_process_group()
