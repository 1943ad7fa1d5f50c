"""Ray Train's TorchTrainer with two workers on this machine; Ray starts them itself."""

import json
import os
import sys
import tempfile
from pathlib import Path

import ray
import ray.train
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

HERE = str(Path(__file__).parent)
sys.path.insert(0, HERE)
from report import BACKEND  # noqa: E402


def train(config: dict[str, str]) -> None:
    import sys

    sys.path.insert(0, config["here"])
    import torch
    import torch.distributed as dist
    from report import Report, layers, train_step

    model = ray.train.torch.prepare_model(layers())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    report = Report()
    for step in range(20):
        train_step(report, model, optimizer, step)
    if dist.get_rank() == 0:
        Path(config["answer"]).write_text(json.dumps(report.result()))


with tempfile.TemporaryDirectory() as folder:
    variables = {name: value for name, value in os.environ.items() if name.startswith("SYNTONY_")}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": variables})
    answer = Path(folder) / "answer.json"
    TorchTrainer(
        train,
        train_loop_config={"here": HERE, "answer": str(answer)},
        torch_config=TorchConfig(backend=BACKEND),
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(storage_path=folder),
    ).fit()
    print("CLIENT", answer.read_text(), flush=True)
    ray.shutdown()
