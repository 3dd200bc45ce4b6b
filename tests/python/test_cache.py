"""Caches: what is kept isn't made anew, in later epochs and for other tasks; the rest is; pixels are the same."""

import pytest
from PIL import Image
from processes import ENOMEM, Probe, Server, eventually, hundred, write_spec  # noqa: F401
from test_server_many import digest, everything

pytestmark = pytest.mark.usefixtures("surroundings")

SHARED = {"order": "shared", "batch": {"size": 8}}
STRICT = {"order": "strict", "batch": {"size": 8}}


def pipeline(*before, pack="none"):
    """A pipeline whose cache stands after `before`, which stand after decode where that is among them."""
    rest = [] if "decode" in before else ["decode"]
    return [*before, {"cache": {"memory": "64MiB", "pack": pack}}, *rest, {"random_resized_crop": {"size": 24}}, "random_horizontal_flip", {"normalize": "imagenet"}]


def without_cache(ops):
    return [op for op in ops if not (isinstance(op, dict) and "cache" in op)]


@pytest.mark.parametrize("pack", ["none", "fast", "small"])
@pytest.mark.parametrize("before", [[], ["decode"], ["decode", {"resize": {"size": [40, 50]}}], ["decode", {"center_crop": {"size": 30}}]])
def test_pixels_are_the_same_and_nothing_is_done_twice(hundred, tmp_path, before, pack):
    ops = pipeline(*before, pack=pack)
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
            cache, = server.status()["sources"][0]["caches"]
            assert cache["samples"] == 100 and cache["hits"] + cache["misses"] == 300 and cache["hits"] >= unread
            assert 0 < cache["bytes"] <= cache["limit"] <= 64 << 20
        with Probe(cached, server) as probe:
            assert digest(everything(probe)) == alone
            assert server.status()["engine"]["files_read"] == read, "what comes later finds it full"


def test_what_does_not_fit_is_made_anew_and_nothing_is_thrown_out(hundred, tmp_path):
    ops = ["decode", {"resize": {"size": [100, 100]}}, {"cache": {"memory": "1MiB"}}, {"random_crop": {"size": 24}}]
    spec = write_spec(tmp_path / "a.yaml", hundred, order="shared", batch={"size": 10}, pipeline=ops, epochs=4)
    with Server(tmp_path / "server") as server, Probe(spec, server) as probe:
        batches = everything(probe)
        cache, = server.status()["sources"][0]["caches"]
    assert sorted(i for b in batches for i in b["ids"]) == sorted(list(range(100)) * 4)
    assert cache["samples"] == (1 << 20) // (100 * 100 * 3 + 64 + 32), "as many as fit, first come"
    assert cache["hits"] + cache["misses"] == 400
    assert cache["hits"] <= cache["samples"] * 3


def test_tasks_share_a_cache_and_a_task_without_one_takes_part(hundred, tmp_path):
    ops = pipeline("decode")
    cached = write_spec(tmp_path / "a.yaml", hundred, **SHARED, pipeline=ops, epochs=2)
    plain = write_spec(tmp_path / "b.yaml", hundred, **SHARED, pipeline=without_cache(ops), epochs=2)
    with Server(tmp_path / "server") as server:
        with Probe(cached, server) as probe:
            everything(probe)
            read = server.status()["engine"]["files_read"]
            with Probe(plain, server) as other:
                everything(other)
                assert server.status()["engine"]["files_read"] == read
        with Probe(plain, server) as other:
            everything(other)
            assert server.status()["engine"]["files_read"] > read, "nobody has the cache any more: it rests"
        with Probe(cached, server) as probe:
            now = server.status()["engine"]["files_read"]
            everything(probe)
            assert server.status()["engine"]["files_read"] == now


def test_a_cache_counts_in_memory_and_rests_until_that_is_needed(hundred, tmp_path):
    ops = pipeline("decode")
    cached = write_spec(tmp_path / "a.yaml", hundred, **SHARED, pipeline=ops, epochs=1)
    too_much = write_spec(tmp_path / "b.yaml", hundred, **SHARED, pipeline=["decode", {"cache": "3GiB"}, {"center_crop": 8}])
    large = write_spec(tmp_path / "c.yaml", hundred, **SHARED, pipeline=["decode", {"resize": [2000, 2000]}, {"to": {"dtype": "f32"}}])
    with Server(tmp_path / "server", "--memory", "180MiB") as server:
        with Probe(cached, server) as probe:
            everything(probe)
        eventually(lambda: not server.status()["tasks"])
        assert server.status()["memory"]["used"] >= 64 << 20
        refused = Probe(too_much, server)
        assert refused.opened["error"] == ENOMEM and "pipeline.cache needs 3008.0 MiB more than the 64.0 MiB that it has" in refused.opened["text"], refused.opened
        refused.close()
        assert server.status()["memory"]["used"] >= 64 << 20, "what can't be had at all costs nobody his cache"
        refused = Probe(large, server)
        assert refused.opened["error"] == ENOMEM
        refused.close()
        fits = write_spec(tmp_path / "d.yaml", hundred, **SHARED, pipeline=["decode", {"cache": "150MiB"}, {"center_crop": 8}])
        with Probe(fits, server) as probe:
            assert "opened" in probe.opened, "memory that only rests is given"


@pytest.mark.parametrize("pack", ["fast", "small"])
def test_packed_more_fits(photographs, tmp_path, pack):
    kept = {}
    for how in ("none", pack):
        spec = write_spec(tmp_path / f"{how}.yaml", photographs, **SHARED, epochs=2,
                          pipeline=["decode", {"cache": {"memory": "100MiB", "pack": how}}, {"random_resized_crop": 32}])
        with Server(tmp_path / how) as server, Probe(spec, server) as probe:
            everything(probe)
            cache, = server.status()["sources"][0]["caches"]
            kept[how] = cache["bytes"] / cache["samples"]
            assert cache["pack"] == how
    assert kept[pack] < 0.75 * kept["none"]


def test_bad_samples_are_not_kept(tmp_path):
    folder = tmp_path / "pictures" / "a"
    folder.mkdir(parents=True)
    for number in range(20):
        Image.new("RGB", (30, 30), (number, 0, 0)).save(folder / f"{number:02}.png")
    (folder / "07.png").write_bytes(b"no picture")
    spec = write_spec(tmp_path / "a.yaml", folder.parent, order="shared", batch={"size": 5}, epochs=3, on_error="skip", max_errors=5,
                      pipeline=[{"cache": "1MiB"}, "decode", {"cache": "1MiB"}, {"center_crop": 8}])
    with Server(tmp_path / "server") as server, Probe(spec, server) as probe:
        batches = everything(probe)
        assert len(batches) == 12
        caches = {cache["after"]: cache for cache in server.status()["sources"][0]["caches"]}
        assert caches["decode"]["samples"] == 19
