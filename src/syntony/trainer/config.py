"""The training configuration: one TOML file, overridden by `--set section.key=value`.

Each section is a dataclass below, and each key is one of its fields. Errors are reported in one sentence with file,
line and key, before anything starts.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from syntony.base.command import UserError
from syntony.base.files.bundled import bundled, ours
from syntony.base.files.text_file import parse_toml, read_text
from syntony.base.wording import did_you_mean
from syntony.overlap.step.layout import Clip, Layout
from syntony.overlap.step.layout import Parallel as Parallel
from syntony.overlap.step.model_spec import ModelSpec

ELEMENTWISE = ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "ASGD", "Rprop")
_ONE = "blocks width heads top rows microbatches dp tp pp ep cp replicas loops slices inner prefetch threads every"
_LEAST = dict.fromkeys((*_ONE.split(), "together", "secondary", "relay", "islands", "local"), 1) | {
    "context": 2,
    "vocabulary": 256,
}
"""Of whole numbers; of others 0."""


@dataclass(frozen=True)
class Model:
    """The transformer. `experts` 0: dense; else every block's MLP is that many experts, `top` of them per token."""

    blocks: int = 4
    width: int = 128
    heads: int = 4
    kv: int = 0  # heads of keys and values, each shared by adjacent heads (grouped-query attention); 0: all
    hidden: int = 0  # of the MLP; 0: 4 widths, or 8/3 of one for swiglu, as a multiple of 64
    context: int = 128
    vocabulary: int = 256
    activation: Literal["swiglu", "gelu"] = "swiglu"
    positions: Literal["rotary", "learned"] = "rotary"
    experts: int = 0
    top: int = 2
    balance: float = 0.01  # weight of the load-balancing loss
    capacity: float = (
        0.0  # most rows of an expert, of a rank's microbatch, over its even share; more are dropped, which
    )
    # changes what is learned. 0: nothing is dropped
    together: int = 1  # number of blocks per layer, for fewer and longer ops if blocks are thin

    @property
    def sharing(self) -> int:
        """The number of heads that share keys and values."""
        return self.heads // (self.kv or self.heads)

    @property
    def spec(self) -> ModelSpec:
        """Its shape in the planner's terms."""
        gated, learned = self.activation == "swiglu", self.positions == "learned"
        return ModelSpec(
            self.width, self.blocks, self.heads, self.kv or self.heads, self.hidden, self.vocabulary, self.context,
            gated, self.experts, self.top if self.experts else 0, learned=learned, together=self.together,
        )  # fmt: skip


