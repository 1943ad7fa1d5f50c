"""The table of clients: programs of others over torch.distributed, as their users start them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Client:
    """One script in scripts/, run three times: on gloo, on Syntony by its name, under SYNTONY_REPLACE=gloo."""

    script: str
    shown: str
    """The client's name in the table; parts of a script follow it."""
    distribution: str
    """Whose version stands beside it."""
    ranks: int = 2
    torchrun: tuple[str, ...] | None = ()
    """Options of torchrun; None for a client that starts its workers itself."""
    refuses: str = ""
    """A part of what the client says to a backend that it does not know: then only the replacement serves it."""
    why: str = ""
    """The line of the client that prevents it, for the table."""
    replaceable: bool = True
    """False where the client constructs gloo's class by itself."""
    tolerance: float = 1e-5
    """Relative, between losses; those of two ranks should be equal to the last bit."""


CLIENTS = (
    Client(
        "accelerate_ddp",
        "accelerate",
        "accelerate",
        refuses="is not available",
        why="`PartialState._prepare_backend` (`state.py`) replaces every backend name except `mpi` by `gloo` on CPUs",
    ),
    Client(
        "hf_trainer",
        "transformers' Trainer",
        "transformers",
        refuses="is not available",
        why="the same, through accelerate's `PartialState._prepare_backend`",
    ),
    Client("lightning_ddp", "Lightning, DDPStrategy", "lightning"),
    Client("deepspeed_zero", "DeepSpeed", "deepspeed"),
    Client("ray_train", "Ray Train", "ray", torchrun=None),
    Client("ddp_hooks", "DDP hook", "torch"),
    Client("join_zero", "torch", "torch"),
    Client("compiled", "torch.compile", "torch"),
    Client("parallelisms", "torch", "torch", ranks=4),
    Client("restarts", "torchrun --max-restarts", "torch", torchrun=("--max-restarts", "1")),
    Client(
        "torchft_ddp",
        "torchft, DDP",
        "torchft",
        torchrun=None,
        replaceable=False,
        why="`torchft.ProcessGroupGloo._create_pg` constructs torch's class `ProcessGroupGloo` directly",
    ),
)
