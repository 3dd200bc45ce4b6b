from typing import Any, Dict, List, Tuple

class FblError(ValueError):
    reason: str

def encode(
    address: int,
    width: int,
    height: int,
    channels: int,
    bits: int,
    level: int,
    threads: int,
    metadata: List[Tuple[bytes, bytes]],
    /,
) -> bytes: ...
def info(address: int, length: int, max_pixels: int, /) -> Dict[str, Any]: ...
def decode(
    address: int,
    length: int,
    max_pixels: int,
    region: Tuple[int, int, int, int],
    to: int,
    row_stride: int,
    plane_stride: int,
    layout: int,
    threads: int,
    /,
) -> None: ...
