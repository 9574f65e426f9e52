"""GPU loads by name, for a machine with torch: `python loads.py NAME SECONDS`.

Plain allocations; no setting of the GPU is touched. Prints `ready` once the loop runs, at the end iterations per second.
"""

import subprocess
import sys
import time

GIB = 1 << 30
SYNCHRONISE_EVERY = 0.1


class Loads:
    """One method a load: it allocates and returns the loop's body. Underscored ones are no loads."""

    def __init__(self, torch):
        self._torch = torch

    def _matmul(self, kind, size):
        torch = self._torch
        a, b = (torch.randn(size, size, device="cuda").to(kind) for _ in range(2))
        out = torch.empty(size, size, device="cuda", dtype=kind)
        return lambda: torch.matmul(a, b, out=out)

    def compute_bf16_matmul(self):
        return self._matmul(self._torch.bfloat16, 8192)

    def compute_fp32_matmul(self):
        return self._matmul(self._torch.float32, 4096)

    def compute_fp64_matmul(self):
        return self._matmul(self._torch.float64, 4096)

    def int8_matmul(self):
        torch = self._torch
        a, b = (torch.randint(-9, 9, (8192, 8192), device="cuda", dtype=torch.int8) for _ in range(2))
        return lambda: torch._int_mm(a, b.t())

    def memory_copy(self):
        torch = self._torch
        a, b = (torch.empty(4 * GIB, dtype=torch.uint8, device="cuda") for _ in range(2))
        return lambda: b.copy_(a)

    def memory_elementwise(self):
        a = self._torch.randn(GIB // 2, device="cuda")
        return lambda: a.mul_(1.0001).add_(0.1)

    def memory_decode_gemv(self):
        torch = self._torch
        weights = torch.randn(16384, 16384, device="cuda", dtype=torch.bfloat16)
        x = torch.randn(16384, 1, device="cuda", dtype=torch.bfloat16)
        return lambda: weights @ x

    def gather_random(self):
        torch = self._torch
        table = torch.randn(1 << 26, 16, device="cuda")
        index = torch.randint(0, 1 << 26, (1 << 22,), device="cuda")
        return lambda: table[index]

    def single_block_kernel(self):
        x = self._torch.randn(32, device="cuda")
        return lambda: [self._torch.cumsum(x, 0) for _ in range(200)]

    def launch_bound_tiny_kernels(self):
        x = self._torch.randn(64, device="cuda")

        def body():
            for _ in range(500):
                x.add_(1e-3)
            time.sleep(0.002)  # a host that does something else between launches is what this load is

        return body

    def pcie_h2d_copy(self):
        torch = self._torch
        host = torch.empty(GIB, dtype=torch.uint8).pin_memory()
        device = torch.empty(GIB, dtype=torch.uint8, device="cuda")
        return lambda: device.copy_(host, non_blocking=True)

    def _train(self, pause=0.0, copies=0):
        torch = self._torch
        layers = [m for _ in range(6) for m in (torch.nn.Linear(8192, 8192), torch.nn.GELU())]
        model = torch.nn.Sequential(*layers).cuda().bfloat16()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        batch = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        host = torch.zeros(8192, 8192, dtype=torch.bfloat16).pin_memory() if copies else None

        def step():
            if pause:
                torch.cuda.synchronize()
                time.sleep(pause)  # a data loader that is late
            for _ in range(copies):
                batch.copy_(host, non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            model(batch).float().pow(2).mean().backward()
            optimizer.step()

        return step

    def train_healthy_bf16(self):
        return self._train()

    def train_starved_200ms(self):
        return self._train(pause=0.2)

    def train_h2d_heavy(self):
        return self._train(copies=16)

    def hold_context(self):
        self._torch.empty(1, device="cuda")
        return lambda: time.sleep(0.05)


PAIR = "two_processes"
"""Not a body but two processes: what they are."""
PAIR_OF = ("compute_bf16_matmul", "memory_copy")
NAMES = (*(name for name in vars(Loads) if not name.startswith("_")), PAIR)


def loop(torch, body, seconds, report=None):
    """Run the body for so many seconds of finished work; returns iterations per second.

    `report(monotonic, count)` is called after each synchronisation.
    """
    body()
    torch.cuda.synchronize()
    print("ready", flush=True)
    start = time.monotonic()
    count, synchronised = 0, start
    while (now := time.monotonic()) - start < seconds:
        body()
        count += 1
        if count % 4 == 0 or now - synchronised > SYNCHRONISE_EVERY:
            torch.cuda.synchronize()
            synchronised = time.monotonic()
            if report:
                report(synchronised, count)
    torch.cuda.synchronize()
    return count / (time.monotonic() - start)


def pair(seconds):
    """Run two loads as two processes on one GPU; fails if one of them does."""
    children = [
        subprocess.Popen([sys.executable, __file__, name, str(seconds)], stdout=subprocess.PIPE, text=True)
        for name in PAIR_OF
    ]
    for child in children:
        child.stdout.readline()
    print("ready", flush=True)
    rates = [child.communicate()[0].strip() for child in children]
    if any(child.returncode for child in children):
        raise SystemExit("one of the two processes failed")
    print(" + ".join(rates), flush=True)


def main(name, seconds, reporting=False):
    """Print `ready` once the loop runs, at the end its rate; in between, if reporting, `MONOTONIC COUNT` lines."""
    if name not in NAMES:
        raise SystemExit(f"{name}: no such load; there are {', '.join(NAMES)}")
    if name == PAIR:
        pair(seconds)
        return
    import torch

    report = (lambda at, count: print(f"{at:.4f} {count}", flush=True)) if reporting else None
    print(f"{loop(torch, getattr(Loads(torch), name)(), seconds, report):.3f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), "--report" in sys.argv[3:])
