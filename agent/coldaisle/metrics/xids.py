"""What Xids mean and what to do about them: data, with its provenance, in our own words.

Source: NVIDIA's Xid catalogue, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html (codes, engines,
action buckets), read 2026-12-01. Codes that it marks unused are left out: an unused code that shows up all the same is
as unknown to us as to anyone. Severity is ours: critical where the GPU or the node is out of service until somebody
acts, warning where a job dies or an operator should look, info where nothing needs doing by itself.
"""

from enum import StrEnum
from typing import NamedTuple

from coldaisle.domain.events import Severity

SOURCE = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
READ_ON = "2026-12-01"


class Action(StrEnum):
    """The bucket of what to do first."""

    NONE = "none"
    RESTART_APP = "restart_app"
    RESET_GPU = "reset_gpu"
    REBOOT_NODE = "reboot_node"
    RESTART_VM = "restart_vm"
    CHECK_NVLINK = "check_nvlink"
    CHECK_POWER = "check_power"
    CHECK_MEMORY = "check_memory"
    CHECK_SOFTWARE = "check_software"
    FOLLOW_OTHER = "follow_other"
    RECOVERY_ACTION = "recovery_action"
    CONTACT_SUPPORT = "contact_support"


REMEDIES: dict[Action, str] = {
    Action.NONE: "nothing to do unless it keeps coming back",
    Action.RESTART_APP: "restart the job; look for a bug in it first, for hardware if other jobs on this GPU die too",
    Action.RESET_GPU: "drain the node, `coldaisle release`, `nvidia-smi --gpu-reset -i GPU`, `coldaisle resume`",
    Action.REBOOT_NODE: "drain the node and reboot or power-cycle it; if it comes back, contact support",
    Action.RESTART_VM: "restart the virtual machine that owns the GPU",
    Action.CHECK_NVLINK: "drain the node; check both ends of the link (`nvidia-smi nvlink -e`), then reset the GPU",
    Action.CHECK_POWER: "check the GPU's power connectors and seating",
    Action.CHECK_MEMORY: "drain the node and reset the GPU; check row remapping (`nvidia-smi -q -d ROW_REMAPPER`)",
    Action.CHECK_SOFTWARE: "check that driver, firmware and fabric manager fit each other; update what is behind",
    Action.FOLLOW_OTHER: "follow the other Xid logged with it; alone, restart the job and watch for more",
    Action.RECOVERY_ACTION: "do what the line says: it sums up what the Xids before it ask for",
    Action.CONTACT_SUPPORT: "collect `nvidia-bug-report.sh` and contact support",
}


class Xid(NamedTuple):
    """One catalogue entry."""

    code: int
    severity: Severity
    action: Action
    meaning: str

    @property
    def remedy(self) -> str:
        """What to try first, in one sentence."""
        return REMEDIES[self.action]


_I, _W, _C = Severity.INFO, Severity.WARNING, Severity.CRITICAL

