"""Line shapes from public kernel logs, near misses, and hostile text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldaisle.metrics.kernel_kinds import KINDS
from coldaisle.reader.kernel_messages import DETAIL_LIMIT, classify, normalise_bdf

XIDS = [
    (
        "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        ("00000000:05:00.0", 79, None, ""),
    ),
    ("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.", ("00000000:01:00.0", 79, None, "")),
    ("NVRM: Xid (0000:03:00): 14, Channel 00000001", ("00000000:03:00.0", 14, None, "")),
    (
        "NVRM: Xid (PCI:0000:CB:00): 109, pid=1797828, name=pt_main_thread, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005",
        ("00000000:cb:00.0", 109, 1797828, "pt_main_thread"),
    ),
    (
        "NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): Illegal Instruction Parameter",
        ("00000000:cb:00.0", 13, None, ""),
    ),
    (
        "NVRM: Xid (PCI:0000:3d:00 GPU-I:01): 31, pid=77, name=python3, Ch 00000008",
        ("00000000:3d:00.0", 31, 77, "python3"),
    ),
    (
        "NVRM: Xid (PCI:0018:01:00): 145, pid=876767, name=ray::WorkerDict, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000 0x00100000 0x00000004)",
        ("00000018:01:00.0", 145, 876767, "ray::WorkerDict"),
    ),
]
OTHERS = [
    ("NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.", "gpu_lost", "00000000:91:00.0"),
    ("NVRM: GPU 0000:05:00.0: RmInitAdapter failed! (0x26:0x56:1482)", "gpu_init_failed", "00000000:05:00.0"),
    ("NVRM: GPU 0000:05:00.0: rm_init_adapter failed, device minor number 0", "gpu_init_failed", "00000000:05:00.0"),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
        "sxid",
        "00000000:c1:00.0",
    ),
    ("Out of memory: Killed process 4321 (python3) total-vm:1kB, anon-rss:1kB", "oom_kill", ""),
    ("Memory cgroup out of memory: Killed process 4321 (torchrun) total-vm:1kB", "oom_kill", ""),
    ("Out of memory: Kill process 4321 (java) score 900 or sacrifice child", "oom_kill", ""),
    ("EXT4-fs (nvme0n1p2): Remounting filesystem read-only", "filesystem_read_only", ""),
    ("EXT4-fs error (device sda1): ext4_lookup:1590: inode #2: comm ls", "filesystem_error", ""),
    ("XFS (md127): Filesystem has been shut down due to log error (0x2).", "filesystem_read_only", ""),
    ("XFS (dm-0): log I/O error -5", "filesystem_error", ""),
    ("blk_update_request: I/O error, dev sda, sector 123 op 0x0:(READ)", "io_error", ""),
    ("I/O error, dev nvme0n1, sector 5 op 0x1:(WRITE) flags 0x0", "io_error", ""),
    ("Buffer I/O error on dev sdb1, logical block 0, async page read", "io_error", ""),
    ("nvme nvme4: I/O 12 QID 3 timeout, aborting", "io_error", ""),
    ("md/raid1:md0: Disk failure on sda1, disabling device.", "io_error", ""),
    ("nouveau 0000:05:00.0: NVIDIA GH100 (180000a1)", "nouveau", "00000000:05:00.0"),
]
NEAR_MISSES = [
    "",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.159.04",
    "NVRM: GPU at PCI:0000:91:00: GPU-b6c3b2be-c55b-d076-fa0e-d464e4c7e08b",
    "NVRM: Xid (PCI:0000:05:00): soon",
    "NVRM: Xid (PCI:0000:05): 79, x",
    "systemd[1]: NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus",
    "comm NVRM: Xid (PCI:0000:05:00): 79, spoofed by a process name",
    "oom_reaper: reaped process 4321 (python3)",
    "XFS (md127): Mounting V5 Filesystem",
    "EXT4-fs (sda1): re-mounted. Opts: errors=remount-ro",
    "nvidia-nvswitch3: open (major=234)",
]


@pytest.mark.parametrize(("line", "expected"), XIDS)
def test_xid_lines_give_gpu_code_and_process(line, expected):
    """Every shape in which the driver prints an Xid is read, with the bus id in one form."""
    message = classify(line)
    assert message is not None
    assert message.kind == "xid"
    assert (message.bdf, message.code, message.pid, message.process) == expected


def test_nvlink5_lines_tell_severity_link_and_subcode():
    """Blackwell's NVLink lines say themselves whether they are fatal; a non-fatal one must not be called fatal."""
    line = "NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT {} XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
    fatal, nonfatal = classify(line.format("Fatal")), classify(line.format("Nonfatal"))
    assert fatal is not None
    assert nonfatal is not None
    assert (fatal.fatal, nonfatal.fatal) == (True, False)
    assert dict(fatal.facts) == {"unit": "NETIR_LINK_EVT", "link": "08", "subcode": "4"}


