"""Records a small program of each framework as it is, and writes docs/frameworks.md with what came of it.

    python benchmarks/frameworks.py PYTHON...

Each program runs in the first PYTHON that can import all it needs, those that ask for a version in every one.
"""

from __future__ import annotations

import datetime as dt
import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from advisor.recording.launcher import Options, run

PAGE: Final = Path(__file__).parents[1] / "docs/frameworks.md"
_TORCH: Final = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
data = torch.utils.data.TensorDataset(torch.randn(240, 8), torch.randn(240, 8))
loss_of = nn.MSELoss()
"""
_LOOP: Final = """
def loop(loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad(); loss_of(model(x), y).backward(); optimizer.step()
"""
_LOADER: Final = "torch.utils.data.DataLoader(data, batch_size=4{})"


@dataclass(frozen=True)
class Program:
    """A program, the modules it needs, and the steps that its recording should hold."""

    name: str
    needs: tuple[str, ...]
    text: str
    ends: str
    everywhere: bool = False


PROGRAMS: Final = (
    Program(
        "plain loop",
        ("torch",),
        f"{_TORCH}{_LOOP}loop({_LOADER.format('')}, torch.optim.Adam(model.parameters()))",
        "optimizer",
        everywhere=True,
    ),
    Program(
        "GAN, five steps of one to one of the other",
        ("torch",),
        _TORCH
        + """
g, d = (torch.optim.Adam(nn.Linear(8, 8).parameters()) for _ in range(2))
for _ in range(40):
    for _ in range(5): model(torch.randn(4, 8)).sum().backward(); d.step()
    model(torch.randn(4, 8)).sum().backward(); g.step()
""",
        "optimizer",
    ),
    Program(
        "gradient accumulation",
        ("torch",),
        _TORCH
        + """
optimizer = torch.optim.AdamW(model.parameters())
for i in range(160):
    model(torch.randn(4, 8)).sum().backward()
    if i % 4 == 3: optimizer.step(); optimizer.zero_grad()
""",
        "optimizer",
    ),
    Program(
        "LBFGS",
        ("torch",),
        _TORCH
        + """
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
def closure():
    optimizer.zero_grad(); loss = model(torch.ones(4, 8)).pow(2).mean(); loss.backward(); return loss
for i in range(40): optimizer.step(closure)
""",
        "optimizer",
    ),
    Program(
        "loader with forked workers",
        ("torch",),
        f"{_TORCH}{_LOOP}loop({_LOADER.format(', num_workers=2')}, torch.optim.SGD(model.parameters(), 0.1))",
        "optimizer",
    ),
    Program(
        "loader with spawned workers",
        ("torch",),
        _TORCH
        + _LOOP
        + "if __name__ == '__main__': loop("
        + _LOADER.format(", num_workers=1, multiprocessing_context='spawn'")
        + ", torch.optim.SGD(model.parameters(), 0.1))",
        "optimizer",
    ),
    Program(
        "compiled model",
        ("torch",),
        f"{_TORCH}{_LOOP}model = torch.compile(model, backend='eager')\n"
        f"loop({_LOADER.format('')}, torch.optim.SGD(model.parameters(), 0.1))",
        "optimizer",
    ),
    Program(
        "inference",
        ("torch",),
        _TORCH + "\nwith torch.inference_mode():\n    for _ in range(60): model(torch.randn(4, 8))",
        "module",
    ),
    Program(
        "accelerate",
        ("accelerate",),
        _TORCH
        + f"""
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), {_LOADER.format("")})
for x, y in loader:
    optimizer.zero_grad(); accelerator.backward(loss_of(model(x), y)); optimizer.step()
""",
        "optimizer",
    ),
    Program(
        "Lightning",
        ("lightning",),
        _TORCH
        + f"""
import lightning as L
class Module(L.LightningModule):
    def __init__(self): super().__init__(); self.model = model
    def training_step(self, batch, i): return loss_of(self.model(batch[0]), batch[1])
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)
L.Trainer(max_epochs=1, accelerator='cpu', logger=False, enable_checkpointing=False, enable_progress_bar=False).fit(
    Module(), {_LOADER.format("")})
""",
        "optimizer",
    ),
    Program(
        "Hugging Face Trainer",
        ("transformers", "accelerate"),
        """
