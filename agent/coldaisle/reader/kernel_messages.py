"""Kernel-log lines that concern a GPU node, as bounded facts. Pure: text in, `Message` or None out.

Patterns are anchored at the start of the line, where the kernel module writes its own name: process names that land in
the middle of other lines cannot pass for one. Line shapes were taken from public kernel logs and driver sources.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

DETAIL_LIMIT = 300
"""Characters of a line that travel with its event."""
NAME_LIMIT = 64


class Message(NamedTuple):
    """What one line said.

    `bdf` is `00000000:05:00.0` form or empty; `code` the Xid or SXid, None without; `pid` None if unknown; `process`,
    `device` and `facts` may be empty; `fatal` is what the line itself says, None if it does not; `detail` is the line,
    printable and cut to `DETAIL_LIMIT`.
    """

    kind: str
    detail: str
    bdf: str = ""
    code: int | None = None
    pid: int | None = None
    process: str = ""
    device: str = ""
    fatal: bool | None = None
    facts: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> tuple[str, str, int | None, int | None, str]:
        """Messages with the same key may be folded into one with a count."""
        return (self.kind, self.bdf, self.code, self.pid, self.device)


_BUS = r"(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"

# The only cost that ordinary lines pay, and the only one that a flood of them pays.
_CANDIDATE = re.compile(
    r"NVRM: |nvidia-nvswitch|nouveau |[Oo]ut of memory|I/O error|I/O .{0,40}timeout|medium error|Disk failure"
    r"|[Rr]emounting filesystem|forced readonly|fs error|XFS \(|shut down"
)
_XID = re.compile(rf"NVRM: Xid \({_BUS}(?: GPU-I:(\d+))?[^)]{{0,40}}\): (\d{{1,5}})(?:,|$)(.*)", re.DOTALL)
_PID = re.compile(r" ?pid='?(\d{1,10})\b")
_PROCESS = re.compile(r" name=([^,<]{1,64})")
_NVLINK5 = re.compile(
    r"\b([A-Z][A-Z0-9_]{2,40}) (Fatal|Nonfatal) XC\d i\d Link (-?\d{1,3})"
    r" \(0x([0-9a-fA-F]{8})(?: 0x[0-9a-fA-F]{8}){5}\)"
)
_LOST = re.compile(rf"NVRM: GPU (?:at )?{_BUS}: GPU has fallen off the bus")
_INIT = re.compile(rf"NVRM: (?:GPU {_BUS}: )?(?:RmInitAdapter|rm_init_adapter) failed(?:! \(([^)]{{1,40}})\))?")
_MISMATCH = re.compile(
    r"NVRM: API mismatch: the client(?: '([^']{0,64})')?(?: \(pid (\d{1,10})\))?"
    r".{0,80}?version ([\d.]{3,20}).{0,120}?version ([\d.]{3,20})",
    re.DOTALL,
)
_SXID = re.compile(rf"nvidia-nvswitch(\d+): SXid \({_BUS}\): (\d{{1,6}})(?:,|$) ?(Non-fatal|Fatal)?(.*)", re.DOTALL)
_SXID_LINK = re.compile(r"Link (\d{1,3})")
_OOM = re.compile(
    r"(Memory cgroup out of memory|Out of memory)(?: \([a-z_]{1,40}\))?"
    r": Kill(?:ed)? process (\d{1,10}) \(([^)]{1,64})\)"
)
_NOUVEAU = re.compile(rf"nouveau {_BUS}: ")
_READ_ONLY = (
    re.compile(r"EXT[234]-fs \(([\w!.-]{1,64})\): Remounting filesystem read-only"),
    re.compile(r"XFS \(([\w!.-]{1,64})\): (?:Filesystem has been shut down|.{0,160}[Ss]hutting down filesystem)"),
    re.compile(r"BTRFS(?: \w{1,10})? \(device ([\w!.-]{1,64})[^)]{0,40}\).{0,160}forced readonly"),
    re.compile(r"(?:F2FS|FAT|JBD2).{0,10}\((?:device )?([\w!.-]{1,64})\).{0,80}(?:[Rr]emount|set) .{0,20}read-only"),
)
_FS_ERROR = (
    re.compile(r"EXT[234]-fs error \(device ([\w!.-]{1,64})\)"),
    re.compile(r"XFS \(([\w!.-]{1,64})\): (?:Metadata (?:I/O|CRC|corruption)|log I/O error|Internal error|Corruption)"),
)
_IO_ERROR = (
    re.compile(r"(?:blk_update_request: |print_req_error: )?(?:critical medium|I/O) error, dev ([\w!.-]{1,64}),? "),
    re.compile(r"Buffer I/O error on dev(?:ice)? ([\w!.-]{1,64}),"),
    re.compile(r"nvme (nvme\d{1,4}): I/O .{0,60}timeout"),
    re.compile(r"md/raid\S{0,8}:md\w{1,16}: Disk failure on ([\w!.-]{1,64}),"),
)


def normalise_bdf(text: str) -> str:
    """Return a PCI address as `00000000:05:00.0`; `text` is `[domain:]bus:device[.function]`, empty if it is not."""
    address, _, function = text.strip().lower().removeprefix("pci:").partition(".")
    parts = address.split(":")
    if len(parts) == 2:
        parts.insert(0, "0")
    try:
        domain, bus, device = (int(part, 16) for part in parts)
        return f"{domain:08x}:{bus:02x}:{device:02x}.{int(function or '0', 16):x}"
    except ValueError:
        return ""


def printable(text: str, limit: int) -> str:
    """Return `text` cut to `limit` with everything unprintable made a space."""
    return "".join(c if c.isprintable() else " " for c in text[:limit]).strip()


def classify(text: str) -> Message | None:
    """Return what the line says, None if it is none of our business."""
    if _CANDIDATE.search(text) is None:
        return None
    for recognise in _RECOGNISERS:
        if (message := recognise(text)) is not None:
            return message
    return None


def _xid(text: str) -> Message | None:
    if (match := _XID.match(text)) is None:
        return None
    bus, instance, code, rest = match.groups()
    pid = _PID.match(rest)
    process = _PROCESS.search(rest)
    facts: list[tuple[str, str]] = [("mig_instance", instance)] if instance else []
    fatal = None
    if (link := _NVLINK5.search(rest)) is not None:
        unit, severity, number, info = link.groups()
        fatal = severity == "Fatal"
        # Bits 20 to 25 of the first register are the sub-code that the catalogue's NVLink rules go by.
        facts += [("unit", unit), ("link", number), ("subcode", str(int(info, 16) >> 20 & 0x3F))]
    return Message(
        "xid",
        printable(text, DETAIL_LIMIT),
        normalise_bdf(bus),
        int(code),
        int(pid[1]) if pid else None,
        printable(process[1], NAME_LIMIT) if process else "",
        fatal=fatal,
        facts=tuple(facts),
    )


def _lost(text: str) -> Message | None:
    match = _LOST.match(text)
    return Message("gpu_lost", printable(text, DETAIL_LIMIT), normalise_bdf(match[1])) if match else None


def _init(text: str) -> Message | None:
    if (match := _INIT.match(text)) is None:
        return None
    facts = (("status", printable(match[2], NAME_LIMIT)),) if match[2] else ()
    return Message("gpu_init_failed", printable(text, DETAIL_LIMIT), normalise_bdf(match[1] or ""), facts=facts)


def _mismatch(text: str) -> Message | None:
    if not text.startswith("NVRM: API mismatch:"):
        return None
    match = _MISMATCH.match(text)
    if match is None:  # older modules print the versions in records of their own
        return Message("api_mismatch", printable(text, DETAIL_LIMIT))
    process, pid, client, module = match.groups()
    return Message(
        "api_mismatch",
        printable(text, DETAIL_LIMIT),
        pid=int(pid) if pid else None,
        process=printable(process or "", NAME_LIMIT),
        facts=(("client_version", client.rstrip(".")), ("module_version", module.rstrip("."))),
    )


def _sxid(text: str) -> Message | None:
    if (match := _SXID.match(text)) is None:
        return None
    switch, bus, code, severity, rest = match.groups()
    link = _SXID_LINK.search(rest)
    return Message(
        "sxid",
        printable(text, DETAIL_LIMIT),
        normalise_bdf(bus),
        int(code),
        device=f"nvswitch{switch[:6]}",
        fatal=severity == "Fatal" if severity else None,
        facts=(("link", link[1]),) if link else (),
    )


def _oom(text: str) -> Message | None:
    if (match := _OOM.match(text)) is None:
        return None
    scope = "cgroup" if match[1].startswith("Memory cgroup") else "machine"
    return Message(
        "oom_kill",
        printable(text, DETAIL_LIMIT),
        pid=int(match[2]),
        process=printable(match[3], NAME_LIMIT),
        facts=(("scope", scope),),
    )


def _nouveau(text: str) -> Message | None:
    match = _NOUVEAU.match(text)
    return Message("nouveau", printable(text, DETAIL_LIMIT), normalise_bdf(match[1])) if match else None


def _storage(kind: str, patterns: tuple[re.Pattern[str], ...]) -> Callable[[str], Message | None]:
    def recognise(text: str) -> Message | None:
        for pattern in patterns:
            if (match := pattern.match(text)) is not None:
                return Message(kind, printable(text, DETAIL_LIMIT), device=match[1])
        return None

    return recognise


_RECOGNISERS: tuple[Callable[[str], Message | None], ...] = (
    _xid,
    _lost,
    _init,
    _mismatch,
    _sxid,
    _oom,
    _nouveau,
    _storage("filesystem_read_only", _READ_ONLY),
    _storage("filesystem_error", _FS_ERROR),
    _storage("io_error", _IO_ERROR),
)
