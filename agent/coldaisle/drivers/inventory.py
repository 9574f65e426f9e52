"""What machine this is and how many GPUs it should have: plain file reads, no driver needed."""

import re
from pathlib import Path
from typing import NamedTuple

_NVIDIA = "0x10de"
# PCI base class 0x03 (display): VGA and 3D controllers are GPUs. NVSwitches are bridges (0x0680).
_GPU_CLASSES = ("0x0300", "0x0302")
_SECURE_BOOT = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

# DMI product name -> GPUs. From NVIDIA's system user guides (DGX) and the makers' data sheets (HGX machines that come
# with one GPU board only), November 2026. First match wins. Machines sold with 4 or 8 GPUs are left to the PCI bus.
_PRODUCTS = tuple(
    (re.compile(pattern, re.IGNORECASE), count)
    for pattern, count in (
        (r"DGX[ _-]?Spark", 1),
        (r"DGX[ _-]?Station[ _-]?(GB\d+)", 1),
        (r"DGX[ _-]?Station", 4),
        (r"DGX[ _-]?GB[23]00", 4),
        (r"DGX[ _-]?[ABH]\d{2,3}", 8),
        (r"DGX[ _-]?2", 16),
        (r"DGX[ _-]?1", 8),
        (r"HGX.*8[ -]?GPU|8[ -]?GPU.*HGX", 8),
        (r"HGX.*4[ -]?GPU|4[ -]?GPU.*HGX", 4),
        (r"PowerEdge (XE9680|XE9685L)", 8),
        (r"PowerEdge (XE9640|XE8545|XE8640)", 4),
        (r"ThinkSystem (SR680a|SR685a)", 8),
        (r"Cray XD670", 8),
        (r"SYS-(821|421)GE-TNHR|AS ?-8125GS-TNHR", 8),
    )
)


class Inventory(NamedTuple):
    """The machine. Empty text is unknown; None is unknown too."""

    product: str
    maker: str
    hostname: str
    kernel: str
    os: str
    bios: str
    nouveau: bool
    """The in-kernel driver that keeps NVIDIA's from taking the GPUs is loaded."""
    secure_boot: bool | None
    """An unsigned NVIDIA module will not load under it. None without EFI, or where its variables are hidden."""
    expected_gpus: int | None
    expected_by: str
    """`config`, `dmi` or `pci`; empty if the number is unknown."""


def read_inventory(
    *,
    override: int | None = None,
    hostname: str | None = None,
    sysfs: Path = Path("/sys"),
    procfs: Path = Path("/proc"),
    root: Path = Path("/"),
) -> Inventory:
    """Return what the files say; never raises, what is missing is unknown.

    Args:
        override: GPU count that the operator gave.
        hostname: name that the operator gave.
        sysfs: where /sys is.
        procfs: where /proc is.
        root: where /etc/os-release is.
    """
    count, how = expected_gpus(override, sysfs)
    dmi = sysfs / "class/dmi/id"
    return Inventory(
        product=_text(dmi / "product_name"),
        maker=_text(dmi / "sys_vendor"),
        hostname=hostname or _text(procfs / "sys/kernel/hostname"),
        kernel=_text(procfs / "sys/kernel/osrelease"),
        os=_os_name(root),
        bios=_text(dmi / "bios_version"),
        nouveau=(sysfs / "module/nouveau").is_dir(),
        secure_boot=_secure_boot(sysfs),
        expected_gpus=count,
        expected_by=how,
    )


def expected_gpus(override: int | None = None, sysfs: Path = Path("/sys")) -> tuple[int | None, str]:
    """Return how many GPUs there should be and how that is known: `config`, `dmi`, `pci`, or (None, "").

    The product comes before the bus: a GPU that fell off before boot is missing on the bus, not in the product's name.
    """
    if override is not None:
        return override, "config"
    product = _text(sysfs / "class/dmi/id/product_name")
    for pattern, count in _PRODUCTS:
        if pattern.search(product):
            return count, "dmi"
    found = _gpus_on_bus(sysfs / "bus/pci/devices")
    return (None, "") if found is None else (found, "pci")


def _gpus_on_bus(devices: Path) -> int | None:
    try:
        paths = list(devices.iterdir())
    except OSError:
        return None
    # Virtual functions (`physfn`) are slices of a GPU that is counted itself.
    return sum(
        _text(path / "vendor").lower() == _NVIDIA
        and _text(path / "class").lower().startswith(_GPU_CLASSES)
        and not (path / "physfn").exists()
        for path in paths
    )


def _os_name(root: Path) -> str:
    """PRETTY_NAME of os-release(5), and the DGX OS release where there is one."""
    name = ""
    for path in ("etc/os-release", "usr/lib/os-release"):
        if name := _assignments(root / path).get("PRETTY_NAME", ""):
            break
    release = _assignments(root / "etc/dgx-release").get("DGX_SWBUILD_VERSION", "")
    return f"{name} (DGX OS {release})" if release else name


def _assignments(path: Path) -> dict[str, str]:
    pairs = (line.partition("=") for line in _text(path).splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, separator, value in pairs if separator}


def _secure_boot(sysfs: Path) -> bool | None:
    try:
        variable = (sysfs / _SECURE_BOOT).read_bytes()
    except OSError:
        return None
    # Four bytes of attributes, then the value (UEFI specification, 3.3).
    return variable[4] == 1 if len(variable) == 5 else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
