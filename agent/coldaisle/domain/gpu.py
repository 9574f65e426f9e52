"""GPUs as the agent knows them: who they are and how they are."""

from enum import StrEnum
from typing import NamedTuple


class GpuState(StrEnum):
    """State of one GPU, judged by NVML and by how its calls behave."""

    STARTING = "starting"
    """Found, not answered yet."""
    OK = "ok"
    LATE = "late"
    """Missed a collection deadline; its last readings live until three intervals have passed."""
    HUNG = "hung"
    """A vendor call on it has not returned within the hang deadline: quarantined and probed from outside."""
    CRASHED = "crashed"
    """A vendor call on it killed the vendor child: quarantined and probed from outside."""
    LOST = "lost"
    RESET_REQUIRED = "reset_required"
    FAILING = "failing"
    """Answers with errors other than the ones above."""
    MISSING = "missing"
    """Was there and is no longer enumerated."""


class GpuIdentity(NamedTuple):
    """What does not change while a driver is loaded. Empty text: the vendor did not say.

    `index` is NVML's; `uuid` is the key everything else uses. `pci_bus_id` is `00000000:05:00.0` form, lower case.
    `minor` is the N of /dev/nvidiaN.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    uuid: str
    name: str = ""
    serial: str = ""
    pci_bus_id: str = ""
    vbios: str = ""
    architecture: str = ""
    minor: int | None = None
    cuda_capability: str = ""
    board_part_number: str = ""
