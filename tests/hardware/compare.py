"""The same quantities from our exposition and from nvidia-smi, in nvidia-smi's units."""

import subprocess

# nvidia-smi's name: (our series' beginning, a label of it, factor to nvidia-smi's unit)
QUANTITIES = {
    "temperature.gpu": ("dgx_gpu_temperature_celsius{", 'sensor="core"', 1),
    "temperature.memory": ("dgx_gpu_temperature_celsius{", 'sensor="memory"', 1),
    "power.draw.average": ("dgx_gpu_power_average_watts{", "", 1),
    "power.draw.instant": ("dgx_gpu_power_watts{", "", 1),
    "clocks.sm": ("dgx_gpu_clock_hertz{", 'clock="sm"', 1e-6),
    "clocks.mem": ("dgx_gpu_clock_hertz{", 'clock="memory"', 1e-6),
    "memory.used": ("dgx_gpu_memory_bytes{", 'state="used"', 1 / 1048576),
    "utilization.gpu": ("dgx_gpu_utilization_ratio{", "", 100),
    "utilization.memory": ("dgx_gpu_memory_copy_utilization_ratio{", "", 100),
    "power.limit": ("dgx_gpu_power_limit_watts{", 'kind="requested"', 1),
}
SMI = ("nvidia-smi", f"--query-gpu={','.join(QUANTITIES)}", "--format=csv,noheader,nounits", "--id=0")


def ours(text):
    """Return GPU 0's values of an exposition; None for what it does not say."""
    lines = [line for line in text.splitlines() if 'gpu="0"' in line and not line.startswith("#")]
    found = {}
    for name, (series, label, factor) in QUANTITIES.items():
        line = next((line for line in lines if line.startswith(series) and label in line), None)
        found[name] = float(line.rsplit(" ", 1)[1]) * factor if line else None
    return found


def theirs(command=SMI):
    """Return what nvidia-smi says of GPU 0 now; all None if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return dict.fromkeys(QUANTITIES)
    values = [item.strip() for item in done.stdout.partition("\n")[0].split(",")]
    if done.returncode or len(values) != len(QUANTITIES):
        return dict.fromkeys(QUANTITIES)
    return {name: number(value) for name, value in zip(QUANTITIES, values, strict=True)}


def number(text):
    """Return a number, None for `[N/A]` and its like."""
    try:
        return float(text)
    except ValueError:
        return None


def differences(rows):
    """Return {quantity: (pairs, our mean, their mean, mean difference, greatest difference)} of compared rows."""
    found = {}
    for name in QUANTITIES:
        pairs = [(row["ours"][name], row["theirs"][name]) for row in rows]
        pairs = [(a, b) for a, b in pairs if a is not None and b is not None]
        if pairs:
            gaps = [abs(a - b) for a, b in pairs]
            n = len(pairs)
            found[name] = (n, sum(a for a, _ in pairs) / n, sum(b for _, b in pairs) / n, sum(gaps) / n, max(gaps))
    return found
