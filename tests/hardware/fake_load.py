"""Stands for loads.py where there is no GPU: same output, a sleep for a load."""

import sys
import time

STEP = 0.05


def main(seconds, reporting):
    print("ready", flush=True)
    start = time.monotonic()
    count = 0
    while time.monotonic() - start < seconds:
        time.sleep(STEP)
        count += 1
        if reporting:
            print(f"{time.monotonic():.4f} {count}", flush=True)
    print(f"{count / (time.monotonic() - start):.3f}", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[2]), "--report" in sys.argv[3:])
