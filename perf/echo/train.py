"""One training run of the study: a small CNN on Fashion-MNIST, fed by Forebay, evaluated often, ended where it reaches a target."""

import dataclasses
import time

import fashion
import numpy
import torch
from forebay import REPEAT
from torch import nn

AVERAGED = 0.99  # of the weights' moving average, at a batch of 128: it is what is evaluated
EVALUATE_EVERY = 7680  # samples: whole batches of 32, 128 and 512
SELDOM_UNTIL = 12 * EVALUATE_EVERY
EVALUATED_AT_ONCE = 1000
SIZE = 28


@dataclasses.dataclass(frozen=True)
class Configuration:
    """What a run depends on. `buffer` is in samples, of whole batches in batches; `place`: before or after the augmentation, or batch."""

    factor: float
    place: str
    buffer: int
    batch: int
    rate: float
    seed: int

    @property
    def key(self):
        return "/".join(str(value) for value in dataclasses.astuple(self))

    def spec(self, folder, before=()):
        """The task. `before` stands at the head of what is done to a sample once it is decoded."""
        echo = [{"echo": {"factor": self.factor, "buffer": self.buffer}}]
        augmentation = [{"random_crop": {"size": SIZE, "padding": 2}}, "random_horizontal_flip"]
        batch = {"size": self.batch, "drop_last": True}
        pipeline = ["decode", *before]
        if self.place == "batch":
            batch["echo"] = {"factor": self.factor, "buffer": self.buffer}
            pipeline += augmentation
        elif self.factor == 1:
            pipeline += augmentation
        elif self.place == "before":
            pipeline += echo + augmentation
        else:
            pipeline += augmentation + echo
        return {
            "dataset": str(folder),
            "order": "strict",
            "seed": self.seed,
            "augment_seed": self.seed,
            "pipeline": [*pipeline, {"to": {"dtype": "u8", "layout": "chw"}}],
            "batch": batch,
        }


def network():
    """Convolutions alone, the last ones over what is left of the picture: they don't need a BLAS."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 7),
        nn.ReLU(),
        nn.Conv2d(64, 10, 1),
        nn.Flatten(),
    )


def as_input(levels):
    """Levels 0 to 255 of one channel, normalized."""
    return (levels.float() / 255 - 0.286) / 0.353


def batch_tensors(batch):
    """(pictures of one channel, labels), copied: the three channels of a gray picture are the same."""
    images, labels = batch
    return torch.tensor(numpy.asarray(images)[:, :1]), torch.tensor(numpy.asarray(labels)).long()


def fresh_of(batch):
    return int(numpy.count_nonzero((numpy.asarray(batch.flags) & REPEAT) == 0))


class Run:
    """A model, its optimizer, and the moving average of its weights: what is evaluated."""

    def __init__(self, configuration):
        self.configuration = configuration
        torch.set_num_threads(1)
        torch.manual_seed(configuration.seed)
        self.model, self.average = network(), network()
        self.average.load_state_dict(self.model.state_dict())
        self.optimizer = torch.optim.Adam(self.model.parameters(), configuration.rate)
        # The average spans as many samples with every batch.
        self.keep = AVERAGED ** (configuration.batch / 128)
        pictures, labels = fashion.arrays("t10k")
        self.pictures = as_input(torch.tensor(pictures).unsqueeze(1))
        self.labels = torch.tensor(labels, dtype=torch.long)

    def step(self, images, labels):
        loss = nn.functional.cross_entropy(self.model(as_input(images)), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            for ours, theirs in zip(self.average.parameters(), self.model.parameters()):
                ours.lerp_(theirs, 1 - self.keep)

    def accuracy(self):
        with torch.no_grad():
            right = sum(
                int((self.average(pictures).argmax(1) == labels).sum())
                for pictures, labels in zip(self.pictures.split(EVALUATED_AT_ONCE), self.labels.split(EVALUATED_AT_ONCE))
            )
        return right / len(self.labels)


def is_evaluated(emitted):
    """Seldom at first, where nobody reaches a target."""
    return emitted % (EVALUATE_EVERY if emitted >= SELDOM_UNTIL else 4 * EVALUATE_EVERY) == 0


def train(configuration, loader, most, target=None):
    """Trains on `most` emitted samples, or until the target. Returns the curve: [emitted, fresh, accuracy] at each evaluation."""
    run, curve, emitted, fresh = Run(configuration), [], 0, 0
    while emitted < most:
        for batch in loader:
            run.step(*batch_tensors(batch))
            emitted += configuration.batch
            fresh += fresh_of(batch)
            if is_evaluated(emitted):
                curve.append([emitted, fresh, run.accuracy()])
            if emitted >= most or (target and curve and curve[-1][2] >= target):
                return curve
    return curve


def train_timed(configuration, loader, most, step_s):
    """Trains on `most` emitted samples with steps of `step_s` seconds at least. Returns the curve: [emitted, fresh, accuracy, seconds
    since the first batch came]. What is evaluated are copies, once all is over, so that the clock sees none of it."""
    run, copies, emitted, fresh, begin = Run(configuration), [], 0, 0, None
    while emitted < most:
        for batch in loader:
            began = time.monotonic()
            begin = begin or began
            tensors = batch_tensors(batch)
            fresh += fresh_of(batch)
            del batch  # its place in the window is free while the step goes on
            run.step(*tensors)
            emitted += configuration.batch
            time.sleep(max(0, began + step_s - time.monotonic()))
            if is_evaluated(emitted):
                weights = [parameter.detach().clone() for parameter in run.average.parameters()]
                copies.append([emitted, fresh, weights, time.monotonic() - begin])
            if emitted >= most:
                break
    curve = []
    for emitted, fresh, weights, seconds in copies:
        for ours, theirs in zip(run.average.parameters(), weights):
            ours.data.copy_(theirs)
        curve.append([emitted, fresh, run.accuracy(), seconds])
    return curve
