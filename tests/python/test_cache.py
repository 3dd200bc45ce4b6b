"""Caches: what is kept isn't made anew, in later epochs and for other tasks; the rest is; pixels are the same."""

import pytest
from processes import EEND, EINVAL, ENOMEM, Probe, Server, eventually, hundred, write_spec  # noqa: F401

pytestmark = pytest.mark.usefixtures("surroundings")

SHARED = {"order": "shared", "batch": {"size": 8}}
STRICT = {"order": "strict", "batch": {"size": 8}}


def pipeline(*before):
    """A pipeline whose cache stands after `before`, which stand after decode where that is among them."""
    rest = [] if "decode" in before else ["decode"]
    return [*before, {"cache": {"memory": "64MiB"}}, *rest, {"random_resized_crop": {"size": 24}}, "random_horizontal_flip", {"normalize": "imagenet"}]


def without_cache(ops):
    return [op for op in ops if not (isinstance(op, dict) and "cache" in op)]


def everything(probe):
    batches = probe.batches()
    assert batches.pop()["error"] == EEND
    return batches


def digest(batches):
    return [(b["epoch"], b["index"], b["ids"], b["labels"], b["flags"], b["hash"]) for b in batches]


@pytest.mark.parametrize("before", [[], ["decode"], ["decode", {"resize": {"size": [40, 50]}}], ["decode", {"center_crop": {"size": 30}}]])
def test_pixels_are_the_same_and_nothing_is_done_twice(hundred, tmp_path, before):
    ops = pipeline(*before)
    cached = write_spec(tmp_path / "cached.yaml", hundred, **STRICT, pipeline=ops, epochs=3)
    plain = write_spec(tmp_path / "plain.yaml", hundred, **STRICT, pipeline=without_cache(ops), epochs=3)
    with Server(tmp_path / "a") as server, Probe(plain, server) as probe:
        alone = digest(everything(probe))
    with Server(tmp_path / "b") as server:
        with Probe(cached, server) as probe:
            assert digest(everything(probe)) == alone
            read, unread = (server.status()["engine"][key] for key in ("files_read", "unread"))
            assert read + unread == 300
            assert read <= 100 + 128, "draws of a window may overlap an epoch's end; whatever is kept isn't read"
        with Probe(cached, server) as probe:
            assert digest(everything(probe)) == alone
            assert server.status()["engine"]["files_read"] == read, "what comes later finds it full"
