"""Several tasks on PyTorch: each with a DataLoader of its own, or all fed by one producer through queues.

usage: side_torch_tasks.py separate|producer FOLDER TASKS WORKERS BATCHES     WORKERS: of each DataLoader

separate: torchvision's transforms on PIL pictures, as PyTorch's examples have it. producer: torchvision's decoder and its transforms on
tensors, in one DataLoader whose batches, in shared memory, go into a torch.multiprocessing queue for each task."""

import sys

import tasks
import torch
from torchvision import datasets, transforms
from torchvision.io import ImageReadMode, decode_jpeg, read_file

BATCH = 64
QUEUE = 4  # batches
NORMALIZE = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def loader_of_pictures(folder, workers):
    steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(), NORMALIZE]
    return data_loader(datasets.ImageFolder(folder, transforms.Compose(steps)), workers)


def loader_of_tensors(folder, workers):
    steps = [
        transforms.RandomResizedCrop(224, antialias=True),
        transforms.RandomHorizontalFlip(),
        transforms.ConvertImageDtype(torch.float32),
        NORMALIZE,
    ]
    return data_loader(datasets.ImageFolder(folder, transforms.Compose(steps), loader=decoded), workers)


def decoded(path):
    return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)


def data_loader(pictures, workers):
    return torch.utils.data.DataLoader(pictures, BATCH, shuffle=True, num_workers=workers, drop_last=True, persistent_workers=True)


def endless(loader):
    while True:
        yield from loader


def use(images):
    images[:, 0, 0, 0].tolist()
    return len(images)


def open_own(index, folder, workers):
    torch.set_num_threads(1)
    batches = endless(loader_of_pictures(folder, workers))
    return lambda: use(next(batches)[0]), 0


def open_fed(index, queues):
    torch.set_num_threads(1)
    return lambda: use(queues[index].get()[0]), 0


def produce(folder, workers, queues):
    torch.set_num_threads(1)
    for images, labels in endless(loader_of_tensors(folder, workers)):
        images.share_memory_()  # where it isn't already: what a worker made is
        for queue in queues:
            queue.put((images, labels))


def main():
    kind, folder, count, workers, batches = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    context = torch.multiprocessing.get_context("spawn")
    if kind == "separate":
        tasks.serve(open_own, count, batches, (folder, workers), context)
        return
    queues = [context.Queue(QUEUE) for _ in range(count)]
    producer = context.Process(target=produce, args=(folder, workers, queues))
    producer.start()
    try:
        tasks.serve(open_fed, count, batches, (queues,), context, [producer])
    finally:
        producer.terminate()


if __name__ == "__main__":
    main()