@pytest.mark.parametrize(("line", "kind", "bdf"), OTHERS)
def test_other_lines_are_recognised(line, kind, bdf):
    """Each kind of message is told from its real shape."""
    message = classify(line)
    assert message is not None
    assert (message.kind, message.bdf) == (kind, bdf)


@pytest.mark.parametrize("separator", ["\\x0a", "\n", " "])
def test_api_mismatch_names_both_versions(separator):
    """The mismatch is one record of several lines, with the newlines as the kernel escapes them."""
    message = classify(
        f"NVRM: API mismatch: the client 'nvidia-smi' (pid 5678){separator}NVRM: has the version 580.95.05, but{separator}"
        f"NVRM: this kernel module has the version 580.159.04.  Please{separator}NVRM: make sure"
    )
    assert message is not None
    assert (message.kind, message.pid, message.process) == ("api_mismatch", 5678, "nvidia-smi")
    assert dict(message.facts) == {"client_version": "580.95.05", "module_version": "580.159.04"}


@pytest.mark.parametrize("line", NEAR_MISSES)
def test_near_misses_are_left_alone(line):
    """Lines that only look alike give nothing."""
    assert classify(line) is None


def test_sxid_says_whether_it_is_fatal():
    """Fatal, non-fatal and silent lines are told apart."""
    texts = ["Fatal, Link 4 x", "Non-fatal, Link 4 x", "Link 4 x"]
    found = [classify(f"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, {text}") for text in texts]
    assert [message.fatal for message in found if message] == [True, False, None]


def test_every_kind_is_counted():
    """The collector starts a counter for each kind that `classify` can give: no more, no fewer."""
    api = "NVRM: API mismatch: the client has the version 580.1, but this kernel module has the version 570.1."
    lines = [line for line, *_ in (*XIDS, *OTHERS)] + [api]
    assert {classify(line).kind for line in lines} == set(KINDS)


@given(st.text(max_size=4000) | st.text(max_size=500).map(lambda t: f"NVRM: Xid (PCI:0000:05:00): 79, pid={t}"))
def test_hostile_text_never_raises_and_stays_bounded(text):
    """Whatever a line holds, the outcome is nothing or a bounded printable message."""
    message = classify(text)
    if message is not None:
        assert len(message.detail) <= DETAIL_LIMIT
        assert message.detail.isprintable()
        assert len(message.process) <= 64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0000:05:00", "00000000:05:00.0"),
        ("PCI:0000:05:00.0", "00000000:05:00.0"),
        ("00000018:CB:00.0", "00000018:cb:00.0"),
        ("05:00.0", "00000000:05:00.0"),
        ("zz:00", ""),
        ("", ""),
    ],
)
def test_bus_ids_have_one_form(text, expected):
    """Kernel, NVML and lspci write bus ids differently; one form compares."""
    assert normalise_bdf(text) == expected
