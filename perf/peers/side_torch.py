"""PyTorch's DataLoader with torchvision's transforms on PIL pictures, as its examples have it.

usage: side_torch.py FOLDER WORKERS"""

import multiprocessing
import sys

import torch
from side import serve
from torchvision import datasets, transforms

BATCH = 64


def main():
    torch.set_num_threads(1)
    pictures = datasets.ImageFolder(
        sys.argv[1],
        transforms.Compose(
            [
                transforms.RandomResizedCrop(224),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        ),
    )
    loader = torch.utils.data.DataLoader(
        pictures, BATCH, shuffle=True, num_workers=int(sys.argv[2]), drop_last=True, persistent_workers=True
    )

    def stream():
        while True:
            yield from loader

    batches = stream()

    def take():
        images, _ = next(batches)
        images[:, 0, 0, 0].tolist()
        return len(images)

    serve(take, 2 * len(loader), lambda: [child.pid for child in multiprocessing.active_children()])


if __name__ == "__main__":
    main()
