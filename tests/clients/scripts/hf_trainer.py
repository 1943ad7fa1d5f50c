"""transformers' Trainer over a small GPT-2."""

import tempfile

import torch
from report import BACKEND, Report
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

report = Report()


class Texts(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(0, 100, (32,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids}


class Losses(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):  # type: ignore[no-untyped-def]
        if "loss" in logs:
            report.step(float(logs["loss"]))


with tempfile.TemporaryDirectory() as folder:
    torch.manual_seed(1)
    trainer = Trainer(
        GPT2LMHeadModel(GPT2Config(vocab_size=100, n_positions=32, n_embd=64, n_layer=2, n_head=4)),
        TrainingArguments(
            output_dir=folder,
            ddp_backend=BACKEND,
            use_cpu=True,
            max_steps=15,
            logging_steps=1,
            per_device_train_batch_size=4,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            seed=1,
        ),
        train_dataset=Texts(),
        callbacks=[Losses()],
    )
    trainer.train()
    if trainer.is_world_process_zero():
        report.tell()
