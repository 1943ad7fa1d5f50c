"""torchft: two replicas under a lighthouse, whose Manager makes the group anew at every change of the quorum."""

import multiprocessing
import os

from report import BACKEND, Report, batch, layers


def replica(rank: int, lighthouse: str) -> None:
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1"}
    import torch
    import torch.distributed as dist
    import torchft
    import torchft.process_group
    from torch.distributed import distributed_c10d as c10d

    class ProcessGroupByName(torchft.process_group.ProcessGroupWrapper):
        """As torchft's own classes, of whatever backend torch knows by that name."""

        def _create_pg(self, store: dist.Store, rank: int, world_size: int) -> dist.ProcessGroup:
            from syntony.collectives.torch_backend.autoload import create

            group = c10d.ProcessGroup(store, rank, world_size)
            group._set_default_backend(c10d.ProcessGroup.BackendType.CUSTOM)
            options = c10d._DistributedBackendOptions()
            options.store, options.group_rank, options.group_size = store, rank, world_size
            options.timeout, options.group_id = self._timeout, f"quorum {self._quorum_id}"
            options.global_ranks_in_group = list(range(world_size))
            backend = create(options, None)
            group._register_backend(torch.device("cpu"), c10d.ProcessGroup.BackendType.CUSTOM, backend)
            return group

        def getBackendName(self) -> str:  # noqa: N802
            return f"torchft-{BACKEND}"

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = torchft.ProcessGroupGloo() if BACKEND == "gloo" else ProcessGroupByName()
    plain = layers()
    manager = torchft.Manager(
        pg=group,
        load_state_dict=plain.load_state_dict,
        state_dict=plain.state_dict,
        min_replica_size=2,
        use_async_quorum=False,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=lighthouse,
        replica_id=f"replica_{rank}",
        hostname="127.0.0.1",
        init_sync=False,
    )
    model = torchft.DistributedDataParallel(manager, plain)
    optimizer = torchft.Optimizer(manager, torch.optim.SGD(model.parameters(), lr=0.1))
    report = Report()
    for step in range(15):
        optimizer.zero_grad()
        data = batch(step, rank, 256)
        loss = (model(data) - data).square().mean()
        loss.backward()
        optimizer.step()
        report.served = group._pg._get_backend(torch.device("cpu")).name()
        mean = loss.detach().clone()
        manager.allreduce(mean).wait()
        report.step(mean)
    if rank == 0:
        report.tell()
    manager.shutdown(wait=False)
    os._exit(0)


if __name__ == "__main__":
    import torchft

    lighthouse = torchft.LighthouseServer if hasattr(torchft, "LighthouseServer") else None
    if lighthouse is None:
        from torchft.coordination import LighthouseServer as lighthouse  # noqa: N813
    server = lighthouse(bind="[::]:0", min_replicas=2)
    context = multiprocessing.get_context("spawn")
    replicas = [context.Process(target=replica, args=(rank, server.address())) for rank in range(2)]
    for each in replicas:
        each.start()
    for each in replicas:
        each.join()
    server.shutdown()
    raise SystemExit(any(each.exitcode for each in replicas))
