"""Lightning's Trainer with its DDPStrategy."""

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from report import BACKEND, Report, batch, layers

report = Report()


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = layers()

    def training_step(self, data: torch.Tensor, index: int) -> torch.Tensor:
        loss = (self.layers(data) - data).square().mean()
        self.log("loss", loss, sync_dist=True)
        return loss

    def on_train_batch_end(self, outputs, data, index):  # type: ignore[no-untyped-def]
        report.step(self.all_gather(outputs["loss"].detach()).mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


lightning.seed_everything(1)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    strategy=DDPStrategy(process_group_backend=BACKEND),
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
data = torch.stack([row for step in range(20) for row in batch(step, 0, 256)])
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=8))
if trainer.is_global_zero:
    report.tell()
