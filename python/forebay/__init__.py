"""Training batches out of shared memory.

    import forebay

    loader = forebay.Loader("photos/train", pipeline=[
        "decode", {"random_resized_crop": 224}, "random_horizontal_flip", {"normalize": "imagenet"}, "to"])
    for images, labels in loader:                 # one epoch
        images = torch.from_dlpack(images)        # no copy; numpy.asarray() likewise
        labels = torch.from_dlpack(labels)        # int64
        ...

One data plane per user and machine reads, decodes and augments for all training jobs. The first Loader starts it; it ends by itself
after the last.
"""

from forebay import ops
from forebay._forebay import Tensor, __version__
from forebay.errors import (
    AccessError,
    ClosedError,
    EndError,
    Error,
    ForkedError,
    FullError,
    MemoryLimitError,
    NoServerError,
    NotSupportedError,
    ProtocolError,
    SampleError,
    ServerLost,
    SpecError,
    TimeoutError,
    VersionError,
    WindowError,
)
from forebay.loader import PADDED, REPEAT, SUBSTITUTE, Batch, Epoch, Loader

__all__ = [
    "AccessError",
    "Batch",
    "ClosedError",
    "EndError",
    "Epoch",
    "Error",
    "ForkedError",
    "FullError",
    "Loader",
    "MemoryLimitError",
    "NoServerError",
    "NotSupportedError",
    "PADDED",
    "ProtocolError",
    "REPEAT",
    "SUBSTITUTE",
    "SampleError",
    "ServerLost",
    "SpecError",
    "Tensor",
    "TimeoutError",
    "VersionError",
    "WindowError",
    "__version__",
    "ops",
]
