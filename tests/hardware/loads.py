"""GPU loads by name, for a machine with torch: `python loads.py NAME SECONDS`. Plain allocations, no setting touched."""

import sys
import time

import torch

GIB = 1 << 30


def _matmul(dtype, size=8192):
    a = torch.randn(size, size, device="cuda").to(dtype)
    b = torch.randn(size, size, device="cuda").to(dtype)
    return lambda: torch.matmul(a, b)


def compute_bf16_matmul():
    return _matmul(torch.bfloat16)


def compute_fp32_matmul():
    return _matmul(torch.float32, 4096)


def compute_fp64_matmul():
    return _matmul(torch.float64, 4096)


def int8_matmul():
    a = torch.randint(-9, 9, (8192, 8192), device="cuda", dtype=torch.int8)
    b = torch.randint(-9, 9, (8192, 8192), device="cuda", dtype=torch.int8).t()
    return lambda: torch._int_mm(a, b)


def memory_copy():
    a, b = torch.empty(4 * GIB, dtype=torch.uint8, device="cuda"), torch.empty(4 * GIB, dtype=torch.uint8, device="cuda")
    return lambda: b.copy_(a)


def memory_elementwise():
    a = torch.randn(GIB // 2, device="cuda")
    return lambda: a.mul_(1.0001).add_(0.1)


def memory_decode_gemv():
    weights = torch.randn(16384, 16384, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(16384, 4, device="cuda", dtype=torch.bfloat16)
    return lambda: weights @ x


def gather_random():
    table = torch.randn(1 << 26, 16, device="cuda")
    index = torch.randint(0, 1 << 26, (1 << 22,), device="cuda")
    return lambda: table[index]


def single_block_kernel():
    x = torch.randn(32, device="cuda")

    def body():
        for _ in range(200):
            torch.cumsum(x, 0)

    return body


def launch_bound_tiny_kernels():
    x = torch.randn(64, device="cuda")

    def body():
        for _ in range(500):
            x.add_(1e-3)
        time.sleep(0.002)  # a host that does something else between launches is what this load is

    return body


def pcie_h2d_copy():
    host = torch.empty(GIB, dtype=torch.uint8).pin_memory()
    device = torch.empty(GIB, dtype=torch.uint8, device="cuda")
    return lambda: device.copy_(host, non_blocking=True)


def _train(pause=0.0, h2d=False):
    model = torch.nn.Sequential(*[m for _ in range(6) for m in (torch.nn.Linear(8192, 8192), torch.nn.GELU())])
    model = model.cuda().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    device = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    host = torch.empty(8192, 8192, dtype=torch.bfloat16).pin_memory()

    def step():
        if pause:
            torch.cuda.synchronize()
            time.sleep(pause)  # a data loader that is late
        if h2d:
            for _ in range(4):
                device.copy_(host, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        model(device).float().pow(2).mean().backward()
        optimizer.step()

    return step


def train_healthy_bf16():
    return _train()


def train_starved_200ms():
    return _train(0.2)


def train_h2d_heavy():
    return _train(h2d=True)


def hold_context():
    torch.empty(1, device="cuda")
    return lambda: time.sleep(0.05)


def main(name, seconds):
    body = globals()[name]()
    torch.cuda.synchronize()
    end = time.monotonic() + seconds
    count = 0
    start = time.monotonic()
    while time.monotonic() < end:
        body()
        count += 1
        if count % 4 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    print(f"{count / (time.monotonic() - start):.3f}")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
