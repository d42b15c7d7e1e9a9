"""All that runs on CUDA, measured beside the loop on the same GPU and beside the CPU, and checked.

Sums, rounds, networks in whole numbers and neighbours must be the CPU's to the last bit. ``python -m benchmarks.gpu``
takes under ten minutes on one data-centre GPU; ``--device cpu --small`` is a dry run of
seconds on any machine. Seconds of the loop and of the CPU are scaled up from a part, which the table names. The exit
status is 1 where a check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.gpu.exact import class_sums, neighbours, networks
from benchmarks.gpu.parts import SMALL, Part, Size, contrast, digits, teachers
from collegium.errors import CollegiumError
from collegium.models.devices import check_device, resolve_device


def measure(size: Size, device: str, folder: Path | None) -> list[Part]:
    """All parts, one after the other."""
    data = digits(folder)
    return [
        *neighbours(size, device),
        *class_sums(size, device),
        *networks(size, device),
        *teachers(size, device, data),
        *contrast(size, device, data),
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu for a dry run")
    parser.add_argument("--small", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--data", type=Path, default=Path("data"), help="the folder of mnist.npz; without: made digits")
    parser.add_argument("--json", type=Path, help="write every figure to this file as well")
    chosen = parser.parse_args()
    try:
        device = resolve_device(check_device(chosen.device))
    except CollegiumError as error:
        parser.error(str(error))
    gpu = torch.cuda.get_device_name(device) if device.startswith("cuda") else None
    start = time.perf_counter()
    parts = measure(SMALL if chosen.small else Size(), device, None if chosen.small else chosen.data)
    took_s = time.perf_counter() - start
    print(f"{gpu or device}, {os.cpu_count()} CPU cores, torch {torch.__version__}, {took_s:.0f} s in all")
    for part in parts:
        loop = (
            "" if part.loop_s is None else f", loop {part.loop_s / part.loop_of:.1f} s (of {100 * part.loop_of:.1f} %)"
        )
        cpu = f", CPU {part.cpu_s / part.cpu_of:.1f} s (of {100 * part.cpu_of:.1f} %)"
        print(f"{part.name}: {part.device_s:.2f} s{loop}{cpu}")
        for name, figure in part.figures.items():
            print(f"    {name}: {figure:.4g}")
        for name, holds in part.checks.items():
            print(f"    {'holds' if holds else 'FAILS'}: {name}")
    if chosen.json:
        machine = {"gpu": gpu, "cores": os.cpu_count(), "python": platform.python_version(), "torch": torch.__version__}
        result = {"machine": machine, "device": device, "seconds": took_s, "parts": [asdict(part) for part in parts]}
        chosen.json.write_text(json.dumps(result, indent=2), encoding="utf-8")
    if not all(holds for part in parts for holds in part.checks.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
