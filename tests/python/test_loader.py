"""forebay.Loader: epochs, views, what it refuses."""

import gc
import os
import pickle
import pydoc
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings

import numpy
import pytest
from PIL import Image
from torch_python import TORCH_PYTHON

import forebay

pytestmark = pytest.mark.usefixtures("surroundings")

PIPELINE = ["decode", {"center_crop": 32}, {"to": {"dtype": "u8"}}]
FLOATS = ["decode", {"random_resized_crop": 32}, "random_horizontal_flip", {"normalize": "imagenet"}, "to"]


@pytest.fixture
def open_loader(pictures):
    """Loaders of the pictures, closed at the end of the test."""
    opened = []

    def open_one(pipeline=PIPELINE, batch_size=50, **options):
        options.setdefault("timeout", 20)
        loader = forebay.Loader(pictures, pipeline, batch_size, **options)
        opened.append(loader)
        return loader

    yield open_one
    for loader in opened:
        loader.close()


def places(pixels):
    """The places in the data set that the colours of a batch name."""
    return (pixels[:, 0, 16, 16].astype(int) + 250 * pixels[:, 1, 16, 16].astype(int)).tolist()


def run_python(source, python=sys.executable, **options):
    """Runs a program of its own: (exit status, standard output, standard error)."""
    done = subprocess.run([python, "-c", textwrap.dedent(source)], capture_output=True, text=True, timeout=60, **options)
    return done.returncode, done.stdout, done.stderr