import tempfile, torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
rows = [{'input_ids': torch.randint(0, 50, (8,)), 'labels': 0} for _ in range(120)]
args = TrainingArguments(tempfile.mkdtemp(), per_device_train_batch_size=2, num_train_epochs=1, use_cpu=True,
    report_to=[], save_strategy='no', disable_tqdm=True)
Trainer(BertForSequenceClassification(config), args, train_dataset=rows).train()
""",
        "optimizer",
    ),
    Program(
        "JAX",
        ("jax",),
        """
import jax, jax.numpy as jnp
@jax.jit
def init(key): return jax.random.normal(key, (8, 8))
@jax.jit
def step(w, x): return w - 0.1 * jax.grad(lambda w: ((x @ w) ** 2).mean())(w)
w = init(jax.random.key(0))
for i in range(80): w = step(w, jnp.ones((4, 8)))
""",
        "function",
    ),
    Program(
        "Keras",
        ("keras", "tensorflow"),
        """
import keras, numpy as np
model = keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile('sgd', 'mse')
model.fit(np.ones((240, 8)), np.ones((240, 1)), batch_size=4, verbose=0)
""",
        "fit",
    ),
    Program(
        "tf.function",
        ("tensorflow",),
        """
import tensorflow as tf
w = tf.Variable(tf.ones((8, 8)))
@tf.function
def step(x): w.assign_sub(0.1 * tf.reduce_mean(x @ w) * tf.ones((8, 8)))
for i in range(60): step(tf.ones((4, 8)))
""",
        "function",
    ),
)


def main(pythons: Sequence[str]) -> int:
    """Run all and write the page; 1 where a program was not recorded as it should be."""
    rows = [row for program in PROGRAMS for row in _rows(program, pythons)]
    failed = [row for row in rows if not row[-1].startswith(("recorded", "not run"))]
    table = ["| program | versions | outcome |", "| --- | --- | --- |", *(f"| {' | '.join(row)} |" for row in rows)]
    today = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
    PAGE.write_text("\n".join([*_HEAD, f"Last run on {today}, on a CPU.", "", *table, ""]), "utf-8")
    print("\n".join(table))
    return bool(failed)


_HEAD: Final = (
    "# Frameworks that `advisor record` was tried on",
    "",
    "`make frameworks` records a small program of each framework as it is, three steps of each, and writes this page.",
    "No GPU was at hand: CUDA is untested.",
    "",
)


def _rows(program: Program, pythons: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    able = [(python, versions) for python in pythons if (versions := _versions(python, program.needs))]
    for python, versions in able if program.everywhere else able[:1]:
        outcome = _outcome(program, python)
        print(f"{program.name}: {outcome}", file=sys.stderr)
        yield program.name, versions, outcome
    if not able:
        yield program.name, ", ".join(program.needs), "not run: not installed"


def _versions(python: str, modules: Sequence[str]) -> str:
    """`torch 2.13.0, Python 3.11`; empty where one of the modules is missing."""
    code = (
        "import sys; from importlib.metadata import version as v; from importlib.util import find_spec as f;"
        f"names = {modules!r}; assert all(map(f, names));"
        "n = lambda name: v('tensorflow-cpu') if name == 'tensorflow' else v(name);"
        "print(*(f'{m} {n(m)}' for m in names), 'Python %d.%d' % sys.version_info[:2], sep=', ')"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _outcome(program: Program, python: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        script, logdir = Path(folder, "program.py"), Path(folder, "log")
        script.write_text(program.text, "utf-8")
        outcome = run([python, str(script)], logdir, Options(skip=3, active=3))
        results = [event for event in outcome.events if event["event"] == "result" and event["path"]]
        kinds = [event["kind"] for event in outcome.events if event["event"] == "marker"]
        if outcome.exit_code or len(results) != 1 or kinds[-1:] != [program.ends]:
            return f"FAILED: exit code {outcome.exit_code}, {len(results)} recordings, steps by {kinds or 'nothing'}"
        steps = _steps(logdir)
        return f"recorded{'' if steps is None else f', {steps} steps'} by {program.ends}"


def _steps(logdir: Path) -> int | None:
    """Steps marked in the one Kineto file; None for XPlane."""
    for path in logdir.glob("*.pt.trace.json.gz"):
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        return len({event["name"] for event in events if str(event.get("name")).startswith("ProfilerStep#")})
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or [sys.executable]))