@dataclass(frozen=True)
class Data:
    """Text. A step takes `microbatches` of `rows` sequences each, all data ranks together."""

    source: str = "stdlib"  # or a file or a folder
    pattern: str = "*.py"  # of the files in a folder
    rows: int = 4
    microbatches: int = 4
    shares: tuple[int, ...] = ()  # sequences of the microbatches of each data rank, `rows` on average; empty: all alike
    deal: Literal["evenly", "measured"] = "evenly"  # measured: shares by the ranks' measured speeds

    def rows_at(self, index: int) -> int:
        """Sequences of the microbatch of this global index."""
        return self.shares[index * len(self.shares) // self.microbatches] if self.shares else self.rows


@dataclass(frozen=True)
class Optimizer:
    """Any elementwise class of torch.optim by name; `options` go to it. The norm's gains do not decay."""

    name: str = "AdamW"
    lr: float = 1e-3
    warmup: int = 20  # steps in which lr grows linearly
    final: float = 0.1  # part of lr at the last step, reached along a cosine
    options: Mapping[str, Any] = field(default_factory=dict)
    clip: Literal["exact", "optimistic", "off"] = "exact"
    clip_norm: float = 1.0
    outer_lr: float = 0.7  # of what islands have learned, with [parallel] outer = "nesterov", and
    outer_momentum: float = 0.9


@dataclass(frozen=True)
class Overlap:
    """The policy that makes the Plan, and its knobs; or an existing plan."""

    policy: str = "poseidon"  # `syntony overlap list` shows all; A+B: both; "search": what is best on real steps
    knobs: Mapping[str, Any] = field(default_factory=dict)
    plan: str = ""  # a plan file to use instead
    profile: int = 2  # steps that are measured first, and discarded
    follow: int = 0  # steps after which experts are placed anew by their demand; 0: they stay (with ep)
    tune: int = 0  # steps per setting when tuning the policy's knobs during training; 0: no tuning


@dataclass(frozen=True)
class Run:
    """One training run."""

    steps: int = 100
    seed: int = 0
    backend: str = "syntony"  # any torch backend
    canonical: bool = True  # sums with the same bits for every layout; else in the backend's order
    dtype: Literal["float32", "bfloat16"] = "float32"
    placement: str = ""  # a file of `syntony place -o`: the rank in the run of each started rank
    device: str = "cpu"  # device for computation: cpu, cuda, or another of torch's
    compute: Literal["real", "emulated"] = "real"
    forward: float = 0.001  # emulated: seconds of one block's forward for one microbatch; a backward takes twice that
    speeds: tuple[float, ...] = ()  # emulated: speeds of data ranks, relative to `forward`; empty: all equal
    even: bool = False  # tokens go to experts in turn, whatever they say: for measurements; emulated: always
    skew: float = 0.0  # even: in turn by the shares of Zipf's law with this exponent; 0: equal shares
    threads: int = 1
    timeout: float = 30.0  # seconds after which a silent rank is considered lost
    every: int = 10  # steps between lines of progress
    held_out: int = 0  # steps between evaluations on held-out text, each a step without its update; 0: none
    log: str = ""  # JSONL file
    save: str = ""  # folder of checkpoints
    save_every: int = 0  # steps; 0: at the end only
    resume: str = ""  # a checkpoint's folder; "newest": the last one in `save`, if there is one


@dataclass(frozen=True)
class Elastic:
    """A run that survives the loss of ranks: their state is copied into the memory of others during training."""

    copies: int = (
        0  # of every shard, on other hosts where there are some; so many losses at a time are survived. 0: none
    )
    every: int = 1  # steps from one copy to the next
    door: str = ""  # HOST:PORT of a host of this run at which ranks may join


@dataclass(frozen=True)
class Config:
    """The whole configuration. Read with `load`."""

    model: Model = Model()
    data: Data = Data()
    optimizer: Optimizer = Optimizer()
    parallel: Parallel = field(default=Parallel())
    overlap: Overlap = Overlap()
    run: Run = Run()
    elastic: Elastic = Elastic()

    @property
    def world(self) -> int:
        return self.parallel.ranks

    @property
    def even(self) -> bool:
        """Whether tokens go to experts in turn, without a router's choice."""
        return self.run.even or self.run.compute == "emulated"

    @property
    def layout(self) -> Layout:
        """The layout of a step. Raises UserError if the sizes do not fit together."""
        microbatches = self.data.microbatches // self.parallel.dp
        return Layout(**vars(self.parallel), microbatches=microbatches, clip=Clip(self.optimizer.clip))


BUNDLED: Mapping[str, Path] = bundled(Path(__file__).with_name("configs"), ".toml")


def load(path: str | Path, settings: Sequence[str] = ()) -> Config:
    """The file with `section.key=value` settings applied, checked. Raises UserError with file, line and key.

    If there is no such file, the one of that name among `BUNDLED`.
    """
    if not Path(path).is_file():
        path = BUNDLED.get(str(path), path)
    if not Path(path).exists():
        raise UserError(f"{path}: there is no such file{ours(str(path), BUNDLED)}")
    text = read_text(path)
    tables = parse_toml(text, path)
    places = {key: f"{path}:{line}" for key, line in _lines(text).items()}
    for setting in settings:
        name, equals, value = setting.partition("=")
        section, _, key = name.strip().partition(".")
        if not equals or not key:
            raise UserError(f"--set {setting}: it must be section.key=value, such as run.steps=20")
        try:
            found = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found = value.strip()
        table = tables.setdefault(section, {})
        *outer, last = key.split(".")
        for step in outer:
            table = table.setdefault(step, {})
        table[last] = found
        places[section, key.split(".")[0]] = places[section, ""] = f"--set {setting}"

    def where(section: str, key: str = "") -> str:
        return places.get((section, key), places.get((section, ""), str(path)))

    sections = {each.name: each.default for each in fields(Config)}
    made: dict[str, Any] = {}
    for section, table in tables.items():
        if section not in sections:
            raise UserError(f"{where(section)}: unknown section [{section}]{_guess(section, sections)}")
        if not isinstance(table, dict):
            raise UserError(f"{where('', section)}: {section} is a section: write [{section}], and its keys below")
        kind: Any = type(sections[section])
        types = get_type_hints(kind)
        for key, value in table.items():
            if key not in types:
                raise UserError(f"{where(section, key)}: unknown key {key!r} in [{section}]{_guess(key, types)}")
            table[key] = _typed(value, types[key], f"{where(section, key)}: [{section}] {key}")
        made[section] = kind(**table)
    return checked(Config(**made), where)


def _lines(text: str) -> dict[tuple[str, str], int]:
    """The lines of keys: (section, key), and (section, "") for its heading."""
    found: dict[tuple[str, str], int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        heading = re.match(r"\s*\[\s*([^]\s]+)\s*]", line)
        key = re.match(r"\s*([\w-]+)\s*[.=]", line)
        if heading:
            section, _, rest = heading[1].partition(".")
            found.setdefault((section, rest.split(".")[0]), number)
        elif key:
            found.setdefault((section, key[1]), number)
    return found


def _guess(word: str, known: Iterable[str]) -> str:
    return did_you_mean(word, known) or f"; there are {', '.join(known)}"


def _typed(value: Any, kind: Any, what: str) -> Any:
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            choices = ", ".join(map(repr, get_args(kind)))
            raise UserError(f"{what} is {value!r}; it must be one of {choices}")
        return value
    if kind is float and type(value) is int:
        return float(value)
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple(_typed(each, get_args(kind)[0], what) for each in value)
    kind = tuple if get_origin(kind) is tuple else kind
    if get_origin(kind) is Mapping:
        kind = dict
    if type(value) is not kind:
        names = {
            int: "a whole number",
            float: "a number",
            str: "text",
            bool: "true or false",
            dict: "a table",
            tuple: "a list",
        }
        raise UserError(f"{what} is {value!r}; it must be {names[kind]}")
    return value


def checked(config: Config, where: Callable[[str, str], str]) -> Config:
    """The configuration with defaults filled in. Raises UserError if sizes do not fit together."""
    model, data, sizes, optimizer = config.model, config.data, config.parallel, config.optimizer

    def refuse(section: str, key: str, sentence: str) -> NoReturn:
        raise UserError(f"{where(section, key)}: [{section}] {key} is {_value(config, section, key)!r}; {sentence}")

    for section in fields(config):
        for each in fields(getattr(config, section.name)):
            value = _value(config, section.name, each.name)
            if type(value) is int and value < _LEAST.get(each.name, 0):
                refuse(section.name, each.name, f"it must be {_LEAST.get(each.name, 0)} or more")
    if model.width % model.heads:
        refuse("model", "heads", f"it must divide width, which is {model.width}")
    if model.kv and model.heads % model.kv:
        refuse("model", "kv", f"it must divide heads, which is {model.heads}")
    if model.positions == "rotary" and model.width // model.heads % 2:
        refuse("model", "heads", "rotary positions need an even width / heads")
    if model.experts and model.top > model.experts:
        refuse("model", "top", f"there are {model.experts} experts")
    if model.capacity < 0:
        refuse("model", "capacity", "it must be 0, for none, or above, such as 1.25")
    if model.blocks % model.together:
        refuse("model", "together", f"it must divide blocks, which is {model.blocks}")
    if model.together > 1 and (model.experts or sizes.tp * sizes.cp > 1):
        refuse("model", "together", "blocks in which something travels (experts, tp, cp) are layers of their own")
    if data.microbatches % sizes.dp:
        refuse("data", "microbatches", f"dp, which is {sizes.dp}, must divide it")
    turns = data.microbatches // sizes.dp
    if config.run.canonical and sizes.dp * sizes.copies > 1 and turns & (turns - 1):
        refuse("data", "microbatches", f"that is {turns} per data rank: canonical sums need a power of two there")
    if data.shares or data.deal == "measured":
        _check_shares(config, refuse)
    if sizes.apart and (config.overlap.follow or config.overlap.tune or config.elastic.copies):
        refuse("parallel", "islands", "islands train apart: [overlap] follow and tune, and [elastic] copies must be 0")
    if optimizer.outer_lr <= 0 or not 0 <= optimizer.outer_momentum < 1:
        refuse("optimizer", "outer_lr", "it must be above 0, and outer_momentum from 0 to below 1")
    if config.overlap.follow and (sizes.ep == 1 or config.run.compute != "real" or config.elastic.copies):
        refuse("overlap", "follow", "it needs experts that are spread (ep), real computing, and no [elastic] copies")
    if config.run.speeds and len(config.run.speeds) != sizes.dp:
        refuse("run", "speeds", f"there must be one for each of {sizes.dp} data ranks (dp)")
    if config.run.speeds and (config.run.compute != "emulated" or min(config.run.speeds) <= 0):
        refuse("run", "speeds", "they must be above 0, and [run] compute emulated: real ranks are as fast as they are")
    if sizes.slices > 1 and model.context % sizes.slices:
        refuse("parallel", "slices", f"it must divide [model] context, which is {model.context}")
    if sizes.slices > 1 and model.experts:
        refuse("parallel", "slices", "routers see whole sequences: [model] experts must be 0")
    if sizes.ep > 1 and not model.experts:
        refuse("parallel", "ep", "but [model] experts is 0")
    if optimizer.name not in ELEMENTWISE:
        refuse("optimizer", "name", f"it must be an elementwise one of torch.optim: {', '.join(ELEMENTWISE)}")
    if optimizer.clip != "off" and optimizer.clip_norm <= 0:
        refuse("optimizer", "clip_norm", "it must be above 0")
    if config.run.device != "cpu":
        if config.overlap.profile:
            refuse("overlap", "profile", f"what ops cost on {config.run.device} is not measured yet: it must be 0")
        if config.run.canonical and config.run.backend != "syntony":
            refuse("run", "canonical", f"sums on {config.run.device} are canonical with backend syntony only")
        if config.run.compute != "real":
            refuse("run", "compute", "that is a matter of the CPU's clock: device must be cpu")
    tune, given = config.overlap.tune, config.overlap.plan or config.overlap.policy.partition(":")[0] == "search"
    if tune == 1:
        refuse("overlap", "tune", "the first step of a setting is not counted: it must be 0, or 2 or more")
    if tune and (given or not config.overlap.profile):
        refuse("overlap", "tune", "it turns the knobs of a policy: there must be no plan, no search, and a profile")
    if config.run.skew and not config.even:
        refuse("run", "skew", "tokens choose as their router says: even must be true, or compute emulated")
    if config.run.skew < 0:
        refuse("run", "skew", "it must be 0 or above, such as 1.0")
    if config.elastic.copies:
        if config.run.placement:
            refuse("run", "placement", "ranks of a run that goes on are not placed: [elastic] copies must be 0")
        if config.run.backend != "syntony":
            refuse("elastic", "copies", "ranks are told of a loss by [run] backend syntony only")
        if config.overlap.plan or config.overlap.tune:
            refuse("elastic", "copies", "those who are left need another plan: [overlap] plan and tune must not be set")
    if config.elastic.door:
        host, _, port = config.elastic.door.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            refuse("elastic", "door", "it must be HOST:PORT, such as 10.0.0.1:29600")
        if not config.elastic.copies:
            refuse("elastic", "door", "who joins needs the state of those who are there: copies must be 1 or more")
    if config.run.resume == "newest" and not config.run.save:
        refuse("run", "resume", "then [run] save must name the folder of the checkpoints")
    if model.hidden == 0:
        hidden = 4 * model.width if model.activation == "gelu" else -(-8 * model.width // 3 // 64) * 64
        config = replace(config, model=replace(model, hidden=hidden))
    return config


def _check_shares(config: Config, refuse: Callable[[str, str, str], NoReturn]) -> None:
    data, sizes, shares = config.data, config.parallel, config.data.shares
    key = "shares" if shares else "deal"
    if shares and (min(shares) < 1 or sum(shares) != data.rows * len(shares)):
        refuse("data", key, f"each must be 1 or more, and their sum {len(shares)} x rows, which is {data.rows}")
    if shares and (data.microbatches % len(shares) or sizes.dp % len(shares)) and sizes.ranks > 1:
        refuse("data", key, f"there must be one for each data rank, and dp is {sizes.dp}")
    if sizes.ep > 1 or sizes.batch_parts > 1:
        refuse("data", key, "ranks that share microbatches (ep, grid, rotate) must have equal ones")
    if config.elastic.copies:
        refuse("data", key, "with [elastic] copies others would have to take them over")


def _value(config: Config, section: str, key: str) -> Any:
    return getattr(getattr(config, section), key)
