"""What machine this is and how many GPUs it should have, from recorded trees."""

from pathlib import Path

import pytest

from coldaisle.drivers.inventory import Inventory, expected_gpus, read_inventory


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def product(sysfs: Path, name: str) -> None:
    write(sysfs / "class/dmi/id/product_name", name + "\n")


def device(sysfs: Path, address: str, vendor: str, kind: str, *, virtual: bool = False) -> None:
    directory = sysfs / "bus/pci/devices" / address
    write(directory / "vendor", vendor + "\n")
    write(directory / "class", kind + "\n")
    if virtual:
        (directory / "physfn").mkdir()


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("DGXH100", 8),
        ("NVIDIA DGX H200", 8),
        ("DGX A100", 8),
        ("DGXA100 920-23687-2530-000", 8),
        ("DGX B200", 8),
        ("DGX B300", 8),
        ("DGX-1 with V100-32", 8),
        ("NVIDIA DGX-2", 16),
        ("DGX Station A100 920-23487-2530-000", 4),
        ("DGX Station", 4),
        ("NVIDIA_DGX_Spark", 1),
        ("PowerEdge XE9680", 8),
        ("PowerEdge XE8545", 4),
        ("SYS-821GE-TNHR", 8),
        ("NVIDIA HGX H100 8-GPU", 8),
    ],
)
def test_the_product_says_how_many(tmp_path, name, count):
    """A DGX's product name fixes the number, whatever is left of it on the bus."""
    product(tmp_path, name)
    device(tmp_path, "0000:1b:00.0", "0x10de", "0x030200")
    assert expected_gpus(None, tmp_path) == (count, "dmi")


@pytest.mark.parametrize("name", ["KVM", "PowerEdge R760xa", "ProLiant XL675d Gen10 Plus", "DGX", ""])
def test_other_machines_count_their_bus(tmp_path, name):
    """NVIDIA display and 3D controllers count; NVSwitches, audio, virtual functions and other makers do not."""
    product(tmp_path, name)
    device(tmp_path, "0000:1b:00.0", "0x10de", "0x030200")
    device(tmp_path, "0000:43:00.0", "0x10de", "0x030000")
    device(tmp_path, "0000:43:00.1", "0x10de", "0x040300")
    device(tmp_path, "0000:05:00.0", "0x10de", "0x068000")
    device(tmp_path, "0000:1b:00.4", "0x10de", "0x030200", virtual=True)
    device(tmp_path, "0000:03:00.0", "0x1a03", "0x030000")
    assert expected_gpus(None, tmp_path) == (2, "pci")


def test_the_operator_knows_best(tmp_path):
    """A configured number wins over the product, zero included."""
    product(tmp_path, "DGXH100")
    assert expected_gpus(0, tmp_path) == (0, "config")


def test_unknown_is_not_zero(tmp_path):
    """No product and no bus to look at: no number. A bus without a GPU: zero."""
    assert expected_gpus(None, tmp_path) == (None, "")
    device(tmp_path, "0000:03:00.0", "0x1a03", "0x030000")
    assert expected_gpus(None, tmp_path) == (0, "pci")


def test_the_whole_inventory(tmp_path):
    """Every file of a DGX is told; Secure Boot and nouveau explain a driver that does not load."""
    sysfs, procfs = tmp_path / "sys", tmp_path / "proc"
    product(sysfs, "DGXH100")
    write(sysfs / "class/dmi/id/sys_vendor", "NVIDIA\n")
    write(sysfs / "class/dmi/id/bios_version", "1.05.03\n")
    write(procfs / "sys/kernel/hostname", "dgx-07\n")
    write(procfs / "sys/kernel/osrelease", "5.15.0-1053-nvidia\n")
    write(tmp_path / "etc/os-release", '# who\nNAME="Ubuntu"\nPRETTY_NAME="Ubuntu 22.04.4 LTS"\n')
    write(tmp_path / "etc/dgx-release", 'DGX_NAME="DGX Server"\nDGX_SWBUILD_VERSION="6.2.0"\n')
    write(
        sysfs / "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
        b"\x06\x00\x00\x00\x01",
    )
    (sysfs / "module/nouveau").mkdir(parents=True)
    assert read_inventory(sysfs=sysfs, procfs=procfs, root=tmp_path) == Inventory(
        product="DGXH100",
        maker="NVIDIA",
        hostname="dgx-07",
        kernel="5.15.0-1053-nvidia",
        os="Ubuntu 22.04.4 LTS (DGX OS 6.2.0)",
        bios="1.05.03",
        nouveau=True,
        secure_boot=True,
        expected_gpus=8,
        expected_by="dmi",
    )
    assert read_inventory(hostname="rack3", sysfs=sysfs, procfs=procfs, root=tmp_path).hostname == "rack3"


def test_an_empty_machine_is_unknown_and_no_crash(tmp_path):
    """Nothing to read (a container without /sys): every part is unknown."""
    assert read_inventory(sysfs=tmp_path, procfs=tmp_path, root=tmp_path) == Inventory(
        "", "", "", "", "", "", nouveau=False, secure_boot=None, expected_gpus=None, expected_by=""
    )