_SINGLE = (
    Xid(8, _W, Action.RESTART_APP, "a channel stopped making progress"),
    Xid(11, _W, Action.RESTART_APP, "the GPU got commands that it cannot decode"),
    Xid(13, _W, Action.RESTART_APP, "exception in the compute or graphics engine, usually a bad access by the program"),
    Xid(25, _W, Action.RESTART_APP, "the GPU got a command that is not allowed"),
    Xid(31, _W, Action.RESTART_APP, "the program touched GPU memory that is not mapped"),
    Xid(32, _W, Action.RESTART_APP, "corrupted commands arrived from host memory"),
    Xid(37, _I, Action.NONE, "error in the driver's firmware"),
    Xid(38, _W, Action.CONTACT_SUPPORT, "watchdog of the driver's firmware expired"),
    Xid(43, _W, Action.RESTART_APP, "the program's channel was stopped after a fault of its own"),
    Xid(44, _W, Action.RESTART_APP, "fault while switching between programs"),
    Xid(45, _W, Action.FOLLOW_OTHER, "channels were torn down because of an earlier error or a killed program"),
    Xid(46, _C, Action.RESET_GPU, "the GPU stopped answering in time"),
    Xid(48, _C, Action.CHECK_MEMORY, "uncorrectable (double-bit) memory error"),
    Xid(54, _C, Action.CHECK_POWER, "auxiliary power is missing"),
    Xid(60, _W, Action.RESTART_APP, "exception in the video or security processor"),
    Xid(62, _C, Action.RESET_GPU, "the power-management controller halted"),
    Xid(63, _W, Action.NONE, "a faulty memory row is being replaced by a spare one; takes effect at the next reset"),
    Xid(64, _C, Action.RESET_GPU, "a faulty memory row could not be replaced or the replacement not be stored"),
    Xid(66, _W, Action.CHECK_SOFTWARE, "the driver touched a register that it may not"),
    Xid(67, _W, Action.CHECK_SOFTWARE, "the driver's firmware refused an access by the driver"),
    Xid(69, _W, Action.RESTART_APP, "the program used a class of work that the engine refuses"),
    Xid(74, _C, Action.CHECK_NVLINK, "NVLink error"),
    Xid(78, _W, Action.CHECK_SOFTWARE, "a virtual GPU could not be started"),
    Xid(79, _C, Action.REBOOT_NODE, "the GPU no longer answers on PCIe (has fallen off the bus)"),
    Xid(80, _W, Action.RESTART_APP, "data sent to the GPU arrived corrupted"),
    Xid(92, _W, Action.CONTACT_SUPPORT, "corrected memory errors come at a high rate"),
    Xid(93, _I, Action.NONE, "the limit on rewriting the GPU's configuration memory was hit"),
    Xid(94, _W, Action.RESTART_APP, "uncorrectable memory error, kept to one program; reset the GPU when convenient"),
    Xid(95, _C, Action.RESET_GPU, "uncorrectable memory error that could not be kept to one program"),
    Xid(106, _I, Action.NONE, "test message of the management bus"),
    Xid(107, _I, Action.NONE, "silent test message of the management bus"),
    Xid(108, _I, Action.NONE, "address translation failed at the far end of an NVLink"),
    Xid(109, _C, Action.RESET_GPU, "switching between programs timed out"),
    Xid(110, _C, Action.RESET_GPU, "security fault; uncommon without a hardware failure"),
    Xid(119, _C, Action.RESET_GPU, "the GPU's system processor (GSP) did not answer the driver in time"),
    Xid(120, _C, Action.RESET_GPU, "error in the GPU's system processor (GSP)"),
    Xid(121, _I, Action.NONE, "corrected errors on the link to the Grace CPU"),
    Xid(136, _C, Action.RESET_GPU, "an NVLink could not be trained"),
    Xid(137, _W, Action.RESTART_APP, "access over NVLink that the other GPU refused, usually a bug in the program"),
    Xid(140, _C, Action.RESET_GPU, "uncorrectable memory error that the driver could not take out of use"),
    Xid(141, _I, Action.NONE, "error on CUDA's fast path"),
    Xid(143, _C, Action.RESET_GPU, "the GPU could not be initialised"),
    Xid(151, _W, Action.RESTART_VM, "confidential computing: changing the key failed"),
    Xid(154, _W, Action.RECOVERY_ACTION, "what this GPU needs to recover has changed"),
    Xid(155, _C, Action.RESET_GPU, "an NVLink went down by decision of software"),
    Xid(156, _C, Action.RESET_GPU, "a faulty part of the GPU is taken out of use at the next reset"),
    Xid(157, _W, Action.CONTACT_SUPPORT, "a faulty part of the GPU could not be taken out of use: no spare left"),
    Xid(158, _C, Action.RESET_GPU, "the GPU failed to answer in time and cannot go on"),
    Xid(159, _W, Action.CHECK_SOFTWARE, "error on the coherent link to the CPU"),
    Xid(160, _W, Action.NONE, "a faulty memory channel was taken out of use"),
    Xid(161, _W, Action.CHECK_SOFTWARE, "a faulty memory channel could not be taken out of use"),
    Xid(162, _I, Action.NONE, "power smoothing hardware is in use again"),
    Xid(163, _W, Action.NONE, "power smoothing hardware went out of use, for heat or a time-out"),
    Xid(164, _W, Action.NONE, "power smoothing hardware nears the end of its life"),
    Xid(165, _W, Action.CONTACT_SUPPORT, "power smoothing hardware is worn out: loads swing unsmoothed"),
    Xid(166, _W, Action.CHECK_SOFTWARE, "confidential computing: traffic before a link was set up for encryption"),
    Xid(167, _C, Action.REBOOT_NODE, "PCIe time-out that cannot be recovered from"),
    Xid(168, _W, Action.CHECK_MEMORY, "errors in protected GPU memory reduced what can be used"),
    Xid(169, _C, Action.RESET_GPU, "the security processor halted"),
    Xid(170, _W, Action.CHECK_SOFTWARE, "confidential computing: unexpected event on a secured NVLink"),
    Xid(171, _W, Action.FOLLOW_OTHER, "details of an uncorrectable error in the GPU's DRAM (goes with Xid 48)"),
    Xid(172, _W, Action.FOLLOW_OTHER, "details of an uncorrectable error in the GPU's SRAM (goes with Xid 48)"),
)

# Engines that fail alone and take only their program with them.
_ENGINES = {
    **{code: f"copy engine {n}" for n, code in enumerate((39, 40, 41, 70, 71, 72, 75, 76, 77, 85))},
    **{code: f"copy engine {n}" for n, code in enumerate(range(126, 136), start=10)},
    **{code: f"video decoder {n}" for n, code in enumerate((68, 83, 84, 88, 89, 96, 97, 98))},
    **{code: f"JPEG decoder {n}" for n, code in enumerate((82, 99, 100, 101, 102, 103, 104, 105))},
    86: "optical flow engine 0",
    139: "optical flow engine 1",
    142: "video encoder 3",
}
# NVLink 5 (Blackwell): the line itself says whether the error is fatal, and on which link.
_NVLINK5 = {
    144: "transaction ordering (SAW)",
    145: "receive and request layer (RLW)",
    146: "transport layer (TLW)",
    147: "switching layer (TREX)",
    148: "link control (NVLPW_CTRL)",
    149: "link and physical layer (NETIR)",
    150: "management (MSE)",
}

CATALOGUE: dict[int, Xid] = {
    xid.code: xid
    for xid in (
        *_SINGLE,
        *(Xid(code, _W, Action.RESTART_APP, f"error in {engine}") for code, engine in _ENGINES.items()),
        *(Xid(code, _C, Action.CHECK_NVLINK, f"NVLink 5 error: {part}") for code, part in _NVLINK5.items()),
    )
}

ZERO_INITIALISED = (46, 48, 62, 63, 64, 74, 79, 92, 94, 95, 109, 119, 120, 140, 143, 149, 154, 158)
"""Codes with a series at 0 on every GPU from the start, so that the first occurrence is an increase that alerts see."""


def explain(code: int) -> Xid:
    """Return the entry for `code`; an unknown one is a warning to take to support, never dropped."""
    return CATALOGUE.get(code) or Xid(code, _W, Action.CONTACT_SUPPORT, "unknown Xid, contact support")
