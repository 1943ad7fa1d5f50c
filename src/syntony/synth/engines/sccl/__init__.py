"""Engine `sccl`: exact schedules by steps, rounds and chunks. `search` is the engine."""