# --- epochs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["shared", "strict", "sequential"])
def test_an_epoch_gives_each_sample_once_with_its_own_pixels_and_label(open_loader, order):
    loader = open_loader(order=order, seed=3)
    assert len(loader) == 7
    assert loader.classes == ("ash", "birch", "cedar")
    assert (loader.shape, loader.dtype, loader.samples, loader.batch_size) == ((3, 32, 32), "uint8", 310, 50)
    for epoch in range(3):
        ids = []
        for index, batch in enumerate(loader):
            images, labels = batch
            assert (batch.epoch, batch.index, batch.last) == (epoch, index, index == 6)
            pixels = numpy.asarray(images)
            assert pixels.shape == (len(labels), 3, 32, 32)
            here = numpy.asarray(batch.ids).tolist()
            assert places(pixels) == here
            assert numpy.asarray(labels).tolist() == [number * 3 // 310 for number in here]
            assert not numpy.asarray(batch.flags).any()
            ids += here
            del images, labels, batch, pixels
        assert sorted(ids) == list(range(310))
        if order == "sequential":
            assert ids == list(range(310))


def test_drop_last_leaves_the_rest_out(open_loader):
    loader = open_loader(drop_last=True)
    assert len(loader) == 6
    assert [len(images) for images, labels in loader] == [50] * 6


def test_strict_order_is_reproducible_and_changes_with_the_seed(open_loader):
    def epoch(seed):
        return [numpy.array(batch.images).tobytes() for batch in open_loader(FLOATS, order="strict", seed=seed)]

    first = epoch(1)
    assert first == epoch(1)
    assert first != epoch(2)


def test_epochs_end_with_an_error_that_says_so(open_loader):
    loader = open_loader(epochs=2)
    assert loader.epochs == 2
    assert sum(1 for epoch in range(2) for batch in loader) == 14
    with pytest.raises(forebay.EndError, match="all 2 epochs"):
        next(iter(loader))


def test_leaving_an_epoch_early_gives_up_its_rest(open_loader):
    loader = open_loader(order="sequential")
    for batch in loader:
        assert batch.epoch == 0
        break
    seen = [(batch.epoch, batch.index) for batch in loader]
    assert seen == [(1, index) for index in range(7)]


def test_a_new_iter_takes_over(open_loader):
    loader = open_loader(order="sequential")
    first = iter(loader)
    assert next(first).epoch == 0
    second = iter(loader)
    assert next(second).epoch == 1
    with pytest.raises(forebay.Error, match="given up when iter"):
        next(first)
    first.close()
    assert next(second).index == 1


def test_an_iterator_that_took_nothing_gives_up_nothing(open_loader):
    loader = open_loader()
    iter(loader).close()
    assert next(iter(loader)).epoch == 0


def test_epochs_and_closing_in_a_loop_leave_nothing(open_loader):
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    open_loader().close()
    before, threads = descriptors(), threading.active_count()
    for _ in range(30):
        loader = open_loader()
        next(iter(loader))
        loader.close()
    gc.collect()
    assert descriptors() <= before
    assert threading.active_count() == threads


# --- views ------------------------------------------------------------------------------------------------------


def test_numpy_sees_the_memory_itself_and_may_not_write(open_loader):
    images, labels = next(iter(open_loader(FLOATS)))
    address, read_only = images.__array_interface__["data"]
    assert read_only
    for array in (numpy.asarray(images), numpy.from_dlpack(images)):
        assert array.__array_interface__["data"][0] == address
        assert array.dtype == numpy.float32
        assert array.shape == images.shape == (50, 3, 32, 32)
        assert array.nbytes == images.nbytes
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    assert numpy.asarray(labels).dtype == numpy.int64
    assert not numpy.asarray(labels).flags.writeable
    assert images.__dlpack_device__() == (1, 0)


def test_a_copy_by_dlpack_is_private(open_loader):
    images, _ = next(iter(open_loader()))
    copy = numpy.from_dlpack(images, copy=True)
    copy[:] = 0
    assert numpy.asarray(images).any()


@pytest.mark.parametrize("options", [{"stream": 1}, {"dl_device": (2, 0)}])
def test_dlpack_refuses_other_devices(open_loader, options):
    images, _ = next(iter(open_loader()))
    with pytest.raises(BufferError):
        images.__dlpack__(**options)


def test_a_capsule_that_nobody_takes_lets_go(open_loader):
    loader = open_loader(order="sequential", window=2)
    for batch in loader:
        capsules = [batch.images.__dlpack__(), batch.images.__dlpack__(max_version=(1, 0))]
        assert "dltensor_versioned" in repr(capsules[1])
        del capsules, batch


@pytest.mark.parametrize("look", [numpy.asarray, numpy.from_dlpack, lambda images: images.__dlpack__()])
def test_a_batch_is_held_until_its_last_view_dies(open_loader, look):
    loader = open_loader(window=3, order="sequential")
    epoch = iter(loader)
    views = [look(next(epoch).images) for _ in range(3)]
    with pytest.raises(forebay.WindowError):
        next(epoch)
    kept = views[1][0, 0, 0, :3] if isinstance(views[1], numpy.ndarray) else views[1]
    before = kept.tolist() if isinstance(kept, numpy.ndarray) else None
    del views[1]
    with pytest.raises(forebay.WindowError):
        next(epoch)
    if before is not None:
        assert kept.tolist() == before
    del kept
    assert next(epoch).index == 3


def test_the_window_error_says_what_to_do(open_loader):
    with pytest.raises(forebay.WindowError, match=r"all 4 batches.*window=4.*writable=True"):
        list(open_loader())


def test_what_garbage_holds_comes_back(open_loader):
    gc.disable()
    try:
        for batch in open_loader(window=2):
            cycle = [numpy.asarray(batch.images)]
            cycle.append(cycle)
            del batch, cycle
    finally:
        gc.enable()


def test_labels_and_ids_hold_no_batch(open_loader):
    loader = open_loader()
    kept = [(labels, batch.ids) for batch in loader for labels in [batch.labels]]
    assert sorted(sum((numpy.asarray(ids).tolist() for _, ids in kept), [])) == list(range(310))


def test_labels_ids_and_flags_are_sequences(open_loader):
    batch = next(iter(open_loader(order="sequential", batch_size=310)))
    for tensor, values in ((batch.labels, [place * 3 // 310 for place in range(310)]), (batch.ids, list(range(310))), (batch.flags, [0] * 310)):
        assert tensor.tolist() == list(tensor) == values
        assert (tensor[0], tensor[numpy.int64(200)], tensor[-1]) == (values[0], values[200], values[-1])
        assert type(tensor[7]) is int and values[9] in tensor
        for place in (310, -311, 1 << 70):
            with pytest.raises(IndexError):
                tensor[place]
        for key in (slice(3), [1, 2], (0,), numpy.zeros(310, bool), "0"):
            with pytest.raises(TypeError, match=r"numpy.asarray\(tensor\)\[\.\.\.\]"):
                tensor[key]


@pytest.mark.parametrize("use", [lambda images: images[0], list, lambda images: images.tolist()])
def test_images_say_how_to_look_at_them(open_loader, use):
    with pytest.raises(TypeError, match=r"4 dimensions .*numpy.asarray\(tensor\) or torch.from_dlpack\(tensor\)"):
        use(next(iter(open_loader())).images)


def test_a_comparison_is_no_silent_false(open_loader):
    images, labels = next(iter(open_loader()))
    for tensor in (images, labels):
        for compare in (lambda t: t == [1], lambda t: [1] == t, lambda t: t != 1, lambda t: t == t):
            with pytest.raises(TypeError, match=r"make it an array first.*torch.from_dlpack\(tensor\) or numpy.asarray\(tensor\)"):
                compare(tensor)
        assert len({tensor, tensor}) == 1
    with pytest.raises(TypeError, match="'<' not supported"):
        labels < labels  # noqa: B015  the comparison is what is tested
    assert (numpy.asarray(labels) == labels).all()


def test_writable_batches_may_be_kept_and_changed(open_loader):
    loader = open_loader(writable=True, order="sequential")
    batches = list(loader)
    assert len(batches) == 7
    for batch in batches:
        pixels = numpy.asarray(batch.images)
        assert places(pixels) == numpy.asarray(batch.ids).tolist()
        pixels[:] = 1
        numpy.asarray(batch.labels)[:] = 0
    addresses = {batch.images.__array_interface__["data"][0] for batch in batches}
    assert len(addresses) == 7
    del batch, batches, pixels
    again = set()
    for batch in loader:
        assert places(numpy.asarray(batch.images)) == numpy.asarray(batch.ids).tolist()
        again.add(batch.images.__array_interface__["data"][0])
    assert len(again) <= 3 and again <= addresses


def test_a_view_outlives_the_loader(open_loader):
    loader = open_loader(order="sequential")
    pixels = numpy.asarray(next(iter(loader)).images)
    loader.close()
    del loader
    gc.collect()
    assert places(pixels) == list(range(50))


def test_views_may_die_in_any_thread(open_loader):
    loader = open_loader()
    for batch in loader:
        holder = [numpy.from_dlpack(batch.images)]
        del batch
        thread = threading.Thread(target=holder.clear)
        thread.start()
        thread.join()
    del holder


@pytest.mark.parametrize("handler", ["", "import faulthandler; faulthandler.enable()"])
def test_writing_into_a_batch_dies_with_a_message(pictures, handler):
    status, _, errors = run_python(f"""
        import ctypes, resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        import forebay
        {handler}
        images, labels = next(iter(forebay.Loader({str(pictures)!r}, {PIPELINE!r}, 50)))
        ctypes.memset(images.__array_interface__["data"][0] + 100, 0, 4)
    """)
    assert status == -signal.SIGSEGV
    assert "a batch is read-only" in errors and "writable=True" in errors
    assert ("Fatal Python error" in errors) == bool(handler)


def test_other_faults_are_none_of_ours(pictures):
    status, _, errors = run_python(f"""
        import ctypes, resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        import forebay
        batch = next(iter(forebay.Loader({str(pictures)!r}, {PIPELINE!r}, 50)))
        ctypes.memset(8, 0, 4)
    """)
    assert status == -signal.SIGSEGV
    assert "forebay" not in errors


if TORCH_PYTHON:

    @pytest.mark.parametrize("write", [False, True])
    def test_torch_sees_the_memory_itself_and_a_write_dies_with_a_message(pictures, write):
        program = f"""
            import resource
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            import forebay, torch
            with forebay.Loader({str(pictures)!r}, {FLOATS!r}, 50, timeout=20) as loader:
                seen = 0
                for batch in loader:
                    images, labels = batch
                    tensor = torch.from_dlpack(images)
                    assert tensor.data_ptr() == images.__array_interface__["data"][0]
                    assert tuple(tensor.shape) == images.shape and tensor.dtype == torch.float32
                    numbers = torch.from_dlpack(labels)
                    assert numbers.dtype == torch.int64
                    assert torch.as_tensor(labels).equal(numbers) and torch.tensor(batch.ids.tolist()).shape == numbers.shape
                    try:
                        numbers == labels
                    except TypeError as error:
                        assert "torch.from_dlpack(tensor)" in str(error)
                    else:
                        raise AssertionError("a comparison that means nothing")
                    seen += len(tensor)
                print(seen, flush=True)
                if {write}:
                    tensor.mul_(2)
        """
        status, output, errors = run_python(program, python=TORCH_PYTHON)
        assert output == "310\n", errors
        assert status == (-signal.SIGSEGV if write else 0)
        assert ("a batch is read-only" in errors) == write


# --- waiting and ending --------------------------------------------------------------------------------------------


@pytest.fixture
def starved(open_loader):
    """A loader whose server stands still: no batch comes. It goes on afterwards."""
    loader = open_loader(window=2)
    epoch = iter(loader)
    pid = loader.server_pid
    os.kill(pid, signal.SIGSTOP)
    try:
        # What was under way when it stopped still comes.
        loader.timeout = 0.2
        with pytest.raises(forebay.TimeoutError):
            for batch in epoch:
                del batch
        yield loader, epoch
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_timeout_says_how_far_it_came_and_loses_nothing(starved):
    loader, epoch = starved
    loader.timeout = 0.3
    begin = time.monotonic()
    with pytest.raises(forebay.TimeoutError, match=r"no batch within 0.3 s: \d+ of 50") as caught:
        next(epoch)
    assert 0.25 < time.monotonic() - begin < 2
    assert isinstance(caught.value, TimeoutError)
    os.kill(loader.server_pid, signal.SIGCONT)
    loader.timeout = 20
    assert next(epoch).epoch == 0


def test_ctrl_c_ends_a_wait_at_once(starved):
    loader, epoch = starved
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in its background with SIGINT ignored
    loader.timeout = 10
    sent = []

    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.3, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        next(epoch)
    assert time.monotonic() - sent[0] < 0.1
    timer.join()


def test_other_threads_run_during_a_wait(starved):
    loader, epoch = starved
    loader.timeout = 0.5
    counted = []
    stop = threading.Event()

    def count():
        while not stop.is_set():
            counted.append(1)
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    with pytest.raises(forebay.TimeoutError):
        next(epoch)
    stop.set()
    thread.join()
    assert len(counted) > 50


def test_closing_from_another_thread_ends_a_wait(starved):
    loader, epoch = starved
    loader.timeout = 10
    timer = threading.Timer(0.2, loader.close)
    timer.start()
    begin = time.monotonic()
    with pytest.raises(forebay.ClosedError):
        next(epoch)
    assert time.monotonic() - begin < 2
    timer.join()


def test_two_threads_are_refused(starved):
    loader, epoch = starved
    loader.timeout = 1
    caught = []

    def wait():
        try:
            next(epoch)
        except forebay.Error as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    with pytest.raises(RuntimeError, match="another thread"):
        next(epoch)
    thread.join()
    assert isinstance(caught[0], forebay.TimeoutError)


def test_a_closed_loader_says_so(open_loader):
    with open_loader() as loader:
        next(iter(loader))
    loader.close()
    with pytest.raises(forebay.ClosedError, match="closed"):
        next(iter(loader))
    assert "closed" in repr(loader)


def test_the_servers_death_ends_a_wait(pictures, tmp_path):
    status, output, errors = run_python(f"""
        import os, signal, threading, time
        import forebay
        loader = forebay.Loader({str(pictures)!r}, {PIPELINE!r}, 50, mode="embedded", reconnect=0)
        pid = loader.server_pid
        os.kill(pid, signal.SIGKILL)
        begin = time.monotonic()
        try:
            for epoch in range(1000):
                for batch in loader:
                    del batch
        except forebay.ServerLost as error:
            assert error.pid == pid, error.pid
            assert str(pid) in str(error)
            print("lost after", time.monotonic() - begin)
    """, env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)})
    assert status == 0, errors
    assert float(output.split()[-1]) < 2


@pytest.mark.parametrize("order", ["shared", "strict", "sequential"])
def test_the_epoch_goes_on_when_the_server_dies(open_loader, order):
    loader = open_loader(order=order, batch_size=20, mode="embedded", epochs=2, window=5)
    expected = [batch.ids for batch in open_loader(order=order, batch_size=20)]
    taken = []
    for number, batch in enumerate(iter(loader)):
        if number == 4:
            kept, pixels = batch.images, numpy.array(batch.images)
            os.kill(loader.server_pid, signal.SIGKILL)
        taken.append(numpy.array(batch.ids))
    assert sorted(numpy.concatenate(taken)) == list(range(310)) and len(taken) == len(loader)
    if order != "shared":
        assert numpy.array_equal(numpy.concatenate(taken), numpy.concatenate([numpy.array(ids) for ids in expected]))
    assert numpy.array_equal(numpy.array(kept), pixels), "what was held stays"
    del kept, batch
    assert len(list(map(len, loader))) == len(loader), "and so does the next epoch"


# --- going on later --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["shared", "strict", "sequential"])
@pytest.mark.parametrize("stop", [0, 1, 6, 7, 9])
def test_a_saved_loader_goes_on_in_another_process(open_loader, pictures, tmp_path, order, stop):
    options = {"order": order, "epochs": 2, "seed": 5}
    whole, loader = open_loader(**options), open_loader(**options)
    expected = [(b.epoch, b.index, numpy.array(b.ids), numpy.array(b.images)) for _ in range(2) for b in whole]
    before, batches = [], (b for _ in range(2) for b in loader)
    for _ in range(stop):
        before.append(numpy.array(next(batches).ids))
    (tmp_path / "state").write_bytes(pickle.dumps(loader.state_dict()))

    status, _, errors = run_python(f"""
        import pickle, numpy, forebay
        loader = forebay.Loader({str(pictures)!r}, {PIPELINE!r}, 50, timeout=20, **{options!r})
        loader.load_state_dict(pickle.load(open({str(tmp_path / "state")!r}, "rb")))
        taken = []
        while loader.epoch < 2:
            taken += [(b.epoch, b.index, numpy.array(b.ids), numpy.array(b.images)) for b in loader]
        pickle.dump((taken, loader.state_dict()), open({str(tmp_path / "taken")!r}, "wb"))
    """)
    assert status == 0, errors
    taken, end = pickle.loads((tmp_path / "taken").read_bytes())
    assert [(epoch, index) for epoch, index, _, _ in taken] == [(epoch, index) for epoch, index, _, _ in expected[stop:]]
    ids = before + [ids for _, _, ids, _ in taken]
    assert sorted(numpy.concatenate(ids)) == sorted([*range(310)] * 2)
    assert sorted(numpy.concatenate(ids[:7])) == list(range(310))
    if order != "shared":
        assert all(numpy.array_equal(a[2], b[2]) and numpy.array_equal(a[3], b[3]) for a, b in zip(taken, expected[stop:]))
    over = open_loader(**options)
    over.load_state_dict(end)
    with pytest.raises(forebay.EndError):
        next(iter(over))


@pytest.mark.parametrize("layout, shape", [("chw", (1, 32, 32)), ("hwc", (32, 32, 1))])
def test_one_channel(open_loader, pictures, layout, shape):
    loader = open_loader(pipeline=["decode", {"grayscale": {"num_output_channels": 1}}, {"resize": {"size": [32, 32]}},
                                   {"normalize": {"mean": [0.5], "std": [0.25]}}, {"to": {"layout": layout}}], order="sequential")
    assert loader.shape == shape
    batch = next(iter(loader))
    images = numpy.asarray(batch.images)
    assert images.shape == (50, *shape) and images.dtype == numpy.float32
    with Image.open(sorted(pictures.glob("*/*"))[7]) as image:
        gray = numpy.asarray(image.convert("RGB").convert("L").resize((32, 32), Image.Resampling.BILINEAR)).astype(numpy.float32)
    assert numpy.array_equal(images[7].reshape(32, 32), (gray / numpy.float32(255) - numpy.float32(0.5)) / numpy.float32(0.25))


def test_what_is_no_state_of_this_loader_is_refused_and_changes_nothing(open_loader):
    loader = open_loader(order="strict", seed=1)
    epoch = iter(loader)
    first = next(epoch).index
    state = loader.state_dict()
    other = open_loader(order="strict", seed=2)
    with pytest.raises(forebay.SpecError, match="Loader: the state is of a task with seed 1, this one has 2"):
        other.load_state_dict(state)
    with pytest.raises(forebay.SpecError, match="damaged"):
        loader.load_state_dict({**state, "task": state["task"][:-1] + b"?"})
    for other_state in ({}, {"a": 1}, {"epoch": 1}, {**state, "task": "text"}, {**state, "epoch": None}, None, 7, "state", [], [state, None]):
        with pytest.raises(forebay.SpecError, match="expected what Loader.state_dict"):
            loader.load_state_dict(other_state)
    with pytest.raises(forebay.SpecError, match="version"):
        loader.load_state_dict({**state, "version": 99})
    assert next(epoch).index == first + 1 and next(iter(other)).index == 0
    loader.load_state_dict(state)
    with pytest.raises(forebay.Error, match="load_state_dict"):
        next(epoch)
    assert [b.index for b in loader] == list(range(first + 1, len(loader)))


def test_a_forked_child_is_told_and_the_parent_goes_on(open_loader):
    loader = open_loader(order="sequential")
    epoch = iter(loader)
    batch = next(epoch)
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            text = "nothing"
            try:
                next(epoch)
            except forebay.ForkedError as error:
                text = str(error)
            del batch, epoch
            loader.close()
            gc.collect()
            os.write(writer, text.encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert f"belongs to process {os.getpid()}" in text and "open the Loader in the child" in text
    assert numpy.asarray(batch.images)[3, 0, 16, 16] == 3
    assert [rest.index for rest in epoch] == [1, 2, 3, 4, 5, 6]


def test_a_forked_child_opens_its_own(open_loader, pictures):
    loader = open_loader()
    next(iter(loader))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            with forebay.Loader(pictures, PIPELINE, 50, timeout=20) as own:
                code = 0 if sum(len(labels) for _, labels in own) == 310 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sum(len(labels) for _, labels in loader) == 310


def test_closing_counts_although_a_forked_child_lives_on(open_loader):
    """The child has copies of the descriptors: the server must not wait for it."""
    loader, other = open_loader(), open_loader()
    next(iter(loader))
    before = len(other.status()["tasks"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        loader.close()
        deadline = time.monotonic() + 5
        while len(other.status()["tasks"]) == before and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(other.status()["tasks"]) == before - 1
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_nothing_is_pickled(open_loader):
    loader = open_loader()
    batch = next(iter(loader))
    for thing, words in ((loader, "Loader can't be pickled"), (batch, "batch"), (batch.images, "batch"), (iter(loader), "epoch")):
        with pytest.raises(TypeError, match=words):
            pickle.dumps(thing)


def test_the_interpreter_may_end_at_any_point(pictures):
    status, output, errors = run_python(f"""
        import threading
        import numpy, forebay
        loader = forebay.Loader({str(pictures)!r}, {PIPELINE!r}, 50)
        epoch = iter(loader)
        kept = [next(epoch), numpy.from_dlpack(next(epoch).images)]
        class Late:
            def __del__(self, kept=kept, epoch=epoch):
                kept.clear()
                epoch.close()
        late = Late()
        late.self = late
        print("end")
    """, env={**os.environ, "PYTHONDEVMODE": "1"})
    assert (status, output, errors) == (0, "end\n", "")


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, words",
    [
        ({"pipeline": ["decode", {"center_corp": 32}, "to"]}, "center_crop"),
        ({"pipeline": ["decode", {"resize": {"sise": 32}}, "to"]}, "size"),
        ({"order": "shard"}, "shared"),
        ({"batch_size": 0}, "batch"),
        ({"on_error": "ignore"}, "skip"),
        ({"window": 0}, "window"),
        ({"pipeline": ["decode", "to"]}, "different sizes.*expected random_resized_crop"),
    ],
)
def test_a_wrong_spec_names_the_key_and_what_was_expected(open_loader, options, words):
    with pytest.raises(forebay.SpecError, match=words) as caught:
        open_loader(**options)
    assert isinstance(caught.value, ValueError)


def test_wrong_arguments(pictures, tmp_path):
    with pytest.raises(forebay.SpecError, match="nowhere"):
        forebay.Loader(tmp_path / "nowhere", PIPELINE)
    with pytest.raises(TypeError, match="pipeline"):
        forebay.Loader(pictures)
    with pytest.raises(TypeError, match=r"pipeline\[1\]"):
        forebay.Loader(pictures, ["decode", 7])
    for alone in ("decode", {"resize": 8}):
        with pytest.raises(TypeError, match="^pipeline: .*expected a list of ops"):
            forebay.Loader(pictures, alone)
    with pytest.raises(TypeError, match="not both"):
        forebay.Loader(pictures, spec={"dataset": str(pictures)})
    with pytest.raises(TypeError, match="batch"):
        forebay.Loader(spec={"dataset": str(pictures)}, batch_size=3)
    for name in ("timeout", "reconnect", "sample_timeout"):
        for value in (-1, float("nan"), "soon", []):
            if name != "sample_timeout" or value != "soon":
                with pytest.raises(forebay.SpecError, match=f"^{name}: .*expected seconds, 0 or more"):
                    forebay.Loader(pictures, PIPELINE, **{name: value})
    with pytest.raises(forebay.SpecError, match="mode: 'embeded'; expected auto, running or embedded; did you mean embedded?"):
        forebay.Loader(pictures, PIPELINE, mode="embeded")
    with pytest.raises(forebay.NoServerError, match="no server answers at .*none.sock: No such file.*forebay serve") as caught:
        forebay.Loader(pictures, PIPELINE, socket=tmp_path / "none.sock")
    assert isinstance(caught.value, ConnectionError)
    with pytest.raises(TypeError, match="comes out of a Loader"):
        forebay.Tensor()


@pytest.mark.parametrize("name, words", [("batchsize", "did you mean batch_size?"), ("shuffle", "order= does it"), ("num_workers", "the server has the workers"),
                                         ("splits", "did you mean split?"), ("xyz", "expected dataset, pipeline, .* or spec")])
def test_an_argument_that_there_is_not(pictures, name, words):
    with pytest.raises(TypeError, match=rf"^Loader has no argument '{name}'.*{words}"):
        forebay.Loader(pictures, PIPELINE, **{name: 1})
    with pytest.raises(TypeError, match=f"^Loader.from_spec has no argument '{name}'"):
        forebay.Loader.from_spec("train.yaml", **{name: 1})


def test_errors_are_in_terms_of_the_arguments(pictures):
    def said(*given, **options):
        with pytest.raises(forebay.SpecError) as caught:
            forebay.Loader(*given, **options)
        return str(caught.value)

    assert said(pictures, PIPELINE, 0) == 'Loader: batch_size: "0"; expected a whole number, 1 to 4096'
    assert said(pictures, PIPELINE, drop_last=7).startswith("Loader: drop_last: ")
    assert said(pictures, PIPELINE, batch_echo={"factr": 2}).startswith('Loader: batch_echo: unknown key "factr"')
    assert said(pictures, ["decode", {"resize": {"size": 9, "interpolation": "bicubik"}}]) == (
        'Loader: pipeline.resize.interpolation: "bicubik"; expected nearest, box, bilinear, bicubic or lanczos; did you mean bicubic?')
    assert said({"dataset": str(pictures), "pipeline": PIPELINE, "batch": {"size": 0}}).startswith("spec: batch.size: ")
    assert said(spec=f"dataset: {pictures}\n\npipelin: []\n").startswith("spec:3: ")  # a line that the program knows


def test_a_split(open_loader):
    options = {"order": "sequential", "batch_size": 310}
    train = next(iter(open_loader(split={"part": 0.8, "seed": 1}, **options)))
    validation = next(iter(open_loader(split={"part": [0.8, 1], "seed": 1}, **options)))
    assert (len(train.ids), len(validation.ids)) == (248, 62)
    assert sorted([*train.ids, *validation.ids]) == list(range(310))
    assert set(next(iter(open_loader(split={"classes": ["birch"]}, **options))).labels) == {1}
    assert open_loader(split="all").samples == 310
    with pytest.raises(forebay.SpecError, match="^Loader: split: .*did you mean part?"):
        open_loader(split={"prat": 0.5})


def test_a_split_by_ids(open_loader, pictures, tmp_path, monkeypatch):
    (tmp_path / "ids.txt").write_text("7\n300\n")
    assert list(next(iter(open_loader(split={"ids": tmp_path / "ids.txt"}, order="sequential"))).ids) == [7, 300]
    monkeypatch.chdir(tmp_path)
    odd = os.fsencode(tmp_path) + b"/n\xe4me"
    os.symlink(pictures, odd)
    with forebay.Loader(odd, PIPELINE, split={"ids": "ids.txt"}, timeout=20) as loader:
        assert loader.samples == 2


def test_a_bad_sample_is_named(tmp_path):
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "broken picture.jpg").write_bytes(b"\xff\xd8\xff\xe0 no more")
    with forebay.Loader(tmp_path, PIPELINE, 1, timeout=20) as loader:
        for _ in range(2):
            with pytest.raises(forebay.SampleError, match="broken picture.jpg") as caught:
                next(iter(loader))
            assert caught.value.sample == 0


def test_skipped_samples_are_replaced_and_flagged(pictures, tmp_path):
    for place, source in enumerate(sorted(pictures.rglob("*.png"))[:20]):
        (tmp_path / "some").mkdir(exist_ok=True)
        data = source.read_bytes()
        (tmp_path / "some" / source.name).write_bytes(data[:40] if place == 7 else data)
    with forebay.Loader(tmp_path, PIPELINE, 5, on_error="skip", max_errors=5, timeout=20, writable=True) as loader:
        assert len(loader) == 4
        batches = list(loader)
    ids = numpy.concatenate([numpy.asarray(batch.ids) for batch in batches])
    flags = numpy.concatenate([numpy.asarray(batch.flags) for batch in batches])
    assert len(ids) == 20 and 7 not in ids
    assert numpy.count_nonzero(flags & (forebay.SUBSTITUTE | forebay.REPEAT)) >= 1


# --- where a task comes from -----------------------------------------------------------------------------------------


def test_a_spec_file(pictures, tmp_path):
    (tmp_path / "train.yaml").write_text(
        f"dataset: {os.path.relpath(pictures, tmp_path)}\npipeline: [decode, center_crop: 24, to: u8]\nbatch: 10\norder: sequential\n".replace(
            "to: u8", "to: {dtype: u8}").replace("batch: 10", "batch: {size: 10}"))
    for loader in (forebay.Loader.from_spec(tmp_path / "train.yaml"), forebay.Loader(tmp_path / "train.yaml"), forebay.Loader(spec=tmp_path / "train.yaml")):
        with loader:
            assert len(loader) == 31
            assert next(iter(loader)).images.shape == (10, 3, 24, 24)
    (tmp_path / "train.yaml").write_text("dataset: x\npipelin: []\n")
    with pytest.raises(forebay.SpecError, match=r"train.yaml.*2.*pipelin"):
        forebay.Loader.from_spec(tmp_path / "train.yaml")


def test_a_spec_as_a_dict_or_text(pictures):
    spec = {"dataset": {"folder": str(pictures)}, "pipeline": PIPELINE, "batch": {"size": 50}}
    for given in ({"dataset": spec}, {"spec": spec}, {"spec": f"dataset: {pictures}\npipeline: [decode, center_crop: 8]\nbatch: {{size: 50}}\n"}):
        with forebay.Loader(**given, timeout=20) as loader:
            assert len(loader) == 7


def test_a_list_and_a_name_that_is_no_text(pictures, tmp_path):
    listed = tmp_path / "train.tsv"
    listed.write_text("".join(f"{path}\t{place}\n" for place, path in enumerate(sorted(pictures.rglob("*.png"))[:10])))
    with forebay.Loader({"list": str(listed)}, PIPELINE, 5, order="sequential", timeout=20) as loader:
        assert loader.classes == ()
        assert sum((numpy.asarray(labels).tolist() for _, labels in loader), []) == list(range(10))
    odd = os.fsencode(tmp_path) + b"/n\xe4me"
    os.symlink(pictures, odd)
    with forebay.Loader(odd, PIPELINE, 50, timeout=20) as loader:
        assert loader.samples == 310


def test_ops_as_functions(open_loader):
    ops = forebay.ops
    assert ops.random_resized_crop(32) == {"random_resized_crop": 32}
    assert ops.random_resized_crop(32, scale=(0.5, 1)) == {"random_resized_crop": {"size": 32, "scale": (0.5, 1)}}
    assert ops.normalize("imagenet") == {"normalize": "imagenet"}
    assert ops.normalize(mean=[0, 0, 0], std=[1, 1, 1]) == {"normalize": {"mean": [0, 0, 0], "std": [1, 1, 1]}}
    with pytest.raises(TypeError, match="expected 'imagenet'; others by name: mean, std"):
        ops.normalize("imagenett")
    assert "scale" in ops.random_resized_crop.__doc__ and "resize" in dir(ops)
    text = pydoc.render_doc(ops, renderer=pydoc.plaintext)
    assert all(f"\n    {name}(" in text for name in dir(ops)) and "padding_mode: what is added" in text
    with pytest.raises(AttributeError, match="did you mean center_crop"):
        ops.center_corp
    with pytest.raises(TypeError, match="did you mean ratio"):
        ops.random_resized_crop(32, ration=(1, 1))
    loader = open_loader([ops.decode, ops.random_resized_crop(32, scale=(0.5, 1)), ops.random_horizontal_flip(p=1.0), ops.normalize("imagenet"), ops.to(dtype="f16")])
    assert next(iter(loader)).images.dtype == "float16"


def test_every_element_type(open_loader):
    for dtype, name in (("u8", "uint8"), ("f16", "float16"), ("bf16", "bfloat16"), ("f32", "float32")):
        images, _ = next(iter(open_loader(["decode", {"center_crop": 8}, {"to": {"dtype": dtype}}])))
        assert images.dtype == name
        array = numpy.asarray(images)
        assert array.dtype.itemsize == {"u8": 1, "f32": 4}.get(dtype, 2)
        assert array.dtype == (numpy.dtype("V2") if dtype == "bf16" else name)
    channels_last = next(iter(open_loader(["decode", {"center_crop": [8, 6]}, {"to": {"layout": "hwc"}}]))).images
    assert channels_last.shape == (50, 8, 6, 3)


def test_status(open_loader):
    loader = open_loader()
    next(iter(loader))
    status = loader.status()
    assert status["loader"] == {"gathered": 0}
    assert status["pid"] == loader.server_pid
    task = max(status["tasks"], key=lambda task: task["number"])
    assert task["pid"] == os.getpid()
    assert (task["batch"], task["batches_per_epoch"]) == (50, 7)


def test_echoes_through_the_loader(open_loader):
    loader = open_loader(pipeline=["decode", {"echo": 2}, {"center_crop": 16}], order="strict", batch_size=8)
    plain = open_loader(pipeline=["decode", {"center_crop": 16}], order="strict", batch_size=8)
    flags = [int(flag) for batch in loader for flag in numpy.asarray(batch.flags)]
    fresh = sum(flag == 0 for flag in flags)
    assert fresh == sum(len(numpy.asarray(batch.ids)) for batch in plain) and len(flags) == 2 * fresh
    assert len(loader) == -(-2 * fresh // 8)
    whole = open_loader(pipeline=["decode", {"center_crop": 16}], order="strict", batch_size=8, batch_echo={"factor": 3, "buffer": 2})
    assert sum(1 for _ in whole) == len(whole) == 3 * len(plain)
    auto = open_loader(pipeline=["decode", {"echo": "auto"}, {"center_crop": 16}], batch_size=8)
    with pytest.raises(TypeError, match="auto"):
        len(auto)
    assert sum(int(flag) == 0 for batch in auto for flag in numpy.asarray(batch.flags)) == fresh
    assert "? batches" in repr(auto)
