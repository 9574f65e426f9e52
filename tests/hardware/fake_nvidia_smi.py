"""Stands for nvidia-smi where there is no GPU: answers `--query-gpu=A,B,... --format=csv,noheader,nounits`."""

import sys

VALUES = {
    "temperature.gpu": "36",
    "temperature.memory": "N/A",
    "power.draw.average": "76.90",
    "power.draw.instant": "[Not Supported]",
    "clocks.sm": "345",
    "clocks.mem": "3201",
    "memory.used": "0",
    "utilization.gpu": "0",
    "utilization.memory": "0",
    "power.limit": "700.00",
}


def main(arguments):
    query = next(item for item in arguments if item.startswith("--query-gpu=")).split("=", 1)[1]
    print(", ".join(VALUES.get(name, "N/A") for name in query.split(",")))


if __name__ == "__main__":
    main(sys.argv[1:])
