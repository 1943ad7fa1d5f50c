"""What each system's paper says it gains, and the setting in which we simulate it: data of table `policies`.

A setting is as near to the paper's as our models and machines come; `dp=..` with a network of convolutions
(convolutional.py) where the paper measured those. Devices give half of the data sheet's peak. Figures are the papers'
own headlines (from abstracts, where no other place is named); what was not found is not there.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """A row.

    policy     as --policy reads it; knobs that are not set are turned, where the system tunes them (`tuned`)
    step       model, layout and machine, as `syntony overlap simulate` reads them
    over       what the paper compares with, as a policy; `late`: fifo that computes again when the gradient has come;
               `one`: one rank that computes the batches of all
    least, most    gain that the paper tells; 0: none was found
    source     where it says so
    lab        which of `policies.LABS` it is run in; or why it is not
    remark     where ours and theirs differ
    """

    policy: str
    step: str
    over: str
    least: float
    most: float
    source: str
    lab: str
    remark: str
    tuned: bool = False


_P4000 = "a100:flops=2.65e12,memory=2.4e11,network=0.5e9,ranks=1,alpha=2e-5"
_V100 = "a100:flops=7.8e12,memory=9e11,ranks=1,alpha=2e-5"  # in fp32
_TENSOR = "a100:flops=62e12,memory=9e11,alpha=2e-5"  # a V100 in fp16
_EXPERTS = "gpt:hidden=1024,heads=16,blocks=12,vocab=50257,ffn=4096,top_k=2"
_PP = "--model gpt3-6.7b --layout pp=8,"

PUBLISHED = (
    Published(
        "poseidon", "--model vgg-19-22k --batch 32 --layout dp=16 --machine "
        "a100:flops=3.3e12,memory=3e11,network=1.25e9,ranks=1,alpha=2e-5", "one", 15.5, 15.5,
        "Zhang et al., ATC 2017, abstract: VGG19-22K on 16 nodes at 10 Gbit/s, 15.5x one node", "few tokens",
        "10.8 with gradients as sums; what is left of 16 is all nodes' products, computed on each; the lab's column is "
        "over serial",
    ),
    Published(
        "gradientflow", "--model alexnet --element 2 --batch 128 --layout dp=512 --machine "
        "a100:flops=62e12,memory=9e11,network=7e9,ranks=1,alpha=1e-5", "serial", 0, 0,
        "Sun et al., 2019, abstract: AlexNet on 512 GPUs is 410 times as fast as on one (80 % of the ideal)", "dp",
        "the paper tells no gain over its own baseline; its sparsification, which loses gradients, is left out", True,
    ),
    Published(
        "ddp", "--model bert-large --element 4 --batch 4 --layout dp=32 --machine "
        "a100:flops=7.8e12,memory=9e11,network=12.5e9,alpha=2e-5", "serial", 0, 0,
        "Li et al., VLDB 2020: near-linear to 256 GPUs; no single figure for overlap is in its abstract", "dp",
        "at 100 Gbit/s per rank most of a sum is hidden behind the backward, which is what buckets are for",
    ),
    Published(
        "p3", f"--model resnet-50 --batch 32 --layout dp=4 --machine {_P4000}", "fifo", 1.25, 1.25,
        "Jayarajan et al., MLSys 2019, abstract: ResNet-50, up to 25 % (VGG-19: 66 %)", "dp",
        "VGG-19's 66 % are not seen: one server's link held the largest layer there, and sums over all ranks have no "
        "such link",
        True,
    ),
    Published(
        "tictac", f"--model resnet-50 --batch 32 --layout dp=4 --machine {_P4000}", "fifo", 1.192, 1.192,
        "Hashemi et al., MLSys 2019, abstract: training, up to 19.2 %", "dp",
        "r is about 1 here, where a priority is worth most; TensorFlow's random order is not simulated", True,
    ),
    Published(
        "bytescheduler", f"--model vgg-16 --batch 32 --layout dp=32 --machine {_V100},network=1.5625e9", "serial",
        1.0, 2.96, "Peng et al., SOSP 2019, abstract: up to 196 %, all configurations faster", "dp",
        "2.96 is over parameter servers in MXNet, which wait for a global barrier and whose servers are unevenly "
        "loaded; no order can give more than (C + M) / max(C, M)",
        True,
    ),
    Published(
        "pace", f"--model resnet-50 --batch 32 --layout dp=64 --machine {_V100},network=1.25e9", "fifo", 1.0, 1.36,
        "Bao et al., INFOCOM 2020, abstract: up to 36 %", "dp",
        "the paper's most is over its weakest baseline; ours is fifo without fusion, at full rate", True,
    ),
    Published(
        "lina", f"--model {_EXPERTS},experts=16,seq=512,blocks=24 --layout dp=16,ep=16,microbatches=2 --batch 8 "
        "--machine a100:network=12.5e9,ranks=1", "fifo", 1.0, 1.73, "Li et al., ATC 2023, abstract: up to 1.73x", "ep",
        "its packing of experts is left out; gradients of the lab are few, and hidden however they are sent: predicted "
        "there as schemoe is", True,
    ),
    Published(
        "breadth_first", "--model gpt:hidden=8192,heads=64,blocks=64,vocab=50257,seq=1024 --layout "
        f"pp=4,dp=8,tp=2,microbatches=4,zero=3 --machine {_TENSOR},box=130e9,network=25e9", "fifo", 1.43, 1.43,
        "Lamy-Poirier, MLSys 2023, abstract: 52 billion parameters, small batch per GPU, 43 % over Megatron-LM", "pp",
        "sharded 1F1B gathers weights for each microbatch, which Megatron-LM, unsharded, does not: hence more",
    ),
    Published(
        "collective_matmul", "--model gpt:hidden=16384,heads=128,blocks=16,vocab=32000,seq=2048,ffn=65536 --layout "
        "tp=16 --batch 2 --machine a100:flops=137e12,box=100e9,ranks=16,alpha=2e-6", "fifo", 1.14, 1.38,
        "Wang et al., ASPLOS 2023: 1.14 to 1.38x, 500 billion parameters on 1,024 TPUv4", "tp", "",
    ),
    Published(
        "syndicate", "--model gpt2-xl --layout dp=16 --batch 4 --machine a100:flops=62e12,box=130e9,network=12.5e9",
        "fifo", 1.21, 1.74, "Mahajan et al., NSDI 2023, abstract: 21 to 74 %", "dp",
        "much of it is its two levels: fifo's one ring is as slow as the network between the boxes; the lab has one "
        "network", True,
    ),
    Published(
        "centauri", "--model gpt3-6.7b --layout dp=4,tp=8,microbatches=2 --machine a100:network=6e9", "fifo", 1.0, 1.49,
        "Chen et al., ASPLOS 2024, abstract: up to 1.49x", "dp", "",
    ),
    Published(
        "dear", f"--model resnet-50 --batch 32 --layout dp=64 --machine {_V100},network=1.25e9", "fifo", 1.0, 1.83,
        "Zhang et al., ICDCS 2023, abstract: 64 GPUs, up to 83 % at 10 Gbit/s, 15 % at 100", "dp",
        "83 % are over the slowest of its baselines, whose sums take many short messages; 33 % is what any order can "
        "win over fifo at full rate",
        True,
    ),
    Published(
        "coconet", "--model bert-large --layout dp=256 --batch 8 --machine "
        f"{_TENSOR},network=12.5e9,ranks=1", "serial", 0, 0,
        "Jangda et al., ASPLOS 2022: its abstract tells no figure, and its text could not be read here", "dp",
        "no tile is smaller than a slice here; a launch that a fused kernel saves is not simulated", True,
    ),
    Published(
        "t3", "--model gpt:hidden=4096,heads=32,blocks=8,vocab=50257,seq=1024 --layout tp=8 --batch 16 --machine "
        "a100:box=75e9", "fifo", 1.30, 1.47,
        "Pati et al., ASPLOS 2024, abstract: sublayers, 30 % geomean, 47 % at most",
        "simulated only: it is hardware",
        "a whole step here, sublayers there; our pieces cost nothing to start, as its hardware's do",
    ),
    Published(
        "ooo_backprop", f"--model resnet-50 --batch 64 --layout dp=16 --machine {_V100},network=1.25e9", "fifo", 1.10,
        1.27, "Oh et al., EuroSys 2022, abstract: data parallel 1.10 to 1.27x (pipelines 1.41 to 1.99x)", "dp", "",
        True,
    ),
    Published(
        "zero_bubble:memory=2p", _PP + "microbatches=24 --machine a100", "fifo", 1.23, 1.31,
        "Qi et al., ICLR 2024, abstract: 23 % at the memory of 1F1B, 31 % with more", "pp", "",
    ),
    Published(
        "oases", "--model gpt:hidden=4096,heads=32,blocks=16,vocab=50257,seq=1024 --layout "
        "tp=8,microbatches=2,recompute=on --batch 4 --machine a100:flops=35e12,box=10e9", "fifo", 1.01, 1.48,
        "Li et al., 2023, abstract: 1.01 to 1.48x over the fastest baseline", "tp", "",
    ),
    Published(
        "lynx", "--model gpt3-6.7b --layout tp=4,pp=4,microbatches=8,recompute=on --batch 2 --machine a100:box=100e9",
        "late", 1.0, 1.37, "Chen et al., 2024, abstract: up to 1.37x", "recompute",
        "over activations computed again when the gradient has come, as autograd does; our fifo starts before, and "
        "gets all but 1 or 2 % of it",
        True,
    ),
    Published(
        "gshard", f"--model {_EXPERTS},experts=16,seq=1024 --layout dp=16,ep=16 --batch 4 --machine "
        "a100:flops=53e12,network=12.5e9", "serial", 0, 0, "Lepikhin et al., ICLR 2021: a model, not a gain", "ep",
        "it is the plain order for experts",
    ),
    Published(
        "tutel", f"--model {_EXPERTS},experts=16,seq=1024 --layout dp=16,ep=16 --batch 4 --machine "
        "a100:network=12.5e9", "fifo", 1.0, 1.55,
        "Hwang et al., MLSys 2023, abstract: SwinV2-MoE, up to 1.55x in training (2.11x in inference)",
        "one expert:tutel",
        "over Fairseq, whose dispatch is dense and whose all_to_all is slower; of that only the chunks are an order",
    ),
    Published(
        "fastermoe", f"--model {_EXPERTS},experts=16,seq=1024 --layout dp=16,ep=16 --batch 8 --skew 0.7 --machine "
        f"{_TENSOR},network=12.5e9", "fifo", 1.37, 17.87,
        "He et al., PPoPP 2022, abstract: 1.37 to 17.87x over ZeRO, GShard and BASE", "skewed:fastermoe",
        "17.87 is over ZeRO; demand is by Zipf's law here and (with exponent 1) in the lab: the paper's is not public",
        True,
    ),
    Published(
        "pipemoe", f"--model {_EXPERTS},experts=16,seq=1024 --layout dp=16,ep=16 --batch 4 --machine "
        "a100:flops=53e12,network=12.5e9", "fifo", 1.05, 1.77,
        "Shi et al., INFOCOM 2023, abstract: 5 to 77 % over other systems for experts", "ep",
        "its plan is that of any other system that sends chunks as they are ready, if both have the same degree: in "
        "the lab schemoe's",
    ),
    Published(
        "schemoe", f"--model {_EXPERTS},experts=32,seq=1024 --layout dp=32,ep=32 --batch 4 --machine "
        "a100:flops=53e12,network=12.5e9", "fifo", 1.09, 1.30,
        "Shi et al., EuroSys 2024, abstract: 9 to 30 % over Tutel and FasterMoE", "ep",
        "over fifo here, over other chunked systems there; its compression is left out, and without that no order is "
        "faster in the lab than as chunks are ready: pipemoe's plan", True,
    ),
    Published(
        "janus", f"--model {_EXPERTS.replace('top_k=2', 'top_k=4')},experts=32,seq=1024 --layout dp=32,ep=32 "
        "--batch 32 --machine a100:network=12.5e9", "fifo", 1.0, 2.06,
        "Liu et al., SIGCOMM 2023, abstract: up to 2.06x on 32 A100",
        "small experts",
        "experts weigh as much as tokens here: what is won is that they come before they are needed; in the lab they "
        "weigh less",
    ),
    Published(
        "flowmoe", f"--model {_EXPERTS},experts=16,seq=1024 --layout dp=16,ep=16,microbatches=2 --batch 4 --machine "
        "a100:flops=53e12,network=12.5e9", "fifo", 1 / 0.87, 1 / 0.43,
        "Gao et al., NeurIPS 2025, abstract: 13 to 57 % less time, 675 layers", "ep", "", True,
    ),
    Published(
        "domino", "--model gpt3-6.7b --layout tp=8 --batch 8 --machine h100:box=150e9", "fifo", 1.0, 1.3,
        "Wang et al., 2024, abstract: up to 1.3x", "tp", "",
    ),
    Published(
        "dualpipe", "--model mixtral-8x7b --layout pp=4,dp=8,ep=8,microbatches=16 --machine h100:ranks=1", "fifo",
        41.25 / 31.31, 41.25 / 31.31, "Megatron-Bridge, issue 3862: combined 1F1B, 41.25 s to 31.31 s a step", "pp",
        "DeepSeek tells no gain; this is the same order in another framework",
    ),
)  # fmt: skip
